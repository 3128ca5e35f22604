//! A budget is a ceiling, and nobody is locked out below it.

use serde_json::{Value, json};
use tallygate::clock::Clock;
use tokio::task::JoinSet;

use crate::support::{Gate, Reply, Setup, TestProxy, Upstream, reply, within};

/// Says as much as the request allows and reports exactly that.
fn uses_the_whole_cap(upstream: &Upstream, gate: &Gate) {
    let gate = gate.clone();
    upstream.replies_with(move |request| {
        let body = request.json();
        let caps = ["max_completion_tokens", "max_tokens"].map(|member| body[member].as_u64());
        let cap = caps
            .into_iter()
            .flatten()
            .max()
            .expect("an output cap was sent");
        let answer = reply::completion("long", reply::usage(20, cap));
        Reply::json(200, &answer).wait_before_head(&gate)
    });
}

#[tokio::test]
async fn a_burst_cannot_pass_the_limit() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    uses_the_whole_cap(&upstream, &gate);
    let setup = Setup::to(&upstream).k1("[budget]\ndaily_cost_usd = \"0.010\"");
    let proxy = TestProxy::start(setup).await;
    let mut burst = JoinSet::new();
    for _ in 0..20 {
        let client = proxy.k1();
        burst.spawn(async move { client.chat_with("hi", json!({"max_tokens": 1000})).await });
    }
    // Two fit whole, a third with what is left as its cap; the others are refused at once.
    for _ in 0..17 {
        let refused = within("a refusal", burst.join_next())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(refused.refusal(), (402, "insufficient_quota".to_owned()));
    }
    gate.open();
    let mut served = 0;
    while let Some(answer) = within("the rest", burst.join_next()).await {
        served += usize::from(answer.unwrap().status == 200);
    }
    assert_eq!(upstream.hits(), served);
    assert!((2..=3).contains(&served), "{served} served");
    let costs = proxy.settled(served).await;
    let spent: u64 = costs
        .iter()
        .map(|record| record["cost_nano_usd"].as_u64().unwrap())
        .sum();
    assert!(
        spent <= 10_000_000,
        "{spent} nano-dollars spent of 10000000"
    );
}

#[tokio::test]
async fn a_large_cap_locks_nobody_out_once_the_real_cost_is_known() {
    let upstream = Upstream::start().await;
    upstream.says("Hi.", reply::usage(20, 50));
    let setup = Setup::to(&upstream).k1("[budget]\ndaily_cost_usd = \"1.00\"");
    let proxy = TestProxy::start(setup).await;
    for _ in 0..5 {
        let answer = proxy
            .k1()
            .chat_with("hi", json!({"max_tokens": 60_000}))
            .await;
        assert_eq!(answer.status, 200);
        assert_eq!(upstream.last_request().json()["max_tokens"], 60_000);
    }
    assert_eq!(
        proxy.k1().chat("hi").await.status,
        200,
        "no cap is no mistake"
    );
    let records = proxy.settled(6).await;
    assert!(
        records
            .iter()
            .all(|record| record["cost_nano_usd"] == 20 * 1_000 + 50 * 4_000)
    );
}

#[tokio::test]
async fn a_token_limit_counts_tokens() {
    let upstream = Upstream::start().await;
    upstream.says("Hi.", reply::usage(50, 100));
    let setup = Setup::to(&upstream).k1("[budget]\ndaily_tokens = 300");
    let proxy = TestProxy::start(setup).await;
    let ask = async || proxy.k1().chat_with("hi", json!({"max_tokens": 100})).await;
    assert_eq!(ask().await.status, 200);
    assert_eq!(ask().await.status, 200);
    let refused = ask().await;
    assert_eq!(refused.refusal(), (402, "insufficient_quota".to_owned()));
    assert_eq!(refused.json()["guard"]["limit"]["used"], 300);
    assert_eq!(upstream.hits(), 2);
}

