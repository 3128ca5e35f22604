//! Every way to be turned down: the status, the code, and words that tell the whole story.

use serde_json::{Value, json};

use crate::support::{Answer, Reply, Setup, TestProxy, Upstream, ledger, packed, setup};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn an_unknown_key_is_told_whose_key_is_meant() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for client in [
        proxy.with_key("tg-unknown-key-123456"),
        proxy.with_key(""),
        proxy.k1().without_key(),
    ] {
        let refused = client.chat("hi").await;
        assert_eq!(refused.refusal(), (401, "invalid_api_key".to_owned()));
        assert!(
            refused.error().message.contains("Tallygate"),
            "{}",
            refused.text()
        );
        assert!(
            !refused.text().contains("unknown-key"),
            "the key is not repeated"
        );
    }
    assert_eq!(upstream.hits(), 0);
}

#[tokio::test]
async fn a_disabled_or_expired_key_is_no_key() {
    let upstream = Upstream::start().await;
    for member in [
        "disabled = true",
        "expires = \"2026-11-30T12:00:00Z\"",
        "allow_from = [\"10.0.0.0/8\"]",
    ] {
        let proxy = TestProxy::start(Setup::to(&upstream).k1_key(member)).await;
        assert_eq!(
            proxy.k1().chat("hi").await.refusal(),
            (401, "invalid_api_key".to_owned()),
            "{member}"
        );
        assert_eq!(proxy.k3().chat("hi").await.status, 200);
    }
}

#[tokio::test]
async fn a_key_held_to_other_endpoints_may_not_chat() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1_key("endpoints = [\"models\"]");
    let proxy = TestProxy::start(setup).await;
    assert_eq!(
        proxy.k1().chat("hi").await.refusal(),
        (403, "endpoint_not_allowed".to_owned())
    );
    assert_eq!(proxy.k1().get("/v1/models").await.status, 200);
}

#[tokio::test]
async fn a_key_is_also_taken_from_the_api_key_header() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let request = proxy.k1().without_key().chat_request("hi", json!({}));
    assert_eq!(
        request.header("api-key", setup::K1).answer().await.status,
        200
    );
}

#[tokio::test]
async fn the_provider_refusing_our_credential_is_not_the_clients_fault() {
    let upstream = Upstream::start().await;
    let message = format!("Incorrect API key provided: {}", setup::PROVIDER_KEY);
    upstream.replies(Reply::error(401, "invalid_api_key", &message));
    let proxy = TestProxy::to(&upstream).await;
    for stream in [false, true] {
        let refused = proxy.k1().chat_with("hi", json!({"stream": stream})).await;
        assert_eq!(refused.status, 502);
        assert!(
            refused.error().message.contains("credential"),
            "{}",
            refused.text()
        );
        assert!(!refused.text().contains("sk-prov"), "{}", refused.text());
    }
}

#[tokio::test]
async fn a_missing_secret_makes_one_provider_unavailable_not_the_start() {
    let upstream = Upstream::start().await;
    let tables = format!(
        "[providers.other]\ndialect = \"openai\"\nbase_url = \"http://{}/v1\"\n\
         api_key = {{ file = \"nowhere.key\" }}\n[models.m-big-1]\nroutes = [\"other/m-big-1\"]",
        upstream.address()
    );
    let proxy = TestProxy::start(Setup::to(&upstream).tables(&tables)).await;
    let refused = proxy
        .k1()
        .chat_with("hi", json!({"model": "m-big-1"}))
        .await;
    assert_eq!(refused.refusal(), (503, "provider_unavailable".to_owned()));
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert_eq!(upstream.hits(), 0);
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
}

