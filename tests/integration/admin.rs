//! The control plane as operators and their scripts meet it: who may ask for what, and whether
//! what they are told is what happened.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{
    Answer, Client, Gate, Reply, Setup, TestProxy, Upstream, eventually, reply, setup::replace,
};

const VIEWER: &str = "tgo-viewer-m3n4b5v6c7x8";
const APPROVER: &str = "tgo-approver-q1w2e3r4t5z6";
const OPERATOR: &str = "tgo-operator-a9s8d7f6g5h4";

fn operators() -> String {
    let mut tables = String::new();
    for (name, token) in [
        ("viewer", VIEWER),
        ("approver", APPROVER),
        ("operator", OPERATOR),
    ] {
        let digest = hex::encode(Sha256::digest(token));
        let _ = writeln!(
            tables,
            "[[operators]]\nname = \"the-{name}\"\nrole = \"{name}\"\nsha256 = \"{digest}\""
        );
    }
    tables
}

async fn proxy(upstream: &Upstream) -> TestProxy {
    TestProxy::start(Setup::to(upstream).tables(&operators())).await
}

fn with(proxy: &TestProxy, token: &str) -> Client {
    proxy.operator(token)
}

/// The code of an error in the one shape that they all have.
fn fault(answer: &Answer) -> String {
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let body = answer.json();
    let error = body["error"].as_object().unwrap();
    assert_eq!(error.keys().collect::<Vec<_>>(), ["code", "message"]);
    assert_eq!(body.as_object().unwrap().len(), 1);
    assert!(!error["message"].as_str().unwrap().is_empty());
    error["code"].as_str().unwrap().to_owned()
}

/// Method, path and role of every route, as the product describes itself.
async fn routes(proxy: &TestProxy) -> Vec<(String, String, Option<String>)> {
    let description = with(proxy, VIEWER).get("/admin/v1/openapi.json").await;
    assert_eq!(description.status, 200);
    let mut routes = Vec::new();
    for (path, methods) in description.json()["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let role = operation["x-role"].as_str().map(str::to_owned);
            let path = path.replace("{id}", "req_0");
            routes.push((method.to_uppercase(), path, role));
        }
    }
    routes
}

#[tokio::test]
async fn every_route_asks_for_its_role_and_its_method() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    let routes = routes(&proxy).await;
    assert!(routes.len() > 10);
    for (method, path, role) in &routes {
        let nobody = proxy.admin().request(method, path).answer().await;
        let wrong = with(&proxy, "tgo-guessed")
            .request(method, path)
            .answer()
            .await;
        let Some(role) = role else { continue };
        assert_eq!(
            (nobody.status, &*fault(&nobody)),
            (401, "token_missing"),
            "{path}"
        );
        assert_eq!(nobody.header("www-authenticate"), Some("Bearer"));
        assert!(matches!(wrong.status, 401 | 429), "{path}");
        for (held, token) in [
            ("viewer", VIEWER),
            ("approver", APPROVER),
            ("operator", OPERATOR),
        ] {
            let rank = |name: &str| {
                ["viewer", "approver", "operator"]
                    .iter()
                    .position(|r| *r == name)
            };
            let request = with(&proxy, token).request(method, path);
            // Events have no end, and every role may have them.
            if path == "/admin/v1/events" {
                assert_eq!(request.send().await.status, 200);
                continue;
            }
            let answer = request.answer().await;
            if rank(held) < rank(role) {
                assert_eq!(
                    (answer.status, &*fault(&answer)),
                    (403, "role_insufficient"),
                    "{path}"
                );
            } else {
                assert!(
                    !matches!(answer.status, 401 | 403 | 405),
                    "{method} {path} as {held}: {}",
                    answer.status
                );
            }
        }
    }
    for (_, path, _) in &routes {
        let answer = with(&proxy, OPERATOR).request("PATCH", path).answer().await;
        assert_eq!(
            (answer.status, &*fault(&answer)),
            (405, "method_not_allowed"),
            "{path}"
        );
        let allow = answer.header("allow").unwrap().to_owned();
        for (method, _, _) in routes.iter().filter(|(_, other, _)| other == path) {
            assert!(
                allow.contains(method.as_str()),
                "{path}: {allow} without {method}"
            );
        }
    }
    let answer = with(&proxy, OPERATOR).get("/admin/v1/nothing").await;
    assert_eq!((answer.status, &*fault(&answer)), (404, "not_found"));
    let client_key = proxy
        .k1()
        .at(proxy.admin_address())
        .get("/admin/v1/spend")
        .await;
    assert!(
        matches!(client_key.status, 401 | 429),
        "a client key opens nothing"
    );
}