#[tokio::test]
async fn a_lowered_cap_is_told_and_sent_upstream() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[budget]\ndaily_tokens = 1000");
    let proxy = TestProxy::start(setup).await;
    let answer = proxy
        .k1()
        .chat_with("hi", json!({"max_tokens": 5_000}))
        .await;
    let sent = upstream.last_request().json()["max_tokens"]
        .as_u64()
        .unwrap();
    assert!((500..1000).contains(&sent), "{sent}");
    assert_eq!(
        answer.header("x-tallygate-output-cap"),
        Some(sent.to_string().as_str())
    );
}

#[tokio::test]
async fn what_a_provider_used_beyond_the_cap_is_booked_and_the_next_is_refused() {
    let upstream = Upstream::start().await;
    upstream.says(&"word ".repeat(900), reply::usage(10, 890));
    let setup =
        Setup::to(&upstream).k1("[budget]\ndaily_tokens = 500\ndefault_output_tokens = 400");
    let proxy = TestProxy::start(setup).await;
    let answer = proxy.k1().stream("hi").await.answer().await;
    assert_eq!(
        (answer.finish_reason().as_deref(), answer.is_done()),
        (Some("stop"), true)
    );
    let refused = proxy.k1().stream("hi").await.answer().await;
    assert_eq!(refused.status, 402);
    assert_eq!(refused.json()["guard"]["limit"]["used"], 900);
}

#[tokio::test]
async fn a_refusal_of_a_budget_names_it_and_is_not_retried() {
    for (limit, name, size) in [
        ("daily_tokens = 100", "daily_tokens", "100"),
        ("daily_cost_usd = \"0.00013\"", "daily_cost_usd", "0.00013"),
        ("total_requests = 1", "total_requests", "1"),
    ] {
        let upstream = Upstream::start().await;
        let rules = format!("[budget]\n{limit}\nmin_output_tokens = 1");
        let proxy = TestProxy::start(Setup::to(&upstream).k1(&rules)).await;
        // What it really uses is 90 + 10 tokens, 0.00013 USD: exactly the limit.
        upstream.says("Hi.", reply::usage(90, 10));
        let first = proxy.k1().chat_with("", json!({"max_tokens": 5})).await;
        assert_eq!(first.status, 200, "{limit}: {}", first.text());
        let refused = proxy.k1().chat("hi").await;
        assert_eq!(refused.status, 402);
        assert_eq!(refused.header("x-should-retry"), Some("false"));
        let error = refused.error();
        assert_eq!(
            (error.kind.as_str(), error.code.as_deref()),
            ("insufficient_quota", Some("insufficient_quota"))
        );
        let size = if name.contains("cost") {
            format!("${size}")
        } else {
            size.to_owned()
        };
        for wanted in [name, &format!("limit {size}"), &format!("used {size}")] {
            assert!(
                error.message.contains(wanted),
                "{wanted}: {}",
                error.message
            );
        }
        assert!(
            !error.message.to_lowercase().contains("rate limit"),
            "{}",
            error.message
        );
        assert!(!refused.text().contains("k2") && !refused.text().contains("globex"));
        if name.starts_with("daily") {
            assert!(
                error.message.contains("2026-12-01T00:00:00"),
                "{}",
                error.message
            );
        }
    }
}

#[tokio::test]
async fn refused_and_malformed_requests_cost_nothing() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[budget]\ndaily_tokens = 1000\ntotal_requests = 1");
    let proxy = TestProxy::start(setup).await;
    for _ in 0..10 {
        let broken = proxy
            .k1()
            .post("/v1/chat/completions", "{\"model\":")
            .answer()
            .await;
        let forbidden = proxy
            .k1()
            .chat_with("hi", json!({"model": "m-forbidden"}))
            .await;
        let empty = proxy.k1().chat_with("hi", json!({"messages": null})).await;
        assert_eq!(
            [broken.status, forbidden.status, empty.status],
            [400, 403, 400]
        );
    }
    let answer = proxy.k1().chat_with("hi", json!({"max_tokens": 500})).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.header("x-tallygate-output-cap"),
        None,
        "nothing was taken before"
    );
    assert_eq!(upstream.hits(), 1);
}

