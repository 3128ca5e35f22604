//! Limits per minute and in parallel: exact in any sixty seconds, and never leaking.

use serde_json::json;
use tallygate::clock::Clock;
use tokio::task::JoinSet;

use crate::support::{
    Gate, Reply, Setup, TestProxy, Upstream, eventually, ledger, proxy::NOON_MS, reply, within,
};

async fn limited(upstream: &Upstream, limits: &str) -> TestProxy {
    TestProxy::start(Setup::to(upstream).k1(&format!("[limits]\n{limits}"))).await
}

#[tokio::test]
async fn no_sixty_seconds_admit_more_than_the_limit() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[limits]\nrequests_per_minute = 10");
    let proxy = TestProxy::start_at(setup, Clock::manual(NOON_MS + 59_900)).await;
    for _ in 0..10 {
        assert_eq!(proxy.k1().chat("hi").await.status, 200);
    }
    // The clock's minute changes; sixty seconds have not passed.
    proxy.clock.advance(200);
    for _ in 0..10 {
        assert_eq!(
            proxy.k1().chat("hi").await.refusal(),
            (429, "rate_limit_exceeded".to_owned())
        );
    }
    proxy.clock.advance(59_700);
    assert_eq!(proxy.k1().chat("hi").await.status, 429);
    proxy.clock.advance(200);
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
    assert_eq!(upstream.hits(), 11);
}

#[tokio::test]
async fn after_the_told_waiting_time_the_same_request_is_admitted() {
    let upstream = Upstream::start().await;
    let proxy = limited(&upstream, "requests_per_minute = 1").await;
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
    proxy.clock.advance(22_800);
    let refused = proxy.k1().chat("hi").await;
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (429, Some("38"))
    );
    let ms: i64 = refused.header("retry-after-ms").unwrap().parse().unwrap();
    assert!((37_200..=37_300).contains(&ms), "{ms} ms");
    assert_eq!(refused.header("x-should-retry"), None);
    proxy.clock.advance(ms);
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
}

#[tokio::test]
async fn a_refusal_of_a_limit_names_it_and_nobody_else() {
    let upstream = Upstream::start().await;
    upstream.says("Hi.", reply::usage(500, 500));
    for (limits, name, size) in [
        ("requests_per_minute = 1", "requests_per_minute", "1"),
        ("tokens_per_minute = 1000", "tokens_per_minute", "1000"),
    ] {
        let proxy = limited(&upstream, limits).await;
        assert_eq!(
            proxy
                .k1()
                .chat_with("hi", json!({"max_tokens": 100}))
                .await
                .status,
            200
        );
        let refused = proxy.k1().chat("hi").await;
        let message = refused.error().message;
        assert_eq!(refused.status, 429);
        for wanted in [
            name,
            &format!("limit {size}"),
            &format!("used {size}"),
            "Try again in 60 s.",
        ] {
            assert!(message.contains(wanted), "{wanted}: {message}");
        }
        assert!(!refused.text().contains("k2") && !refused.text().contains("globex"));
        assert_eq!(refused.json()["guard"]["limit"]["name"], name);
    }
}

#[tokio::test]
async fn a_request_refused_by_one_limit_consumes_no_other() {
    let upstream = Upstream::start().await;
    upstream.says("Hi.", reply::usage(2, 1));
    let limits = "requests_per_minute = 10\ntokens_per_minute = 1000";
    let proxy = limited(&upstream, limits).await;
    let large = "word ".repeat(2_000);
    for _ in 0..5 {
        assert_eq!(proxy.k1().chat(&large).await.status, 429);
    }
    for _ in 0..10 {
        assert_eq!(
            proxy
                .k1()
                .chat_with("hi", json!({"max_tokens": 16}))
                .await
                .status,
            200
        );
    }
    let refused = proxy.k1().chat_with("hi", json!({"max_tokens": 16})).await;
    assert_eq!(
        refused.json()["guard"]["limit"]["name"],
        "requests_per_minute"
    );
}

#[tokio::test]
async fn a_request_refused_by_a_budget_leaves_the_minute_as_it_was() {
    let upstream = Upstream::start().await;
    let rules = "[limits]\nrequests_per_minute = 2\n[budget]\ntotal_tokens = 2000";
    let proxy = TestProxy::start(Setup::to(&upstream).k1(rules)).await;
    let large = "word ".repeat(2_000);
    for _ in 0..5 {
        assert_eq!(proxy.k1().chat(&large).await.status, 402);
    }
    for status in [200, 200, 429] {
        let answer = proxy.k1().chat_with("hi", json!({"max_tokens": 16})).await;
        assert_eq!(answer.status, status);
    }
}

#[tokio::test]
async fn a_limit_of_one_key_is_no_other_keys() {
    let upstream = Upstream::start().await;
    let proxy = limited(&upstream, "requests_per_minute = 1").await;
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
    assert_eq!(proxy.k1().chat("hi").await.status, 429);
    assert_eq!(proxy.k2().chat("hi").await.status, 200);
    assert_eq!(proxy.k3().chat("hi").await.status, 200);
}

#[tokio::test]
async fn parallel_requests_wait_for_a_slot_of_their_own_key() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let answer = reply::completion("Hi.", reply::usage(1, 1));
    upstream.replies(Reply::json(200, &answer).wait_before_head(&gate));
    let proxy = limited(&upstream, "parallel_requests = 2").await;
    let mut open = JoinSet::new();
    for _ in 0..2 {
        let client = proxy.k1();
        open.spawn(async move { client.chat("hi").await.status });
    }
    upstream.hit(2).await;
    let refused = proxy.k1().chat("hi").await;
    assert_eq!(refused.refusal(), (429, "rate_limit_exceeded".to_owned()));
    gate.open();
    while let Some(status) = within("the open requests", open.join_next()).await {
        assert_eq!(status.unwrap(), 200);
    }
    eventually("a free slot", async || {
        proxy.k1().chat("hi").await.status == 200
    })
    .await;
}