#[tokio::test]
async fn without_operators_nothing_is_told_but_how_to_add_one() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for path in [
        "/admin/v1/activity",
        "/admin/v1/session",
        "/admin/v1/openapi.json",
    ] {
        let answer = with(&proxy, "tgo-anything").get(path).await;
        assert_eq!(
            (answer.status, &*fault(&answer)),
            (401, "no_operators"),
            "{path}"
        );
        assert!(answer.text().contains("tallygate keys new --operator"));
    }
    let page = proxy.admin().get("/").await;
    assert_eq!(page.status, 200);
    assert_eq!(proxy.admin().get("/healthz").await.status, 200);
}

#[tokio::test]
async fn the_page_may_load_nothing_from_elsewhere() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    for path in ["/", "/console/main.js", "/admin/v1/session", "/nothing"] {
        let answer = proxy.admin().get(path).await;
        let policy = answer.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
}

async fn sign_in(proxy: &TestProxy, token: &str) -> Answer {
    proxy
        .admin()
        .post("/admin/v1/session", json!({ "token": token }).to_string())
        .header("x-tallygate-console", "1")
        .answer()
        .await
}

fn cookie(answer: &Answer) -> String {
    let set = answer.header("set-cookie").unwrap();
    assert!(
        set.contains("HttpOnly") && set.contains("SameSite=Strict"),
        "{set}"
    );
    set.split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_browser_signs_in_with_a_token_and_keeps_a_cookie() {
    let upstream = Upstream::start().await;
    let mut proxy = proxy(&upstream).await;
    let answer = sign_in(&proxy, "tgo-wrong").await;
    assert_eq!((answer.status, &*fault(&answer)), (401, "token_invalid"));
    let answer = sign_in(&proxy, OPERATOR).await;
    assert_eq!(
        answer.json(),
        json!({"operator": "the-operator", "role": "operator"})
    );
    let cookie = cookie(&answer);
    assert!(!answer.header("set-cookie").unwrap().contains("Secure"));
    let get = |path: &str| proxy.admin().request("GET", path).header("cookie", &cookie);
    assert_eq!(get("/admin/v1/spend").answer().await.status, 200);

    // Another site's page can make the browser send the cookie at most, not our header.
    let reload = || {
        let request = proxy.admin().post("/admin/v1/reload", "");
        request.header("cookie", &cookie)
    };
    let plain = reload().answer().await;
    assert_eq!((plain.status, &*fault(&plain)), (403, "cross_site"));
    let foreign = reload()
        .header("x-tallygate-console", "1")
        .header("sec-fetch-site", "same-site")
        .answer()
        .await;
    assert_eq!(foreign.status, 403);
    let own = reload()
        .header("x-tallygate-console", "1")
        .header("sec-fetch-site", "same-origin")
        .answer()
        .await;
    assert_eq!(own.status, 200);

    // What the configuration takes away is away at once.
    let file = proxy.setup.file();
    let text = std::fs::read_to_string(&file).unwrap();
    let lesser = text.replace("role = \"operator\"", "role = \"viewer\"");
    replace(&file, &lesser);
    proxy.records("configuration_reloaded", 2).await;
    let answer = reload().header("x-tallygate-console", "1").answer().await;
    assert_eq!(
        (answer.status, &*fault(&answer)),
        (403, "role_insufficient")
    );
    assert_eq!(get("/admin/v1/spend").answer().await.status, 200);

    let out = proxy
        .admin()
        .request("DELETE", "/admin/v1/session")
        .header("cookie", &cookie)
        .header("x-tallygate-console", "1")
        .answer()
        .await;
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(get("/admin/v1/spend").answer().await.status, 401);

    let again = sign_in(&proxy, VIEWER).await;
    let cookie = self::cookie(&again);
    proxy = proxy.restart().await;
    let answer = proxy.admin().request("GET", "/admin/v1/spend");
    let answer = answer.header("cookie", &cookie).answer().await;
    assert_eq!(answer.status, 401, "sessions are in memory only");
}

#[tokio::test]
async fn a_session_behind_tls_is_secure_and_guessing_is_slowed_down() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    let answer = proxy
        .admin()
        .post("/admin/v1/session", json!({ "token": VIEWER }).to_string())
        .header("x-tallygate-console", "1")
        .header("x-forwarded-proto", "https")
        .answer()
        .await;
    assert!(answer.header("set-cookie").unwrap().ends_with("; Secure"));
    eventually("guessing to be slowed down", async || {
        let answer = sign_in(&proxy, "tgo-guess").await;
        answer.status == 429 && answer.header("retry-after").is_some()
    })
    .await;
    assert_eq!(
        sign_in(&proxy, VIEWER).await.status,
        200,
        "a good token is never slowed down"
    );
}