#[tokio::test]
async fn an_error_of_the_provider_costs_nothing() {
    let upstream = Upstream::start().await;
    upstream.replies(Reply::error(500, "server_error", "No."));
    let setup = Setup::to(&upstream).k1("[budget]\ndaily_tokens = 1000");
    let proxy = TestProxy::start(setup).await;
    for count in 1..=5 {
        assert_eq!(
            proxy
                .k1()
                .chat_with("hi", json!({"max_tokens": 500}))
                .await
                .status,
            500
        );
        let record = proxy.last_settled(count).await;
        assert_eq!(
            (&record["cost_nano_usd"], &record["outcome"]),
            (&json!(0), &json!("upstream_error"))
        );
    }
    assert_eq!(
        upstream.last_request().json()["max_tokens"],
        500,
        "nothing was taken before"
    );
}

#[tokio::test]
async fn a_model_without_a_price_is_refused_under_a_cost_budget_only() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[budget]\ndaily_cost_usd = \"1.00\"");
    let proxy = TestProxy::start(setup).await;
    let new = json!({"model": "m-new"});
    let refused = proxy.k1().chat_with("hi", new.clone()).await;
    assert_eq!(refused.refusal(), (403, "price_unknown".to_owned()));
    assert!(refused.error().message.contains("m-new"));
    assert_eq!(upstream.hits(), 0);
    assert_eq!(proxy.k3().chat_with("hi", new).await.status, 200);
}

#[tokio::test]
async fn a_price_of_zero_counts_when_it_is_written() {
    let upstream = Upstream::start().await;
    let tables = "[models.m-new]\nprice = { input = \"0\", output = \"0\" }";
    let setup = Setup::to(&upstream)
        .k1("[budget]\ndaily_cost_usd = \"0.01\"")
        .tables(tables);
    let proxy = TestProxy::start(setup).await;
    assert_eq!(
        proxy
            .k1()
            .chat_with("hi", json!({"model": "m-new"}))
            .await
            .status,
        200
    );
    assert_eq!(proxy.last_settled(1).await["cost_nano_usd"], 0);
}

#[tokio::test]
async fn a_key_without_a_budget_is_never_refused_for_one_but_its_spend_is_recorded() {
    let upstream = Upstream::start().await;
    upstream.says("Hi.", reply::usage(1_000_000, 1_000_000));
    let proxy = TestProxy::to(&upstream).await;
    for _ in 0..3 {
        let answer = proxy
            .k3()
            .chat_with("hi", json!({"model": "m-large"}))
            .await;
        assert_eq!(answer.status, 200);
    }
    let spent: Vec<Value> = proxy
        .settled(3)
        .await
        .iter()
        .map(|record| record["cost_nano_usd"].clone())
        .collect();
    assert_eq!(
        spent,
        [
            json!(50_000_000_000_u64),
            json!(50_000_000_000_u64),
            json!(50_000_000_000_u64)
        ]
    );
}

#[tokio::test]
async fn no_path_is_open_to_a_key_whose_budget_is_used_up() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(Setup::to(&upstream).k1("[budget]\ntotal_requests = 1")).await;
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
    let body = json!({"model": "m-small", "input": "hi"}).to_string();
    for path in [
        "completions",
        "responses",
        "embeddings",
        "images/generations",
        "messages",
        "batches",
    ] {
        let answer = proxy
            .k1()
            .post(&format!("/v1/{path}"), body.clone())
            .answer()
            .await;
        assert!(
            [402, 403, 404].contains(&answer.status),
            "{path}: {}",
            answer.status
        );
        answer.error();
        if path == "responses" {
            assert_eq!(answer.refusal(), (402, "insufficient_quota".to_owned()));
        }
    }
    assert_eq!(proxy.k1().chat("hi").await.status, 402);
    assert_eq!(upstream.hits(), 1);
}

