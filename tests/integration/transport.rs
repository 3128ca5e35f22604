//! Sockets that close, stall or never open, and headers that stay where they belong.

use serde_json::json;
use tokio::{io::AsyncWriteExt as _, net::TcpListener};

use crate::support::{Gate, Reply, Setup, TestProxy, Upstream, reply, setup};

#[tokio::test]
async fn credentials_of_the_client_stay_here_and_ours_go_out() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let request = proxy.k1().chat_request("hi", json!({}));
    let answer = request
        .header("x-api-key", setup::K1)
        .header("api-key", setup::K1)
        .header("cookie", "session=private")
        .header("openai-organization", "org-private")
        .header("x-forwarded-for", "10.9.8.7")
        .header(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        .header("idempotency-key", "once-42")
        .answer()
        .await;
    assert_eq!(answer.status, 200);
    let sent = upstream.last_request();
    let bearer = format!("Bearer {}", setup::PROVIDER_KEY);
    assert_eq!(sent.header("authorization"), Some(bearer.as_str()));
    assert_eq!(sent.header("idempotency-key"), Some("once-42"));
    assert!(sent.header("traceparent").is_some());
    for private in [setup::K1, "private", "10.9.8.7"] {
        assert!(
            !sent.everything().contains(private),
            "{private} in {}",
            sent.everything()
        );
    }
}

#[tokio::test]
async fn headers_that_the_operator_names_pass() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).provider("forward_headers = [\"x-trace\"]");
    let proxy = TestProxy::start(setup).await;
    proxy
        .k1()
        .chat_request("hi", json!({}))
        .header("x-trace", "7")
        .answer()
        .await;
    assert_eq!(upstream.last_request().header("x-trace"), Some("7"));
}

#[tokio::test]
async fn nothing_in_a_request_chooses_the_upstream() {
    let upstream = Upstream::start().await;
    let elsewhere = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let evil = format!("http://{}/v1", elsewhere.address());
    for member in ["api_base", "base_url"] {
        let answer = proxy
            .k1()
            .chat_with("hi", json!({member: evil, "api_key": "sk-evil"}))
            .await;
        assert_eq!(answer.status, 403, "{}", answer.text());
    }
    let headers = [
        "x-base-url",
        "x-portkey-custom-host",
        "x-forwarded-host",
        "x-upstream",
    ];
    for header in headers {
        let request = proxy
            .k1()
            .chat_request("hi", json!({}))
            .header(header, &evil);
        assert_eq!(request.answer().await.status, 200);
        assert_eq!(
            upstream.last_request().header("host"),
            Some(upstream.address().to_string().as_str())
        );
    }
    let body =
        json!({"model": "m-small", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let absolute = format!(
        "POST {evil}/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        elsewhere.address(),
        setup::K1,
        body.len()
    );
    proxy.k1().raw(absolute.as_bytes()).await;
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn broken_framing_is_never_forwarded() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\n",
        setup::K1
    );
    for rest in [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "x-a: b\r\n folded: c\r\ncontent-length: 0\r\n\r\n",
    ] {
        let answer = proxy.k1().raw(format!("{head}{rest}").as_bytes()).await;
        assert_eq!(answer.status, 400, "{rest:?}");
    }
    assert_eq!(upstream.hits(), 0);
}

#[tokio::test]
async fn a_base_url_reaches_the_same_path_in_every_spelling() {
    let upstream = Upstream::start().await;
    for (base, path) in [
        ("", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/v1beta/openai", "/v1beta/openai/chat/completions"),
    ] {
        let setup = Setup::at(&format!("http://{}{base}", upstream.address()));
        let proxy = TestProxy::start(setup).await;
        assert_eq!(proxy.k1().chat("hi").await.status, 200);
        assert_eq!(upstream.last_request().path, path, "{base:?}");
    }
}

#[tokio::test]
async fn idle_connections_that_the_provider_closed_are_never_a_failure() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for count in 1..=20 {
        assert_eq!(proxy.k1().chat("hi").await.status, 200);
        upstream.close_idle().await;
        assert_eq!(upstream.hits(), count, "no request is sent twice");
    }
}

#[tokio::test]
async fn a_provider_that_closes_behind_each_answer_is_never_a_failure() {
    let upstream = Upstream::start().await;
    let answer = reply::completion("Hi.", reply::usage(1, 1));
    upstream.replies(Reply::json(200, &answer).then_closed());
    let proxy = TestProxy::to(&upstream).await;
    for count in 1..=20 {
        assert_eq!(proxy.k1().chat("hi").await.status, 200);
        assert_eq!(upstream.hits(), count, "no request is sent twice");
    }
}

#[tokio::test]
async fn an_answer_that_failed_is_not_asked_for_again() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for (count, status) in [400, 403, 404, 429, 500, 503, 504].into_iter().enumerate() {
        upstream.replies_once(Reply::error(status, "provider_code", "No."));
        let answer = proxy.k1().chat("hi").await;
        assert_eq!(
            (answer.status, answer.error().message.as_str()),
            (status, "No.")
        );
        assert_eq!(answer.code(), "provider_code");
        assert_eq!(upstream.hits(), count + 1);
    }
}