async fn seen(proxy: &TestProxy, path: &str) -> Value {
    let answer = with(proxy, VIEWER).get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

async fn kinds(proxy: &TestProxy, query: &str) -> Vec<String> {
    let page = seen(proxy, &format!("/admin/v1/activity?{query}")).await;
    let records = page["records"].as_array().unwrap();
    records
        .iter()
        .map(|record| record["kind"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn activity_is_found_by_what_it_is_about_newest_first() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
    let denied = proxy
        .k1()
        .chat_with("hi", json!({"model": "m-forbidden"}))
        .await;
    assert_eq!(denied.status, 403);
    assert_eq!(proxy.k2().chat("hi").await.status, 200);
    proxy.settled(2).await;
    proxy.records("request_refused", 1).await;

    assert_eq!(
        kinds(&proxy, "key=k1&kind=request_settled,request_refused").await,
        ["request_refused", "request_settled"]
    );
    assert_eq!(
        kinds(&proxy, "code=model_denied").await,
        ["request_refused"]
    );
    assert_eq!(
        kinds(&proxy, "tenant=globex").await,
        ["request_settled", "request_started"]
    );
    assert_eq!(
        kinds(&proxy, "model=m-small&key=k2&kind=request_settled")
            .await
            .len(),
        1
    );
    assert_eq!(kinds(&proxy, "key=nobody").await, [""; 0]);
    let id = denied.header("x-request-id").unwrap();
    assert_eq!(
        kinds(&proxy, &format!("request_id={id}")).await,
        ["request_refused"]
    );
    // The test's clock stands still at noon.
    assert_eq!(
        kinds(&proxy, "from=2026-11-30T12:00:00.001Z").await,
        [""; 0]
    );
    let all = kinds(&proxy, "from=2026-11-30T12:00:00Z&to=2026-11-30T12:00:01Z").await;
    // With the start of the process and its three policies.
    assert_eq!(all.len(), 9, "{all:?}");

    let mut paged = Vec::new();
    let mut before = String::new();
    loop {
        let page = seen(&proxy, &format!("/admin/v1/activity?limit=2{before}")).await;
        paged.extend(
            page["records"]
                .as_array()
                .unwrap()
                .iter()
                .map(|r| r["seq"].as_i64().unwrap()),
        );
        let Some(next) = page["next"].as_i64() else {
            break;
        };
        before = format!("&before={next}");
    }
    assert_eq!(paged, [9, 8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(
        seen(&proxy, "/admin/v1/activity?after=7").await["records"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let beyond = format!("after={}&before=0&from=2026-11-30T12:00:00Z", i64::MAX);
    assert_eq!(kinds(&proxy, &beyond).await, [""; 0]);
    for wrong in [
        "limit=0",
        "limit=201",
        "kind=nothing",
        "from=noon",
        "colour=red",
        "key=a&key=b",
    ] {
        let answer = with(&proxy, VIEWER)
            .get(&format!("/admin/v1/activity?{wrong}"))
            .await;
        assert_eq!(
            (answer.status, &*fault(&answer)),
            (400, "invalid_request"),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn a_request_is_shown_with_its_whole_path() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    let mut called = reply::completion("", reply::usage(10, 5));
    let function = json!({"name": "delete_everything", "arguments": "{}"});
    called["choices"][0]["message"]["tool_calls"] =
        json!([{"id": "call_1", "type": "function", "function": function}]);
    upstream.replies_once(Reply::json(200, &called));
    let answer = proxy.k1().chat("hi").await;
    let id = answer.header("x-request-id").unwrap().to_owned();
    for _ in 0..3 {
        proxy.k2().chat("between").await;
    }
    proxy.settled(4).await;
    let path = seen(&proxy, &format!("/admin/v1/requests/{id}")).await;
    let records = path["records"].as_array().unwrap();
    let kinds: Vec<_> = records
        .iter()
        .map(|record| record["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["request_started", "call_judged", "request_settled"]);
    assert_eq!(records[0]["policy"], "k1@1");
    assert_eq!(records[1]["blocked"], "unknown_tool");
    assert_eq!(records[2]["tool_calls"], 1);
    let near = seen(
        &proxy,
        &format!("/admin/v1/requests/{id}?near={}", records[2]["seq"]),
    )
    .await;
    assert_eq!(near, path);
    let nobody = with(&proxy, VIEWER)
        .get("/admin/v1/requests/req_nothing")
        .await;
    assert_eq!((nobody.status, &*fault(&nobody)), (404, "not_found"));
}

#[tokio::test]
async fn spend_is_told_as_on_the_command_line_and_over_time() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream)
        .k1("[budget]\ndaily_cost_usd = \"1.00\"\ntotal_requests = 2")
        .tables("[tenants.acme.budget]\ndaily_cost_usd = \"3.00\"")
        .tables(&operators());
    let proxy = TestProxy::start(setup).await;
    upstream.says("Hi.", reply::usage(10, 5));
    for status in [200, 200, 402] {
        assert_eq!(proxy.k1().chat("hi").await.status, status);
    }
    proxy.settled(2).await;
    proxy.records("request_refused", 1).await;
    eventually("slices to be given back", async || {
        proxy.clock.advance(50);
        let spend = seen(&proxy, "/admin/v1/spend").await;
        spend["keys"][0]["limits"][0]["reserved"] == "0.00"
    })
    .await;
    let spend = seen(&proxy, "/admin/v1/spend").await;
    let k1 = &spend["keys"][0];
    assert_eq!((&k1["key"], &k1["policy"]), (&json!("k1"), &json!("k1@1")));
    assert_eq!(k1["limits"][0]["used"], "0.00006");
    assert_eq!(k1["limits"][1]["left"], 0);
    assert_eq!(spend["tenants"][0]["tenant"], "acme");
    assert_eq!(spend["tenants"][0]["limits"][0]["used"], "0.00006");
    assert_eq!(spend["global"], json!([]));

    let history = seen(
        &proxy,
        "/admin/v1/spend/history?by=model&from=2026-11-30T00:00:00Z&to=2026-12-01T00:00:00Z",
    )
    .await;
    assert_eq!(history["bucket"], "hour");
    let noon = crate::support::proxy::NOON_MS;
    let point = json!({"at": noon, "cost_usd": "0.00006", "tokens": 30, "requests": 2});
    assert_eq!(
        history["series"],
        json!([{"name": "m-small", "others": 0, "points": [point]}])
    );
    let days = seen(
        &proxy,
        "/admin/v1/spend/history?by=key&from=2026-11-01T00:00:00Z&to=2026-12-01T00:00:00Z",
    )
    .await;
    assert_eq!(days["bucket"], "day");
    assert_eq!(days["series"][0]["name"], "k1");
    assert_eq!(days["series"][0]["points"][0]["at"], noon - 12 * 3_600_000);

    let refusals = seen(&proxy, "/admin/v1/spend/refusals?from=2026-11-30T00:00:00Z").await;
    let row = json!({"key": "k1", "code": "insufficient_quota", "rule": "total_requests", "count": 1, "last_hour": noon});
    assert_eq!(refusals["refusals"], json!([row]));
}

#[tokio::test]
async fn policies_are_shown_as_written_and_a_refused_reload_with_its_message() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    let policies = seen(&proxy, "/admin/v1/policies").await;
    assert_eq!(policies["configuration"]["rejected"], Value::Null);
    let k1 = &policies["policies"][0];
    assert_eq!(
        (&k1["id"], &k1["version"], &k1["status"]),
        (&json!("k1"), &json!(1), &json!("published"))
    );
    assert_eq!(k1["keys"], json!(["k1"]));
    let text = std::fs::read_to_string(proxy.setup.dir().join("policies/k1.toml")).unwrap();
    assert_eq!(k1["text"], text);
    assert_eq!(k1["sha256"].as_str().unwrap().len(), 64);

    replace(&proxy.setup.file(), "policies_dir = [");
    let reloaded = with(&proxy, OPERATOR)
        .post("/admin/v1/reload", "")
        .answer()
        .await;
    let problems = reloaded.json()["rejected"]["problems"].clone();
    assert!(
        problems[0].as_str().unwrap().contains("tallygate.toml:1:"),
        "{problems}"
    );
    let policies = seen(&proxy, "/admin/v1/policies").await;
    assert_eq!(policies["configuration"]["rejected"]["problems"], problems);
    assert_eq!(
        policies["policies"][0]["keys"],
        json!(["k1"]),
        "the last good one stays in force"
    );
}

#[tokio::test]
async fn what_is_counted_is_told_to_prometheus_with_a_token() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    upstream.says("Hi.", reply::usage(10, 5));
    for _ in 0..2 {
        assert_eq!(proxy.k1().chat("hi").await.status, 200);
    }
    let mut stream = proxy.k1().stream("hi").await;
    stream.until("[DONE]").await;
    drop(stream);
    let denied = proxy
        .k1()
        .chat_with("hi", json!({"model": "m-forbidden"}))
        .await;
    assert_eq!(denied.status, 403);
    proxy.settled(3).await;
    assert_eq!(proxy.admin().get("/metrics").await.status, 401);
    let answer = with(&proxy, VIEWER).get("/metrics").await;
    let kind = answer.header("content-type").unwrap();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let text = answer.text();
    for line in [
        "tallygate_requests_total{key=\"k1\",model=\"m-small\",outcome=\"completed\"} 3",
        "tallygate_tokens_total{key=\"k1\",model=\"m-small\",type=\"input\"} 30",
        "tallygate_tokens_total{key=\"k1\",model=\"m-small\",type=\"output\"} 15",
        "tallygate_spend_usd_total{key=\"k1\",model=\"m-small\"} 0.00009",
        "tallygate_refusals_total{key=\"k1\",code=\"model_denied\"} 1",
        "tallygate_reservations_total 3",
        "tallygate_requests_open 0",
        "tallygate_streams_open 0",
        "tallygate_added_latency_seconds_count 3",
        "tallygate_upstream_latency_seconds_count{provider=\"upstream\"} 3",
        "tallygate_time_to_first_token_seconds_count{provider=\"upstream\"} 1",
        "tallygate_approvals_waiting 0",
        "tallygate_store_up 1",
        "tallygate_configuration_reload_success 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    replace(&proxy.setup.file(), "policies_dir = [");
    with(&proxy, OPERATOR)
        .post("/admin/v1/reload", "")
        .answer()
        .await;
    let text = with(&proxy, VIEWER).get("/metrics").await;
    assert!(
        text.text()
            .contains("tallygate_configuration_reload_success 0\n")
    );
}

#[tokio::test]
async fn a_failed_attempt_is_counted_by_provider() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.replies(Reply::error(503, "busy", "Come back later."));
    let address = second.address();
    let setup = Setup::to(&first).tables(&operators()).tables(&format!(
        "[providers.second]\ndialect = \"openai\"\nbase_url = \"http://{address}/v1\"\nmodels = []\n\
         [models.fast]\nroutes = [\"upstream/m-small\", \"second/m-large\"]\n"
    ));
    let proxy = TestProxy::start(setup).await;
    let answer = proxy.k1().chat_with("hi", json!({"model": "fast"})).await;
    assert_eq!(answer.status, 200);
    let text = with(&proxy, VIEWER).get("/metrics").await;
    let line = "tallygate_failed_attempts_total{provider=\"upstream\",failure=\"error_status\"} 1";
    assert!(text.text().contains(line), "{}", text.text());
}

#[tokio::test]
async fn an_open_stream_is_counted_until_it_ends() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let proxy = proxy(&upstream).await;
    let word = reply::chunk(json!({"content": "a "}), None);
    let end = reply::chunk(json!({}), Some("stop"));
    let reply = Reply::stream().data(&word).wait(&gate).data(&end).done();
    upstream.replies_once(reply);
    let mut stream = proxy.k1().stream("hi").await;
    stream.until("a ").await;
    let open = async |count: &str| {
        let text = with(&proxy, VIEWER).get("/metrics").await;
        let wanted = [
            format!("tallygate_streams_open {count}"),
            format!("tallygate_requests_open {count}"),
        ];
        wanted
            .iter()
            .all(|line| text.text().lines().any(|found| found == line))
    };
    assert!(open("1").await);
    gate.open();
    stream.until("[DONE]").await;
    eventually("no stream to be open", async || open("0").await).await;
}

#[tokio::test]
async fn the_ledger_is_verified_and_exported_from_the_console() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    for _ in 0..3 {
        assert_eq!(proxy.k1().chat("hi").await.status, 200);
    }
    proxy.settled(3).await;
    let ledger = seen(&proxy, "/admin/v1/ledger").await;
    // The start, three policies, three requests of two records each.
    assert_eq!(ledger["records"], 10);
    let lines = |answer: &Answer| -> Vec<Value> {
        assert_eq!(answer.header("content-type"), Some("application/jsonl"));
        answer
            .text()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let verified = lines(&with(&proxy, VIEWER).get("/admin/v1/ledger/verify").await);
    let last = verified.last().unwrap();
    assert_eq!(
        last,
        &json!({"checked": 10, "holds": true, "head": ledger["head"]})
    );

    let exported = lines(&with(&proxy, OPERATOR).get("/admin/v1/ledger/export").await);
    assert_eq!(exported.len(), 10);
    assert_eq!(exported[9]["digest"], ledger["head"]);
    assert_eq!(exported[9]["prev"], exported[8]["digest"]);
    let rest = lines(
        &with(&proxy, OPERATOR)
            .get("/admin/v1/ledger/export?after=8")
            .await,
    );
    assert_eq!(rest, exported[8..]);

    let kinds = async |query: &str| -> Vec<Value> {
        let path = format!("/admin/v1/ledger/export?{query}");
        let found = lines(&with(&proxy, OPERATOR).get(&path).await);
        found.iter().map(|record| record["kind"].clone()).collect()
    };
    assert_eq!(
        kinds("kind=started,request_settled&key=k1").await,
        ["request_settled"; 3]
    );
    assert!(kinds("key=k2").await.is_empty());
    assert_eq!(kinds("to=1990-01-01T00:00:00Z").await, [""; 0]);
    assert_eq!(kinds("from=1990-01-01T00:00:00Z").await.len(), 10);
    let csv = with(&proxy, OPERATOR)
        .get("/admin/v1/ledger/export?format=csv&kind=request_settled")
        .await;
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    let rows: Vec<&str> = csv.text().split("\r\n").collect();
    assert_eq!(rows.len(), 5, "a head, three rows, an end: {rows:?}");
    assert!(rows[0].starts_with("seq,at,kind,request_id,key"));
    assert!(rows[1].contains(",request_settled,") && rows[1].contains(",k1,acme,"));

    crate::support::ledger::forge(&proxy.setup, 4).await;
    let verified = lines(&with(&proxy, VIEWER).get("/admin/v1/ledger/verify").await);
    let last = verified.last().unwrap();
    assert_eq!(
        (&last["holds"], &last["broken_at"]),
        (&json!(false), &json!(4))
    );
}

/// A call of k1 that waits; its id.
async fn held(proxy: &TestProxy, upstream: &Upstream) -> String {
    let mut body = reply::completion("", reply::usage(1, 1));
    body["choices"][0]["message"]["tool_calls"] = json!([{"id": "c1", "type": "function",
        "function": {"name": "pay", "arguments": "{\"to\":\"planted-account\"}"}}]);
    upstream.replies(Reply::json(200, &body));
    let offer = json!({"tools": [{"type": "function", "function": {"name": "pay"}}]});
    let answer = proxy.k1().chat_with("go", offer).await;
    let words = answer.text().to_owned();
    let id = words.split("apr_").nth(1).unwrap();
    let id: String = id.chars().take_while(char::is_ascii_hexdigit).collect();
    format!("apr_{id}")
}

async fn holding(upstream: &Upstream) -> TestProxy {
    let tables = format!("[approvals]\nwait = \"0s\"\n{}", operators());
    let policy = "[tools]\nrequire_approval = [\"pay\"]";
    TestProxy::start(Setup::to(upstream).tables(&tables).k1(policy)).await
}

async fn decides(proxy: &TestProxy, token: &str, id: &str, body: &Value) -> Answer {
    let path = format!("/admin/v1/approvals/{id}");
    with(proxy, token)
        .post(&path, body.to_string())
        .answer()
        .await
}

#[tokio::test]
async fn approvers_see_what_a_call_would_do_and_decide_once() {
    let upstream = Upstream::start().await;
    let proxy = holding(&upstream).await;
    let id = held(&proxy, &upstream).await;
    let path = format!("/admin/v1/approvals/{id}");

    let listed = with(&proxy, VIEWER).get("/admin/v1/approvals").await;
    let listed = listed.json();
    assert_eq!(
        (
            &listed["approvals"][0]["id"],
            &listed["approvals"][0]["tool"]
        ),
        (&json!(id), &json!("pay"))
    );
    assert!(!listed.to_string().contains("planted-account"));
    let refused = with(&proxy, VIEWER).get(&path).await;
    assert_eq!(
        (refused.status, fault(&refused)),
        (403, "role_insufficient".to_owned())
    );
    let shown = with(&proxy, APPROVER).get(&path).await;
    assert!(
        shown.json()["arguments"]
            .as_str()
            .unwrap()
            .contains("planted-account")
    );

    for wrong in [
        json!({}),
        json!({"decision": "maybe"}),
        json!({"decision": "approve", "reason": 7}),
        json!([1]),
        json!({"decision": "approve", "more": 1}),
        json!({"decision": "reject", "reason": "x".repeat(501)}),
    ] {
        let answer = decides(&proxy, APPROVER, &id, &wrong).await;
        assert_eq!(
            (answer.status, fault(&answer)),
            (400, "invalid_request".to_owned()),
            "{wrong}"
        );
    }
    let approve = json!({"decision": "approve", "reason": "checked"});
    let answer = decides(&proxy, VIEWER, &id, &approve).await;
    assert_eq!(answer.status, 403);

    // Two at once: one wins, the other is told.
    let reject = json!({"decision": "reject"});
    let (one, other) = tokio::join!(
        decides(&proxy, APPROVER, &id, &approve),
        decides(&proxy, OPERATOR, &id, &reject)
    );
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
    let late = if one.status == 409 { one } else { other };
    assert_eq!(fault(&late), "conflict");
    assert!(
        late.text().contains("nothing was changed"),
        "{}",
        late.text()
    );
    let decided = with(&proxy, APPROVER).get(&path).await.json();
    assert_eq!(decided["arguments"], Value::Null);
    assert!(decided["decided_by"].as_str().unwrap().starts_with("the-"));
    let unknown = decides(&proxy, APPROVER, "apr_0", &approve).await;
    assert_eq!(
        (unknown.status, fault(&unknown)),
        (404, "not_found".to_owned())
    );
}

#[tokio::test]
async fn a_call_approved_in_the_console_is_delivered() {
    let upstream = Upstream::start().await;
    let proxy = holding(&upstream).await;
    let id = held(&proxy, &upstream).await;
    let approve = json!({"decision": "approve"});
    assert_eq!(decides(&proxy, OPERATOR, &id, &approve).await.status, 200);
    let offer = json!({"tools": [{"type": "function", "function": {"name": "pay"}}]});
    let answer = proxy.k1().chat_with("go", offer).await;
    assert!(
        answer.text().contains("planted-account"),
        "{}",
        answer.text()
    );
    assert_eq!(upstream.hits(), 1);
    // A client's own key decides nothing.
    let answer = with(&proxy, crate::support::setup::K1)
        .post(&format!("/admin/v1/approvals/{id}"), approve.to_string())
        .answer()
        .await;
    assert_eq!(answer.status, 401);
}

#[tokio::test]
async fn whatever_ends_a_request_gives_back_all_that_it_held() {
    let upstream = Upstream::start().await;
    let k1 = "[limits]\nparallel_requests = 12\n[budget]\ndaily_cost_usd = \"5.00\"\n";
    let setup = Setup::to(&upstream).k1(k1).tables(&operators());
    let proxy = TestProxy::start(setup).await;
    let send = async || proxy.k1().chat_request("hi", json!({})).send_only().await;

    upstream.replies(Reply::silence());
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(send().await);
    }
    upstream.hit(4).await;
    let word = reply::chunk(json!({"content": "a "}), None);
    upstream.replies(Reply::stream().data(&word).hang());
    let mut streaming = Vec::new();
    for _ in 0..4 {
        let mut stream = proxy.k1().stream("hi").await;
        stream.until("a ").await;
        streaming.push(stream);
    }
    upstream.says("Hi.", reply::usage(10, 5));
    for _ in 0..4 {
        assert_eq!(proxy.k1().chat("hi").await.status, 200);
    }
    drop((waiting, streaming));

    let viewer = with(&proxy, VIEWER);
    eventually("nothing to be open", async || {
        let text = viewer.get("/metrics").await.text().to_owned();
        ["requests", "streams"]
            .map(|name| format!("tallygate_{name}_open 0\n"))
            .iter()
            .all(|line| text.contains(line))
    })
    .await;
    eventually("nothing to be reserved", async || {
        proxy.clock.advance(50);
        let spend = seen(&proxy, "/admin/v1/spend").await;
        spend["keys"][0]["limits"][0]["reserved"] == "0.00"
    })
    .await;
    let gate = Gate::new();
    upstream.replies(Reply::silence().wait_before_head(&gate));
    let mut all = Vec::new();
    for _ in 0..12 {
        all.push(send().await);
    }
    upstream.hit(24).await;
    assert_eq!(proxy.k1().chat("hi").await.status, 429, "the thirteenth");
}

#[tokio::test]
async fn runs_are_told_with_their_chains_and_side_by_side() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    for id in ["r1", "r1", "r2"] {
        let request = proxy.k1().chat_request("hi", json!({}));
        let named = request.header("x-run-id", id).header("x-run-tag", "trial");
        assert_eq!(named.answer().await.status, 200);
    }
    let well = json!({"outcome": "success"}).to_string();
    let path = "/v1/tallygate/runs/r1/outcome";
    assert_eq!(proxy.k1().post(path, well).answer().await.status, 200);
    proxy.records("run_reported", 1).await;
    proxy.settled(3).await;
    let all = seen(&proxy, "/admin/v1/runs?tag=trial").await;
    let runs = all["runs"].as_array().unwrap();
    let r1 = runs.iter().find(|run| run["run"] == "r1").unwrap();
    assert_eq!(
        (runs.len(), &r1["steps"], &r1["outcome"]),
        (2, &json!(2), &json!("success"))
    );
    let one = seen(&proxy, "/admin/v1/runs/r1?key=k1").await;
    let kinds: Vec<&str> = one["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| record["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds
            .iter()
            .filter(|kind| **kind == "request_settled")
            .count(),
        2
    );
    assert!(kinds.contains(&"run_reported"), "{kinds:?}");
    let groups = seen(&proxy, "/admin/v1/comparison?by=model").await;
    let group = &groups["groups"][0];
    assert_eq!(
        (&group["group"], &group["runs"]),
        (&json!("m-small"), &json!(2))
    );
    assert_eq!(
        (&group["reported"], &group["success_rate"]),
        (&json!(1), &json!(1.0))
    );
    let unknown = with(&proxy, VIEWER).get("/admin/v1/runs/nobody").await;
    assert_eq!(unknown.status, 404);
    for path in ["/admin/v1/runs?tags=a", "/admin/v1/comparison?by=colour"] {
        assert_eq!(with(&proxy, VIEWER).get(path).await.status, 400, "{path}");
    }
}

#[tokio::test]
async fn a_foreign_name_that_leads_here_gets_no_answer() {
    let upstream = Upstream::start().await;
    let members = "console_url = \"https://gate.example.com\"\nadmin_hosts = [\"scraped\"]";
    let proxy = TestProxy::start(Setup::to(&upstream).server(members)).await;
    let port = proxy.admin_address().port();
    let asked = async |hosts: &str| {
        let request = format!("GET /healthz HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
        proxy.admin().raw(request.as_bytes()).await
    };
    for known in [
        "127.0.0.1",
        "[::1]",
        "localhost",
        "a.LOCALHOST",
        "Gate.example.com",
        "scraped",
    ] {
        for host in [known.to_owned(), format!("{known}:{port}")] {
            let answer = asked(&format!("host: {host}\r\n")).await;
            assert_eq!(answer.status, 200, "{host}");
        }
    }
    for foreign in [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "x@localhost:y",
        "",
    ] {
        let answer = asked(&format!("host: {foreign}\r\n")).await;
        assert!(
            [400, 421].contains(&answer.status),
            "{foreign}: {}",
            answer.status
        );
    }
    let answer = asked("host: evil.example\r\n").await;
    assert_eq!(fault(&answer), "host_not_allowed");
}