#[tokio::test]
async fn one_account_of_the_tenant_holds_for_all_its_keys() {
    let upstream = Upstream::start().await;
    let tables = "[tenants.acme.budget]\ntotal_requests = 2";
    let proxy = TestProxy::start(Setup::to(&upstream).tables(tables)).await;
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
    assert_eq!(proxy.k3().chat("hi").await.status, 200);
    for client in [proxy.k1(), proxy.k3()] {
        assert_eq!(client.chat("hi").await.status, 402);
    }
    assert_eq!(
        proxy.k2().chat("hi").await.status,
        200,
        "k2 is of another tenant"
    );
}

#[tokio::test]
async fn the_budget_day_begins_at_midnight_of_its_time_zone() {
    // 23:30 in Amsterdam, which is at UTC+1 in winter.
    let clock = Clock::manual(crate::support::proxy::NOON_MS + (10 * 60 + 30) * 60_000);
    let upstream = Upstream::start().await;
    let rules = "[budget]\ndaily_requests = 1\ntimezone = \"Europe/Amsterdam\"";
    let proxy = TestProxy::start_at(Setup::to(&upstream).k1(rules), clock).await;
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
    let refused = proxy.k1().chat("hi").await;
    assert_eq!(refused.status, 402);
    assert!(
        refused
            .error()
            .message
            .contains("2026-12-01T00:00:00+01:00"),
        "{}",
        refused.text()
    );
    proxy.clock.advance(30 * 60_000 - 1);
    assert_eq!(
        proxy.k1().chat("hi").await.status,
        402,
        "one millisecond before midnight"
    );
    proxy.clock.advance(1_001);
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
    assert_eq!(
        proxy.k1().chat("hi").await.status,
        402,
        "the new day has a limit too"
    );
}

#[tokio::test]
async fn a_restart_clears_no_limit_and_midnight_needs_none() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[budget]\ndaily_requests = 3");
    let mut proxy = TestProxy::start(setup).await;
    for _ in 0..3 {
        assert_eq!(proxy.k1().chat("hi").await.status, 200);
        proxy = proxy.restart().await;
    }
    assert_eq!(proxy.k1().chat("hi").await.status, 402);
    proxy.clock.advance(12 * 3_600_000);
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
}

/// Cost, tokens and requests in turn: the limit that is tight lets exactly seven through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_five_hundred_at_once_exactly_those_that_fit_are_sent() {
    for tight in [
        // Input bound and cap of one request, seven times, and not a nano-dollar more.
        "daily_cost_usd = \"0.028567000\"\nmin_output_tokens = 1000",
        "daily_tokens = 7567\nmin_output_tokens = 1000",
        "total_requests = 7",
    ] {
        let upstream = Upstream::start().await;
        let gate = Gate::new();
        uses_the_whole_cap(&upstream, &gate);
        let setup = Setup::to(&upstream).k1(&format!("[budget]\n{tight}"));
        let proxy = TestProxy::start(setup).await;
        let mut burst = JoinSet::new();
        for _ in 0..500 {
            let client = proxy.k1();
            burst.spawn(async move { client.chat_with("hi", json!({"max_tokens": 1000})).await });
        }
        for _ in 0..493 {
            let refused = within("a refusal", burst.join_next())
                .await
                .unwrap()
                .unwrap();
            assert_eq!(refused.status, 402, "{tight}: {}", refused.text());
        }
        upstream.hit(7).await;
        gate.open();
        while let Some(answer) = within("the seven", burst.join_next()).await {
            assert_eq!(answer.unwrap().status, 200);
        }
        assert_eq!(upstream.hits(), 7, "{tight}");
    }
}