#[tokio::test]
async fn every_slot_comes_back_however_a_request_ends() {
    let upstream = Upstream::start().await;
    let proxy = limited(&upstream, "parallel_requests = 3").await;
    let chat = || proxy.k1().chat_request("hi", json!({}));
    for round in 0..10 {
        eventually("a free slot", async || chat().answer().await.status == 200).await;

        upstream.replies_once(Reply::silence());
        let before = upstream.hits();
        let waiting = chat().send_only().await;
        upstream.hit(before + 1).await;
        drop(waiting);
        upstream.left_early(2 * round + 1).await;

        let word = reply::chunk(json!({"content": "word"}), None);
        upstream.replies_once(Reply::stream().data(&word).hang());
        let mut open = proxy.k1().stream("hi").await;
        open.until("word").await;
        drop(open);
        upstream.left_early(2 * (round + 1)).await;
    }
    // All three slots at once, or one has leaked.
    let gate = Gate::new();
    let answer = reply::completion("Hi.", reply::usage(1, 1));
    upstream.replies(Reply::json(200, &answer).wait_before_head(&gate));
    let mut held = Vec::new();
    let before = upstream.hits();
    eventually("three free slots", async || {
        held.push(chat().send_only().await);
        upstream.in_flight() == 3
    })
    .await;
    assert!(upstream.hits() >= before + 3);
}

#[tokio::test]
async fn what_was_held_goes_back_however_a_request_ends() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[budget]\ntotal_tokens = 1000000");
    let proxy = TestProxy::start(setup).await;
    let ask = || proxy.k1().chat_request("hi", json!({"max_tokens": 20_000}));
    for round in 0..5 {
        assert_eq!(ask().answer().await.status, 200);

        upstream.replies_once(Reply::silence());
        let before = upstream.hits();
        let waiting = ask().send_only().await;
        upstream.hit(before + 1).await;
        drop(waiting);

        let word = reply::chunk(json!({"content": "word"}), None);
        upstream.replies_once(Reply::stream().data(&word).hang());
        let members = json!({"max_tokens": 20_000});
        let mut open = proxy.k1().stream_with("hi", members).await;
        open.until("word").await;
        drop(open);
        upstream.left_early(2 * (round + 1)).await;
    }
    let settled = proxy.settled(15).await;
    let tokens = |record: &serde_json::Value| {
        record["input_tokens"].as_u64().unwrap() + record["output_tokens"].as_u64().unwrap()
    };
    let used: u64 = settled.iter().map(tokens).sum();
    assert!(used < 1_000, "{used}");
    // The slice of a key at rest goes back to the store by itself.
    let database = ledger::database(&proxy.setup);
    eventually("nothing held", async || {
        proxy.clock.advance(1_000);
        let account = "key/k1/tokens/total";
        ledger::spent_and_reserved(&database, account).await == (usize::try_from(used).unwrap(), 0)
    })
    .await;
}

#[tokio::test]
async fn browsers_may_read_the_waiting_time_and_preflights_are_not_counted() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream)
        .server("cors_origins = [\"https://app.example\"]")
        .k1("[limits]\nrequests_per_minute = 1");
    let proxy = TestProxy::start(setup).await;
    let anyone = proxy.k1().without_key();
    for _ in 0..5 {
        let preflight = anyone
            .request("OPTIONS", "/v1/chat/completions")
            .header("origin", "https://app.example")
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization")
            .answer()
            .await;
        assert_eq!(preflight.status, 204);
        assert_eq!(
            preflight.header("access-control-allow-origin"),
            Some("https://app.example")
        );
        let methods = preflight.header("access-control-allow-methods").unwrap();
        assert!(
            ["GET", "POST", "DELETE"]
                .iter()
                .all(|one| methods.contains(one)),
            "{methods}"
        );
        assert_eq!(
            preflight.header("access-control-allow-headers"),
            Some("authorization")
        );
    }
    let post = |client: crate::support::Client| {
        client
            .chat_request("hi", json!({}))
            .header("origin", "https://app.example")
            .answer()
    };
    assert_eq!(post(proxy.k1()).await.status, 200);
    for (answer, status) in [(post(proxy.k1()).await, 429), (post(anyone).await, 401)] {
        assert_eq!(answer.status, status);
        assert_eq!(
            answer.header("access-control-allow-origin"),
            Some("https://app.example")
        );
        let exposed = answer
            .header("access-control-expose-headers")
            .unwrap()
            .to_lowercase();
        assert!(
            exposed.contains("retry-after") && exposed.contains("x-ratelimit-remaining-requests"),
            "{exposed}"
        );
    }
    assert_eq!(upstream.hits(), 1);
}

#[tokio::test]
async fn without_cors_a_preflight_is_refused_here() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let preflight = proxy
        .k1()
        .without_key()
        .request("OPTIONS", "/v1/chat/completions")
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST")
        .answer()
        .await;
    assert!(
        [403, 405].contains(&preflight.status),
        "{}",
        preflight.status
    );
    assert_eq!(preflight.header("access-control-allow-origin"), None);
    assert_eq!(upstream.hits(), 0);
}
