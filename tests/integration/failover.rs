//! Further attempts and other places: when they are made, when they must not be, and who pays.

use serde_json::{Value, json};

use crate::support::{Gate, Reply, Setup, TestProxy, Upstream, reply, reply::usage};

/// `fast` leads to m-small at the first provider, then to m-large at the second.
fn two(first: &Upstream, second: &Upstream) -> Setup {
    Setup::to(first).tables(&format!(
        "[providers.second]\ndialect = \"openai\"\nbase_url = \"http://{}/v1\"\nmodels = []\n\
         [models.fast]\nroutes = [\"upstream/m-small\", \"second/m-large\"]\n",
        second.address()
    ))
}

async fn started(first: &Upstream, second: &Upstream, tables: &str) -> TestProxy {
    TestProxy::start(two(first, second).k1(tables)).await
}

fn busy(status: u16) -> Reply {
    Reply::error(status, "busy", "Come back later.")
}

#[tokio::test]
async fn the_next_route_answers_when_one_cannot() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let patient = two(&first, &second).provider("breaker = { min_requests = 1000 }");
    let proxy = TestProxy::start(patient).await;
    for status in [401, 429, 500, 502, 503, 529] {
        first.replies(busy(status));
        for members in [
            json!({"model": "fast"}),
            json!({"model": "fast", "stream": true}),
        ] {
            let answer = proxy.k1().chat_with("hi", members).await;
            assert_eq!(answer.status, 200, "{status}: {}", answer.text());
            assert!(answer.text().contains("there."), "{}", answer.text());
        }
    }
    assert_eq!(second.last_request().json()["model"], "m-large");
    let failed = proxy.records("attempt_failed", 12).await;
    let first_of = |member: &str| failed[0][member].clone();
    assert_eq!(first_of("failure"), "credential_refused");
    assert_eq!(first_of("status"), 401);
    assert_eq!(first_of("provider"), "upstream");
    assert_eq!(first_of("next_provider"), "second");
    let settled = proxy.records("request_settled", 12).await;
    assert!(
        settled
            .iter()
            .all(|one| one["provider"] == "second" && one["input_tokens"] == 10)
    );
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_passed_over() {
    let (gone, second) = (Upstream::start().await, Upstream::start().await);
    let setup = two(&gone, &second);
    drop(gone);
    let proxy = TestProxy::start(setup).await;
    let answer = proxy.k1().chat_with("hi", json!({"model": "fast"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let failed = proxy.records("attempt_failed", 1).await;
    assert_eq!(failed[0]["failure"], "unreachable");
}

#[tokio::test]
async fn what_speaks_of_the_request_is_the_answer() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let proxy = started(&first, &second, "[retry]\nmax_retries = 3\n").await;
    for status in [400, 403, 404, 422] {
        first.replies(busy(status));
        let answer = proxy.k1().chat_with("hi", json!({"model": "fast"})).await;
        assert_eq!(answer.status, status);
    }
    assert_eq!((first.hits(), second.hits()), (4, 0));
}

#[tokio::test]
async fn the_last_failure_is_told_when_no_place_is_left() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.replies(busy(503));
    second.replies(busy(500));
    let proxy = started(&first, &second, "").await;
    let answer = proxy.k1().chat_with("hi", json!({"model": "fast"})).await;
    assert_eq!(answer.status, 500);
    assert_eq!((first.hits(), second.hits()), (1, 1));
}

#[tokio::test]
async fn retries_are_as_many_as_are_asked_for_and_none_otherwise() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.replies(busy(503));
    let plain = TestProxy::to(&first).await;
    assert_eq!(plain.k1().chat("hi").await.status, 503);
    assert_eq!(first.hits(), 1);
    let retry = "[retry]\nmax_retries = 2\nbackoff = \"1ms\"\n";
    let proxy = started(&first, &second, retry).await;
    assert_eq!(proxy.k1().chat("hi").await.status, 503);
    assert_eq!(first.hits(), 4);
    first.replies_once(busy(503));
    first.replies_once(busy(429));
    first.says("At last.", usage(10, 5));
    let answer = proxy.k1().chat("hi").await;
    assert_eq!(answer.status, 200);
    assert_eq!(first.hits(), 7);
}

#[tokio::test]
async fn a_request_that_may_have_been_worked_on_is_sent_again_only_where_that_is_wanted() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let slow = two(&first, &second).provider("first_byte_timeout = \"100ms\"");
    let proxy = TestProxy::start(slow).await;
    for (reply, status) in [(Reply::silence(), 504), (busy(504), 504), (busy(408), 408)] {
        first.replies(reply);
        let answer = proxy.k1().chat_with("hi", json!({"model": "fast"})).await;
        assert_eq!(answer.status, status);
    }
    assert_eq!((first.hits(), second.hits()), (3, 0));
}

#[tokio::test]
async fn an_attempt_in_vain_that_may_have_cost_is_paid() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.replies(busy(504));
    let rules = "[retry]\nafter_timeout = true\n[budget]\ndaily_tokens = 100000\n";
    let proxy = started(&first, &second, rules).await;
    let answer = proxy
        .k1()
        .chat_with("hello", json!({"model": "fast"}))
        .await;
    assert_eq!(answer.status, 200);
    let failed = proxy.records("attempt_failed", 1).await;
    let charged = failed[0]["charged_tokens"].as_u64().unwrap();
    assert!(charged > 0);
    let settled = proxy.records("request_settled", 1).await;
    assert_eq!(settled[0]["input_tokens"], 10 + charged);
    assert_eq!(settled[0]["estimated"], true);
    let at_small = failed[0]["charged_nano_usd"].as_u64().unwrap();
    assert_eq!(at_small, charged * 1_000, "m-small: $1 a million");
    assert_eq!(
        settled[0]["cost_nano_usd"],
        at_small + 10 * 10_000 + 5 * 40_000
    );
}

