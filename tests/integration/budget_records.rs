//! From the ledger alone: at which layer a call was stopped, by which rule of which version, and
//! what was left of each limit before and after.

use serde_json::{Value, json};

use crate::support::{Gate, Reply, Setup, TestProxy, Upstream, ledger, reply};

/// What an auditor works with: the text of the export and nothing else.
struct Export(Vec<Value>);

/// Of one limit: what was left before and after, and its size.
type Left = (u64, u64, u64);

impl Export {
    fn of(setup: &Setup) -> Self {
        let text = ledger::exported(setup);
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        Self(lines.collect())
    }

    fn record(&self, kind: &str, request: &str) -> &Value {
        let of = |record: &&Value| record["kind"] == kind && record["request_id"] == request;
        self.0.iter().find(of).unwrap()
    }

    /// Layer, rule, version.
    fn stopped(&self, request: &str) -> (String, String, String) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let of = |record: &&Value| record["request_id"] == request;
        for record in self.0.iter().filter(of) {
            if record["kind"] == "request_refused" {
                return (
                    text(&record["code"]),
                    text(&record["rule"]),
                    text(&record["policy"]),
                );
            }
            let results = record["results"].as_array().into_iter().flatten();
            if let Some(no) = results
                .into_iter()
                .find(|result| result["outcome"] == "blocked")
            {
                return (
                    text(&no["code"]),
                    text(&no["rule"]),
                    text(&record["policy"]),
                );
            }
        }
        panic!("nothing stopped {request}");
    }

    fn left(&self, kind: &str, request: &str, name: &str) -> Left {
        let limits = self.record(kind, request)["limits"].as_array().unwrap();
        let limit = limits.iter().find(|limit| limit["name"] == name).unwrap();
        let of = |name: &str| limit[name].as_u64().unwrap();
        (
            of("limit") - of("used") - of("reserved"),
            of("limit") - of("used_after") - of("reserved_after"),
            of("limit"),
        )
    }
}

fn id(answer: &crate::support::Answer) -> String {
    answer.header("x-request-id").unwrap().to_owned()
}

#[tokio::test]
async fn the_export_alone_tells_where_a_call_was_stopped_and_what_was_left_before_and_after() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1(
        "[limits]\nrequests_per_minute = 10\n[budget]\ndaily_tokens = 1000\ntotal_cost_usd = \"1.00\"\n\
         [tools]\nallow = [\"get_weather\"]",
    );
    let proxy = TestProxy::start(setup).await;
    let function = json!({"name": "get_weather", "parameters": {"type": "object"}});
    let offer = json!({"max_tokens": 100, "tools": [{"type": "function", "function": function}]});
    let call = json!({"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{"}});
    let mut body = reply::completion("", reply::usage(10, 5));
    body["choices"][0]["message"]["tool_calls"] = json!([call]);
    body["choices"][0]["finish_reason"] = json!("tool_calls");
    upstream.replies_once(Reply::json(200, &body));
    let blocked = id(&proxy.k1().chat_with("hi", offer).await);
    let small = json!({"max_tokens": 100});
    let second = id(&proxy.k1().chat_with("hi", small).await);
    let refused = proxy
        .k1()
        .chat_with("hi", json!({"max_tokens": 16, "n": 100}))
        .await;
    assert_eq!(refused.status, 402);
    proxy.settled(2).await;
    proxy.records("request_refused", 1).await;
    let export = Export::of(&proxy.end().await);

    let stopped = ("malformed_output", "malformed_output", "k1@1");
    assert_eq!(export.stopped(&blocked), owned(stopped));
    let stopped = ("insufficient_quota", "daily_tokens", "k1@1");
    assert_eq!(export.stopped(&id(&refused)), owned(stopped));

    // 15 tokens were used by each, at $1 and $4 per million: 30,000 billionths of a dollar.
    let start = export.record("request_started", &blocked);
    let (tokens, cost) = (&start["reserved_tokens"], &start["reserved_nano_usd"]);
    let (tokens, cost) = (tokens.as_u64().unwrap(), cost.as_u64().unwrap());
    let dollar = 1_000_000_000;
    for (kind, request, name, left) in [
        (
            "request_started",
            &blocked,
            "daily_tokens",
            (1000, 1000 - tokens, 1000),
        ),
        (
            "request_started",
            &blocked,
            "total_cost_usd",
            (dollar, dollar - cost, dollar),
        ),
        (
            "request_started",
            &blocked,
            "requests_per_minute",
            (10, 9, 10),
        ),
        (
            "request_settled",
            &blocked,
            "daily_tokens",
            (1000 - tokens, 985, 1000),
        ),
        (
            "request_settled",
            &blocked,
            "total_cost_usd",
            (dollar - cost, dollar - 30_000, dollar),
        ),
        (
            "request_settled",
            &blocked,
            "requests_per_minute",
            (9, 9, 10),
        ),
        (
            "request_settled",
            &second,
            "daily_tokens",
            (985 - tokens_of(&export, &second), 970, 1000),
        ),
        (
            "request_refused",
            &id(&refused),
            "daily_tokens",
            (970, 970, 1000),
        ),
    ] {
        assert_eq!(export.left(kind, request, name), left, "{kind} {name}");
    }
    let limits = &export.record("request_refused", &id(&refused))["limits"];
    assert!(limits[0]["needed"].as_u64().unwrap() > 1000, "{limits}");
    assert_eq!(limits[0]["account"], "key/k1/tokens/day");
}

fn owned((layer, rule, version): (&str, &str, &str)) -> (String, String, String) {
    (layer.to_owned(), rule.to_owned(), version.to_owned())
}

fn tokens_of(export: &Export, request: &str) -> u64 {
    let start = export.record("request_started", request);
    start["reserved_tokens"].as_u64().unwrap()
}

#[tokio::test]
async fn what_others_have_reserved_and_what_was_used_before_a_restart_is_told_too() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[budget]\ntotal_tokens = 1000");
    let proxy = TestProxy::start(setup).await;
    let gate = Gate::new();
    let done = reply::completion("done", reply::usage(10, 5));
    upstream.replies_once(Reply::json(200, &done).wait_before_head(&gate));
    upstream.replies(Reply::json(200, &done));
    let first = proxy.k1();
    let open = tokio::spawn(async move { first.chat_with("hi", json!({"max_tokens": 50})).await });
    upstream.hit(1).await;
    let second = id(&proxy.k1().chat_with("hi", json!({"max_tokens": 50})).await);
    gate.open();
    let first = id(&open.await.unwrap());
    proxy.settled(2).await;
    let proxy = proxy.restart().await;
    let third = id(&proxy.k1().chat_with("hi", json!({"max_tokens": 50})).await);
    proxy.settled(3).await;
    let export = Export::of(&proxy.end().await);
    let held = tokens_of(&export, &first);
    let left = |kind, request| export.left(kind, request, "total_tokens");
    assert_eq!(
        left("request_started", &second),
        (1000 - held, 1000 - 2 * held, 1000)
    );
    assert_eq!(
        left("request_settled", &second),
        (1000 - 2 * held, 985 - held, 1000)
    );
    assert_eq!(left("request_settled", &first), (985 - held, 970, 1000));
    assert_eq!(left("request_started", &third), (970, 970 - held, 1000));
}