#[tokio::test]
async fn a_policy_that_is_not_in_force_refuses() {
    let upstream = Upstream::start().await;
    for status in ["draft", "archived"] {
        let proxy = TestProxy::start(Setup::to(&upstream).k1_status(status)).await;
        let refused = proxy.k1().chat("hi").await;
        assert_eq!(
            refused.refusal(),
            (503, "policy_unavailable".to_owned()),
            "{status}"
        );
        assert_eq!(refused.header("x-should-retry"), Some("false"));
        assert_eq!(proxy.k3().chat("hi").await.status, 200);
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_refused_with_the_member_that_is_wrong() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let cases: [(Value, &str); 9] = [
        (json!({"model": null}), "model"),
        (json!({"model": 5}), "model"),
        (json!({"model": ""}), "model"),
        (json!({"messages": []}), "messages"),
        (json!({"stream": "true"}), "stream"),
        (json!({"stream": 1}), "stream"),
        (json!({"n": 0}), "n"),
        (json!({"max_tokens": -5}), "max_tokens"),
        (
            json!({"max_completion_tokens": 1.5}),
            "max_completion_tokens",
        ),
    ];
    for (members, param) in cases {
        let refused = proxy.k1().chat_with("hi", members.clone()).await;
        assert_eq!(
            refused.refusal(),
            (400, "invalid_request".to_owned()),
            "{members}"
        );
        assert_eq!(refused.error().param.as_deref(), Some(param), "{members}");
    }
    let twice = "{\"model\":\"m-small\",\"model\":\"m-large\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
    let deep = "[".repeat(100_000);
    for body in ["", "{", "[]", "null", "{\"messages\":[]}", twice, &deep] {
        let refused = proxy.k1().post(CHAT, body.to_owned()).answer().await;
        assert_eq!(refused.refusal(), (400, "invalid_request".to_owned()));
    }
    let nameless = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
    let endless =
        json!({"model": "m".repeat(257), "messages": [{"role": "user", "content": "hi"}]});
    for body in [nameless.to_owned(), endless.to_string()] {
        let refused = proxy.k3().post(CHAT, body).answer().await;
        assert_eq!(refused.error().param.as_deref(), Some("model"));
        assert!(refused.body.len() < 1_000, "the name is not repeated");
    }
    assert_eq!(upstream.hits(), 0);
}

#[tokio::test]
async fn large_bodies_pass_up_to_the_configured_limit() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for megabytes in [1.9, 2.1, 20.0] {
        let text = "x".repeat((megabytes * 1e6) as usize);
        let answer = proxy.k3().chat(&text).await;
        assert_eq!(answer.status, 200, "{megabytes} MB: {}", answer.text());
        assert_eq!(
            upstream.last_request().json()["messages"][0]["content"],
            text
        );
    }
    let small = Setup::to(&upstream).server("max_request_body = \"1MiB\"");
    let proxy = TestProxy::start(small).await;
    let refused = proxy.k3().chat(&"x".repeat(1 << 20)).await;
    assert_eq!(refused.status, 413);
    let message = refused.error().message;
    assert!(
        message.contains("1048576") && message.contains("max_request_body"),
        "{message}"
    );
    assert_eq!(upstream.hits(), 3);
}

#[tokio::test]
async fn compressed_bodies_are_judged_in_every_coding_and_go_on_plain() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let body = |model: &str| {
        json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string()
    };
    let codings = [
        "gzip",
        "x-gzip",
        "deflate",
        "br",
        "zstd",
        "gzip, zstd",
        "br, gzip",
        "GZIP",
    ];
    for (count, coding) in codings.into_iter().enumerate() {
        let allowed = sends(&proxy, coding, packed(coding, body("m-small").as_bytes())).await;
        assert_eq!(allowed.status, 200, "{coding}: {}", allowed.text());
        let request = upstream.last_request();
        assert_eq!(request.header("content-encoding"), None);
        assert_eq!(request.body, body("m-small"), "{coding}");
        let forbidden = sends(
            &proxy,
            coding,
            packed(coding, body("m-forbidden").as_bytes()),
        )
        .await;
        assert_eq!(forbidden.refusal(), (403, "model_denied".to_owned()));
        assert_eq!(upstream.hits(), count + 1);
    }
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused_and_never_forwarded() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let body = json!({"model": "m-small", "messages": [{"role": "user", "content": "hi"}]});
    let body = body.to_string();
    for coding in ["lz9", "gzip, lz9", "gzip, gzip, gzip, gzip"] {
        let answer = sends(&proxy, coding, body.clone().into_bytes()).await;
        assert_eq!(
            answer.refusal(),
            (415, "invalid_request".to_owned()),
            "{coding}"
        );
    }
    for coding in ["gzip", "deflate", "br", "zstd"] {
        let whole = packed(coding, body.as_bytes());
        let half = whole[..whole.len() / 2].to_vec();
        for damaged in [half, body.clone().into_bytes()] {
            let answer = sends(&proxy, coding, damaged).await;
            assert_eq!(
                answer.refusal(),
                (400, "invalid_request".to_owned()),
                "{coding}"
            );
        }
    }
    assert_eq!(upstream.hits(), 0);
}

#[tokio::test]
async fn a_body_that_unpacks_to_more_than_the_limit_is_refused() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).server("max_request_body = \"64KiB\"");
    let proxy = TestProxy::start(setup).await;
    let bomb = vec![b' '; 8 << 20];
    for coding in ["gzip", "deflate", "br", "zstd", "gzip, zstd"] {
        let packed = packed(coding, &bomb);
        assert!(packed.len() < 60_000, "{coding}: {}", packed.len());
        let answer = sends(&proxy, coding, packed).await;
        assert_eq!(answer.status, 413, "{coding}");
    }
    assert_eq!(upstream.hits(), 0);
}

async fn sends(proxy: &TestProxy, coding: &str, body: Vec<u8>) -> Answer {
    let request = proxy.k1().post(CHAT, body);
    request.header("content-encoding", coding).answer().await
}