#[tokio::test]
async fn a_waiting_time_of_the_provider_reaches_the_client() {
    let upstream = Upstream::start().await;
    upstream
        .replies(Reply::error(429, "rate_limit_exceeded", "Slow down.").header("retry-after", "7"));
    let proxy = TestProxy::to(&upstream).await;
    assert_eq!(proxy.k1().chat("hi").await.header("retry-after"), Some("7"));
}

#[tokio::test]
async fn a_slow_provider_gives_a_timeout_and_is_asked_once() {
    let upstream = Upstream::start().await;
    upstream.replies(Reply::silence());
    let setup = Setup::to(&upstream).provider("first_byte_timeout = \"100ms\"");
    let proxy = TestProxy::start(setup).await;
    for (count, stream) in [false, true].into_iter().enumerate() {
        let answer = proxy.k1().chat_with("hi", json!({"stream": stream})).await;
        assert_eq!(answer.status, 504);
        answer.error();
        upstream.left_early(count + 1).await;
        assert_eq!(upstream.hits(), count + 1);
    }
}

#[tokio::test]
async fn a_stalled_stream_ends_in_an_error_and_a_slow_first_byte_does_not() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let answer = reply::completion("Slow.", reply::usage(1, 1));
    let limits = "first_byte_timeout = \"60s\"\nidle_timeout = \"100ms\"";
    let proxy = TestProxy::start(Setup::to(&upstream).provider(limits)).await;
    upstream.replies_once(Reply::json(200, &answer).wait_before_head(&gate));
    let client = proxy.k1();
    let slow = tokio::spawn(async move { client.chat("hi").await });
    upstream.hit(1).await;

    let word = |text: &str| reply::chunk(json!({"content": text}), None);
    upstream.replies_once(Reply::stream().data(&word("a")).data(&word("b")).hang());
    let stalled = proxy.k1().stream("hi").await.answer().await;
    assert_eq!(stalled.content(), "ab");
    stalled.stream_error();
    assert!(!stalled.is_done());
    upstream.left_early(1).await;

    // By now the slow one has been silent for longer than the idle timeout.
    gate.open();
    assert_eq!(slow.await.unwrap().content(), "Slow.");
}

#[tokio::test]
async fn a_client_that_leaves_frees_the_provider_at_once() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let word = reply::chunk(json!({"content": "word"}), None);
    upstream.replies_once(Reply::stream().data(&word).data(&word).hang());
    let mut open = proxy.k1().stream("hi").await;
    open.until("word").await;
    drop(open);
    upstream.left_early(1).await;

    upstream.replies_once(Reply::silence());
    let waiting = proxy.k1().chat_request("hi", json!({})).send_only().await;
    upstream.hit(2).await;
    drop(waiting);
    upstream.left_early(2).await;
    for record in proxy.settled(2).await {
        assert_eq!(record["outcome"], "client_gone");
    }
}

#[tokio::test]
async fn an_unreachable_provider_is_a_bad_gateway_that_tells_no_secrets() {
    for base_url in [
        "http://127.0.0.1:1/v1",
        "http://internal-host.invalid/v1",
        "https://127.0.0.1:1/v1",
    ] {
        let proxy = TestProxy::start(Setup::at(base_url)).await;
        for stream in [false, true] {
            let answer = proxy.k1().chat_with("hi", json!({"stream": stream})).await;
            assert_eq!(answer.status, 502, "{base_url}");
            answer.error();
            for private in ["127.0.0.1", "internal-host", "sk-prov"] {
                assert!(!answer.text().contains(private), "{}", answer.text());
            }
        }
        let record = proxy.last_settled(2).await;
        assert_eq!(
            (&record["outcome"], &record["cost_nano_usd"]),
            (&json!("upstream_failed"), &json!(0))
        );
    }
}