#[tokio::test]
async fn the_reservation_covers_the_dearest_place() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let rules = "[budget]\ndaily_cost_usd = \"5.00\"\ndefault_output_tokens = 100\n";
    let proxy = started(&first, &second, rules).await;
    for model in ["fast", "m-large", "m-small"] {
        let answer = proxy.k1().chat_with("hi", json!({"model": model})).await;
        assert_eq!(answer.status, 200);
    }
    let opened = proxy.records("request_started", 3).await;
    let reserved = |one: &Value| one["reserved_nano_usd"].as_u64().unwrap();
    // All but the few bytes by which the alias is shorter.
    assert!(reserved(&opened[0]) * 100 > reserved(&opened[1]) * 99);
    assert!(reserved(&opened[0]) > reserved(&opened[2]) * 9);
}

#[tokio::test]
async fn a_stream_that_breaks_is_not_begun_again_elsewhere() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.replies(
        Reply::stream()
            .data(&reply::chunk(json!({"content": "Half"}), None))
            .cut(),
    );
    let proxy = started(&first, &second, "[retry]\nmax_retries = 5\n").await;
    let answer = proxy
        .k1()
        .chat_with("hi", json!({"model": "fast", "stream": true}))
        .await;
    assert!(answer.text().contains("Half"), "{}", answer.text());
    assert_eq!((first.hits(), second.hits()), (1, 0));
}

#[tokio::test]
async fn a_failing_provider_is_left_alone_and_found_again() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.replies(busy(500));
    let breaker = "breaker = { min_requests = 3, open_for = \"100ms\" }";
    let proxy = TestProxy::start(two(&first, &second).provider(breaker)).await;
    for _ in 0..8 {
        let answer = proxy.k1().chat_with("hi", json!({"model": "fast"})).await;
        assert_eq!(answer.status, 200);
    }
    let asked = first.hits();
    assert_eq!(asked, 3, "left alone from the third failure on");
    first.says("Well again.", usage(10, 5));
    proxy.clock.advance(99);
    proxy.k1().chat_with("hi", json!({"model": "fast"})).await;
    assert_eq!(first.hits(), asked);
    proxy.clock.advance(1);
    let answer = proxy.k1().chat_with("hi", json!({"model": "fast"})).await;
    assert!(answer.text().contains("Well again."), "{}", answer.text());
}

#[tokio::test]
async fn a_client_that_leaves_between_attempts_pays_nothing_and_blocks_nothing() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.replies(busy(429).header("retry-after", "9"));
    let rules = "[retry]\nmax_retries = 2\n[limits]\nparallel_requests = 1\n";
    let proxy = started(&first, &second, rules).await;
    let waiting = proxy.k1().chat_request("hi", json!({})).send_only().await;
    proxy.records("attempt_failed", 1).await;
    drop(waiting);
    let settled = proxy.records("request_settled", 1).await;
    assert_eq!(settled[0]["outcome"], "client_gone");
    assert_eq!(settled[0]["cost_nano_usd"], 0);
    first.says("Free.", usage(1, 1));
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
}

#[tokio::test]
async fn a_role_picks_its_own_routes() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let roles = "[roles.verifier]\nroutes = [\"second/m-large\", \"upstream/m-small\"]\n\
                 [roles.rogue]\nroutes = [\"second/m-forbidden\"]\n";
    let proxy = started(&first, &second, roles).await;
    let ask = |role: &'static str, model: &'static str| {
        let request = proxy.k1().chat_request("hi", json!({"model": model}));
        request.header("x-role", role).answer()
    };
    assert_eq!(ask("verifier", "m-small").await.status, 200);
    assert_eq!(second.last_request().json()["model"], "m-large");
    assert_eq!(first.hits(), 0);
    let denied = ask("rogue", "m-small").await;
    assert_eq!(denied.code(), "model_denied", "{}", denied.text());
    let foreign = ask("verifier", "m-forbidden").await;
    assert_eq!(foreign.code(), "model_denied");
    let unknown = ask("boss", "m-small").await;
    assert_eq!(unknown.status, 400);
    assert!(
        unknown.text().contains("verifier, rogue"),
        "{}",
        unknown.text()
    );
    second.replies(busy(503));
    assert_eq!(ask("verifier", "m-small").await.status, 200);
    assert_eq!(first.hits(), 1);
}

#[tokio::test]
async fn a_gate_before_the_head_holds_no_second_attempt_back() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let gate = Gate::new();
    first.replies(busy(503).wait_before_head(&gate));
    let proxy = started(&first, &second, "").await;
    let k1 = proxy.k1();
    let (answer, ()) = tokio::join!(k1.chat_with("hi", json!({"model": "fast"})), async {
        first.hit(1).await;
        assert_eq!(second.hits(), 0, "nothing is sent ahead of the verdict");
        gate.open();
    });
    assert_eq!(answer.status, 200);
}
