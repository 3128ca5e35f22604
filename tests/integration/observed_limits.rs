//! Limits that only count: traffic passes unchanged, and the ledger has what they would have said.

use serde_json::{Value, json};

use crate::support::{Gate, Process, Reply, Setup, TestProxy, Upstream, ledger, reply};

/// (rule, code) of each limit that a request passed.
fn rules(record: &Value) -> Vec<(&str, &str)> {
    let passed = record["would_refuse"].as_array().map(Vec::as_slice);
    let passed = passed.unwrap_or_default().iter();
    passed
        .map(|limit| (text(limit, "rule"), text(limit, "code")))
        .collect()
}

fn text<'a>(of: &'a Value, member: &str) -> &'a str {
    of[member].as_str().unwrap()
}

#[tokio::test]
async fn a_budget_that_only_observes_lets_pass_and_tells_what_it_would_have_refused() {
    let upstream = Upstream::start().await;
    upstream.says("Hi.", reply::usage(50, 50));
    let tables = "[limits]\nrequests_per_minute = 4\n[budget]\nmode = \"observe\"\n\
                  daily_tokens = 200\ntotal_requests = 3";
    let proxy = TestProxy::start(Setup::to(&upstream).k1(tables)).await;
    for _ in 0..4 {
        let answer = proxy.k1().chat("hi").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("x-tallygate-output-cap"), None);
        let sent = upstream.last_request().json();
        assert_eq!(sent.get("max_completion_tokens"), None, "{sent}");
    }
    let started = proxy.records("request_started", 4).await;
    let expected: [&[(&str, &str)]; 4] = [
        &[],
        &[],
        &[("daily_tokens", "insufficient_quota")],
        &[
            ("daily_tokens", "insufficient_quota"),
            ("total_requests", "insufficient_quota"),
        ],
    ];
    for (record, expected) in started.iter().zip(expected) {
        assert_eq!(rules(record), expected, "{record}");
    }
    let figures = &started[3]["would_refuse"][0];
    assert_eq!(
        (&figures["limit"], &figures["used"], &figures["unit"]),
        (&json!(200), &json!(300), &json!("tokens"))
    );
    assert_eq!(figures["subject"], "key \"k1\"");
    // The rule beside it stays in force.
    assert_eq!(
        proxy.k1().chat("hi").await.refusal(),
        (429, "rate_limit_exceeded".to_owned())
    );
}

#[tokio::test]
async fn limits_by_the_minute_that_only_observe_slow_nobody_down() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.replies(
        Reply::json(200, &reply::completion("hi", reply::usage(1, 1))).wait_before_head(&gate),
    );
    let tables = "[limits]\nmode = \"observe\"\nrequests_per_minute = 2\nburst = 1\n\
                  parallel_requests = 1";
    let proxy = TestProxy::start(Setup::to(&upstream).k1(tables)).await;
    let (first, second) = (proxy.k1(), proxy.k1());
    let (one, two) = (
        tokio::spawn(async move { first.chat("hi").await }),
        tokio::spawn(async move { second.chat("hi").await }),
    );
    upstream.hit(2).await;
    gate.open();
    for answer in [
        one.await.unwrap(),
        two.await.unwrap(),
        proxy.k1().chat("hi").await,
    ] {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("x-ratelimit-limit-requests"), None);
    }
    let started = proxy.records("request_started", 3).await;
    let told = |rule| (rule, "rate_limit_exceeded");
    let mut side_by_side = [rules(&started[0]), rules(&started[1])].concat();
    side_by_side.sort_unstable();
    assert_eq!(side_by_side, [told("burst"), told("parallel_requests")]);
    assert_eq!(
        rules(&started[2]),
        [told("burst"), told("requests_per_minute")]
    );
    // A minute later the limit counts nothing any more.
    proxy.clock.advance(60_000);
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
    let later = &proxy.records("request_started", 4).await[3];
    assert!(
        !rules(later).contains(&told("requests_per_minute")),
        "{later}"
    );
}

#[tokio::test]
async fn a_model_without_a_price_passes_a_budget_that_only_observes() {
    let upstream = Upstream::start().await;
    let tables = "[budget]\nmode = \"observe\"\ndaily_cost_usd = \"1.00\"";
    let proxy = TestProxy::start(Setup::to(&upstream).k1(tables)).await;
    let asked = json!({"model": "m-new", "messages": [{"role": "user", "content": "hi"}]});
    let answer = proxy.k1().post("/v1/chat/completions", asked.to_string());
    let answer = answer.answer().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let started = proxy.records("request_started", 1).await;
    assert_eq!(started[0]["warnings"], json!(["price_unknown"]));
}

#[tokio::test]
async fn what_was_only_counted_is_known_after_a_crash_and_counts_once_the_rule_is_in_force() {
    let upstream = Upstream::start().await;
    upstream.says("Hi.", reply::usage(50, 50));
    let observed = "[budget]\nmode = \"observe\"\ntotal_tokens = 150";
    let (mut setup, mut process) = Process::start(Setup::to(&upstream).k1(observed)).await;
    for _ in 0..2 {
        assert_eq!(process.client().chat("hi").await.status, 200);
    }
    let database = ledger::database(&setup);
    ledger::records(&database, "request_settled", 2).await;
    process.kill().await;
    process = process.start_again(&setup).await;
    assert_eq!(process.client().chat("hi").await.status, 200);
    let started = ledger::records(&database, "request_started", 3).await;
    assert_eq!(
        rules(&started[2]),
        [("total_tokens", "insufficient_quota")],
        "{}",
        started[2]
    );
    process.kill().await;
    setup.set_k1("[budget]\ntotal_tokens = 150");
    setup.set_k1_version(2);
    setup.write();
    let process = process.start_again(&setup).await;
    assert_eq!(
        process.client().chat("hi").await.refusal(),
        (402, "insufficient_quota".to_owned())
    );
}