#[tokio::test]
async fn a_provider_whose_tls_fails_is_a_bad_gateway() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // It speaks, but no TLS.
    let plain = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut socket, _) = listener.accept().await.unwrap();
            let refusal = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
            socket.write_all(refusal).await.unwrap();
        }
    });
    let proxy = TestProxy::start(Setup::at(&format!("https://{address}/v1"))).await;
    for stream in [false, true] {
        let answer = proxy.k1().chat_with("hi", json!({"stream": stream})).await;
        assert_eq!(answer.status, 502);
        assert_eq!(answer.code(), "upstream_unreachable");
        assert!(!answer.text().contains("127.0.0.1"), "{}", answer.text());
    }
    plain.await.unwrap();
}

#[tokio::test]
async fn clients_reach_the_same_place_with_and_without_v1_in_their_base_url() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let body = json!({"model": "m-small", "messages": [{"role": "user", "content": "hi"}]});
    for base in ["", "/v1"] {
        let chat = proxy
            .k1()
            .post(&format!("{base}/chat/completions"), body.to_string());
        assert_eq!(chat.answer().await.status, 200, "{base:?}");
        assert_eq!(upstream.last_request().path, "/v1/chat/completions");
        for path in ["/models", "/models/m-small"] {
            assert_eq!(
                proxy.k1().get(&format!("{base}{path}")).await.status,
                200,
                "{base:?}"
            );
        }
        let stored = proxy.k1().get(&format!("{base}/responses/resp_1")).await;
        assert_eq!(stored.code(), "response_not_found");
    }
    for base in ["/v1/v1", "/v2", "/v1chat", "//v1", "/"] {
        let lost = proxy
            .k1()
            .post(&format!("{base}/chat/completions"), body.to_string());
        assert_eq!(
            lost.answer().await.refusal(),
            (404, "endpoint_not_allowed".to_owned()),
            "{base}"
        );
    }
}

#[tokio::test]
async fn a_provider_that_breaks_off_a_whole_answer_is_a_bad_gateway() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let half = || Reply::new(200, "application/json").piece("{\"id\":\"x\",\"choi");
    for reply in [half(), half().cut(), half().reset()] {
        upstream.replies_once(reply);
        let answer = proxy.k1().chat("hi").await;
        assert_eq!(answer.status, 502);
        answer.error();
        assert!(!answer.text().contains("choi"));
    }
    assert_eq!(upstream.hits(), 3);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let upstream = Upstream::start().await;
    let elsewhere = Upstream::start().await;
    let location = format!("http://{}/v1/chat/completions", elsewhere.address());
    upstream.replies(Reply::new(307, "text/plain").header("location", &location));
    let proxy = TestProxy::to(&upstream).await;
    let answer = proxy.k1().chat("hi").await;
    assert_eq!(answer.status, 502);
    answer.error();
    assert!(answer.header("location").is_none());
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn an_error_in_another_shape_is_made_openai_shaped() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for (body, message) in [
        ("{\"detail\":\"no such thing\"}", "no such thing"),
        ("{\"error\":\"plain text\"}", "plain text"),
        (
            "{\"error\":{\"message\":\"numbered\",\"code\":1302}}",
            "numbered",
        ),
        ("<html>Bad Gateway</html>", ""),
        ("", ""),
    ] {
        upstream.replies_once(Reply::new(503, "application/json").piece(body));
        let answer = proxy.k1().chat("hi").await;
        assert_eq!(answer.status, 503, "{body}");
        let error = answer.error();
        assert!(
            !error.message.is_empty() && error.message.contains(message),
            "{}",
            answer.text()
        );
    }
}

#[tokio::test]
async fn a_refusal_arrives_although_the_client_is_still_sending() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let stranger = proxy.with_key("tg-unknown");
    let long = vec![b' '; 16 << 20];
    let answer = stranger.post("/v1/chat/completions", long).answer().await;
    assert_eq!(answer.refusal(), (401, "invalid_api_key".to_owned()));
}