#[tokio::test]
async fn guessed_keys_are_recorded_one_by_one_and_then_summed_up() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let mut guessed = 0_u64;
    for _ in 0..60 {
        let answer = proxy.with_key("tg-unknown-key-123456").chat("hi").await;
        guessed += u64::from(answer.status == 429);
    }
    assert!(guessed >= 30, "{guessed} were slowed down");
    assert_eq!(
        proxy.k1().chat("hi").await.status,
        200,
        "who has a key is not"
    );
    let database = ledger::database(&proxy.setup);
    let _proxy = proxy.restart().await;
    let singles = ledger::records(&database, "request_refused", 1).await;
    assert_eq!(singles.len() as u64, 60 - guessed);
    assert_eq!(
        (
            &singles[0]["code"],
            &singles[0]["source"],
            &singles[0]["key"]
        ),
        (&json!("invalid_api_key"), &json!("127.0.0.1"), &Value::Null)
    );
    let sums = ledger::records(&database, "refusals_summed", 1).await;
    assert_eq!(sums.len(), 1);
    assert_eq!(
        (&sums[0]["code"], &sums[0]["source"], &sums[0]["count"]),
        (
            &json!("invalid_api_key"),
            &json!("127.0.0.1"),
            &json!(guessed)
        )
    );
}

#[tokio::test]
async fn paths_that_are_not_served_are_refused_here() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for (method, path, status) in [
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/fine_tuning/jobs", 404),
        ("POST", "/v1/batches", 404),
        ("GET", "/favicon.ico", 404),
        ("GET", "/", 404),
        ("PUT", CHAT, 405),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/v1/realtime", 404),
        ("GET", "/admin/v1/keys", 404),
        ("GET", "/readyz", 404),
    ] {
        let refused = proxy.k1().request(method, path).answer().await;
        assert_eq!(
            refused.refusal(),
            (status, "endpoint_not_allowed".to_owned()),
            "{method} {path}"
        );
    }
    assert_eq!(upstream.hits(), 0);
}

#[tokio::test]
async fn odd_spellings_of_a_path_lead_nowhere_else() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let body = json!({"model": "m-small", "messages": [{"role": "user", "content": "hi"}]});
    for path in [
        "/v1/chat/completions/../../admin",
        "/v1/%2e%2e/admin/keys",
        "/v1/..%2fadmin",
        "//v1/chat/completions",
        "/v1/chat%2Fcompletions",
        "/v1/;x/chat/completions",
        "/v1/chat/completions;x",
        "/v1/models/../chat/completions",
    ] {
        let refused = proxy.k1().post(path, body.to_string()).answer().await;
        assert!(
            [400, 404, 405].contains(&refused.status),
            "{path}: {}",
            refused.status
        );
    }
    assert_eq!(upstream.hits(), 0);
    // The final slash is a habit of clients, not a trick.
    let slash = proxy
        .k1()
        .post("/v1/chat/completions/", body.to_string())
        .answer()
        .await;
    assert!([200, 404].contains(&slash.status));
}

#[tokio::test]
async fn input_rules_refuse_what_is_too_long_or_unsupported() {
    let upstream = Upstream::start().await;
    let rules = "[input]\nmax_chars = 100\nunsupported_patterns = [\"<binary>\"]\nsensitive_patterns = [\"SECRET=\"]";
    let proxy = TestProxy::start(Setup::to(&upstream).k1(rules)).await;
    let long = proxy.k1().chat(&"ä".repeat(101)).await;
    assert_eq!(long.refusal(), (400, "context_length_exceeded".to_owned()));
    assert!(long.error().message.contains("101") && long.error().message.contains("100"));
    let unsupported = proxy.k1().chat("see <binary>").await;
    assert_eq!(unsupported.refusal(), (400, "input_unsupported".to_owned()));
    assert_eq!(upstream.hits(), 0);
    assert_eq!(proxy.k1().chat(&"ä".repeat(100)).await.status, 200);
    assert_eq!(
        proxy.k1().chat("SECRET=1").await.status,
        200,
        "sensitive text only warns"
    );
    let started = proxy.records("request_started", 2).await;
    assert_eq!(started[1]["warnings"], json!(["input_sensitive"]));
}

#[tokio::test]
async fn every_refusal_leaves_a_record_that_holds_no_content() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream)
        .server("max_request_body = \"1KiB\"")
        .k1("[limits]\nrequests_per_minute = 1\n[budget]\ntotal_tokens = 100000");
    let proxy = TestProxy::start(setup).await;
    assert_eq!(proxy.k1().chat("private words").await.status, 200);
    proxy.k1().chat("private words").await;
    proxy
        .with_key("tg-unknown-key-123456")
        .chat("private words")
        .await;
    proxy
        .k1()
        .chat_with("private words", json!({"model": "m-forbidden"}))
        .await;
    proxy.k1().post(CHAT, "{\"private words\"").answer().await;
    proxy.k1().chat(&"private words".repeat(100)).await;
    let refused = proxy.records("request_refused", 5).await;
    let found: Vec<_> = refused
        .iter()
        .map(|record| {
            (
                record["code"].as_str().unwrap(),
                record["status"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("rate_limit_exceeded", 429),
            ("invalid_api_key", 401),
            ("model_denied", 403),
            ("invalid_request", 400),
            ("input_too_large", 413),
        ]
    );
    assert_eq!(
        (&refused[0]["key"], &refused[0]["tenant"]),
        (&json!("k1"), &json!("acme"))
    );
    assert!(!json!(refused).to_string().contains("private"));
}
