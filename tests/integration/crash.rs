//! The program as a process: what survives a crash, what a signal does, what its log holds.

use std::pin::pin;

use serde_json::json;

use crate::support::{Gate, Process, Reply, Setup, Upstream, eventually, ledger, reply, setup};

#[tokio::test]
async fn a_used_up_limit_is_used_up_after_a_crash() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[budget]\ntotal_requests = 2");
    let (setup, mut process) = Process::start(setup).await;
    for _ in 0..2 {
        assert_eq!(process.client().chat("hi").await.status, 200);
    }
    process.kill().await;
    let process = process.start_again(&setup).await;
    assert_eq!(process.client().chat("hi").await.status, 402);
    assert_eq!(upstream.hits(), 2);
}

#[tokio::test]
async fn requests_that_a_crash_cut_off_can_never_pass_the_limit() {
    let upstream = Upstream::start().await;
    upstream.replies(Reply::silence());
    let setup = Setup::to(&upstream).k1("[budget]\ntotal_requests = 5");
    let (setup, mut process) = Process::start(setup).await;
    loop {
        let before = upstream.hits();
        let client = process.client();
        let mut asking = pin!(client.chat("hi"));
        tokio::select! {
            () = upstream.hit(before + 1) => {}
            answer = &mut asking => {
                assert_eq!(answer.status, 402);
                break;
            }
        }
        // The request is on its way; nobody will ever know what became of it.
        process.kill().await;
        process = process.start_again(&setup).await;
    }
    assert!(
        (1..=5).contains(&upstream.hits()),
        "{} requests were sent",
        upstream.hits()
    );
}

#[tokio::test]
async fn a_crash_takes_only_a_part_of_what_was_left() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[budget]\ntotal_tokens = 100000");
    let (setup, mut process) = Process::start(setup).await;
    let ask = json!({"max_tokens": 100});
    assert_eq!(
        process.client().chat_with("hi", ask.clone()).await.status,
        200
    );
    ledger::records(&ledger::database(&setup), "request_settled", 1).await;
    process.kill().await;
    let process = process.start_again(&setup).await;
    let members = json!({"max_tokens": 50_000});
    assert_eq!(process.client().chat_with("hi", members).await.status, 200);
    assert_eq!(upstream.last_request().json()["max_tokens"], 50_000);
}

#[tokio::test]
async fn a_request_that_a_crash_cut_off_stands_in_the_ledger() {
    let upstream = Upstream::start().await;
    upstream.replies(Reply::silence());
    let (setup, mut process) = Process::start(Setup::to(&upstream)).await;
    let _waiting = process
        .client()
        .chat_request("hi", json!({}))
        .send_only()
        .await;
    upstream.hit(1).await;
    let database = ledger::database(&setup);
    let started = ledger::records(&database, "request_started", 1).await;
    process.kill().await;
    let _process = process.start_again(&setup).await;
    ledger::records(&database, "started", 2).await;
    assert_eq!(
        ledger::records(&database, "request_started", 1).await,
        started
    );
    assert!(
        ledger::records(&database, "request_settled", 0)
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn termination_lets_open_requests_finish() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let word = |text: &str| reply::chunk(json!({"content": text}), None);
    upstream.replies(
        Reply::stream()
            .data(&word("before "))
            .wait(&gate)
            .data(&word("after"))
            .data(&reply::chunk(json!({}), Some("stop")))
            .done(),
    );
    let (setup, mut process) = Process::start(Setup::to(&upstream)).await;
    let mut open = process.client().stream("hi").await;
    open.until("before").await;
    process.signal("TERM").await;
    process.refuses_connections().await;
    gate.open();
    open.until("[DONE]").await;
    assert_eq!(process.ended().await, Some(0));
    let settled = ledger::records(&ledger::database(&setup), "request_settled", 1).await;
    assert_eq!(settled[0]["outcome"], "completed");
}

#[tokio::test]
async fn hang_up_reloads() {
    let upstream = Upstream::start().await;
    let (mut setup, process) = Process::start(Setup::to(&upstream)).await;
    setup.set_k1_key("disabled = true");
    setup.write();
    process.signal("HUP").await;
    ledger::records(&ledger::database(&setup), "configuration_reloaded", 1).await;
    assert_eq!(process.client().chat("hi").await.status, 401);
}

#[tokio::test]
async fn a_second_process_on_the_same_database_is_refused() {
    let upstream = Upstream::start().await;
    let (setup, _process) = Process::start(Setup::to(&upstream)).await;
    // Other ports, so that only the database is in the way.
    let setup = setup.ports(0, 0);
    setup.write();
    let (code, output) = Process::fails(&setup).await;
    assert_ne!(code, Some(0));
    assert!(output.contains("tallygate.db"), "{output}");
}

#[tokio::test]
async fn a_misspelt_setting_refuses_the_start_and_says_where() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[budget]\ndayly_cost_usd = \"5.00\"");
    setup.write();
    let (code, output) = Process::fails(&setup).await;
    assert_ne!(code, Some(0));
    for wanted in ["k1.toml", "budget.dayly_cost_usd", "daily_cost_usd"] {
        assert!(output.contains(wanted), "{wanted} in {output}");
    }
}

#[tokio::test]
async fn the_start_tells_the_whole_address_of_each_provider() {
    for (base, path) in [
        ("", "/v1"),
        ("/v1/", "/v1"),
        ("/v1beta/openai", "/v1beta/openai"),
    ] {
        let (_setup, process) =
            Process::start(Setup::at(&format!("http://127.0.0.1:1{base}"))).await;
        let line = format!("upstream: http://127.0.0.1:1{path}/chat/completions (key found)");
        eventually("the greeting", async || process.log().contains(&line)).await;
    }
}

#[tokio::test]
async fn the_log_names_the_host_that_could_not_be_reached() {
    for (base_url, host) in [
        ("http://127.0.0.1:1/v1", "127.0.0.1:1"),
        (
            "https://internal-host.invalid/v1",
            "internal-host.invalid:443",
        ),
    ] {
        let (_setup, process) = Process::start(Setup::at(base_url)).await;
        let answer = process.client().chat("hi").await;
        assert_eq!(answer.status, 502);
        assert!(!answer.text().contains(host), "{}", answer.text());
        let log = process.log();
        let told = |line: &&str| line.contains("request failed") && line.contains(host);
        let line = log.lines().find(told).expect(&log);
        assert!(!line.contains(setup::PROVIDER_KEY), "{line}");
    }
}

#[tokio::test]
async fn no_secret_reaches_the_log_or_the_ledger() {
    let upstream = Upstream::start().await;
    let (setup, mut process) = Process::start(Setup::to(&upstream)).await;
    let unknown = "tg-unknown-8hgf65dsa4";
    let client = process.client();
    client.chat("hi").await;
    client.stream("hi").await.answer().await;
    upstream.replies_once(Reply::error(401, "invalid_api_key", setup::PROVIDER_KEY));
    client.chat("hi").await;
    let alert = |line: &str| line.contains("ERROR") && line.contains("refuses our credential");
    assert!(process.log().lines().any(alert), "the operator is told");
    let body =
        json!({"model": "m-small", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let path = format!("/v1/chat/completions?key={unknown}&api_key={}", setup::K1);
    client.post(&path, body.clone()).answer().await;
    let anyone = client.without_key();
    for header in ["authorization", "x-api-key", "api-key"] {
        anyone
            .post("/v1/chat/completions", body.clone())
            .header(header, unknown)
            .answer()
            .await;
    }
    anyone.get(&format!("/v1/models?key={unknown}")).await;
    process.signal("TERM").await;
    process.ended().await;
    let database = std::fs::read(ledger::database(&setup)).unwrap();
    let written = process.log() + &String::from_utf8_lossy(&database);
    assert!(written.contains("m-small"), "something was written at all");
    for secret in [setup::K1, setup::PROVIDER_KEY, unknown] {
        for start in 0..=secret.len() - 8 {
            let part = &secret[start..start + 8];
            // The beginning that all keys share tells nothing.
            if !secret.starts_with(part) {
                assert!(!written.contains(part), "{part} of a secret was written");
            }
        }
    }
}

/// Under load, killed twenty times: what was served is never above the limit, and what is
/// counted is never below what was served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_crashes_under_load_never_pass_a_limit_nor_forget_what_was_served() {
    const LIMIT: usize = 4_000;
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1(&format!("[budget]\ntotal_requests = {LIMIT}"));
    let (setup, mut process) = Process::start(setup).await;
    for round in 1..=20 {
        let before = upstream.hits();
        let mut load = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let client = process.client();
            load.spawn(async move {
                loop {
                    if client.tries("hi").await.is_none_or(|status| status != 200) {
                        break;
                    }
                }
            });
        }
        upstream.hit((before + 30).min(LIMIT)).await;
        process.kill().await;
        while load.join_next().await.is_some() {}
        ledger::holds(&setup);
        process = process.start_again(&setup).await;
        let served = upstream.hits();
        let account = "key/k1/requests/total";
        let (spent, reserved) =
            ledger::spent_and_reserved(&ledger::database(&setup), account).await;
        let counted = spent + reserved;
        assert!(served <= LIMIT, "round {round}: {served} served");
        assert!(
            counted >= served,
            "round {round}: {counted} counted, {served} served"
        );
        assert!(counted <= LIMIT, "round {round}: {counted} counted");
    }
}

/// Each of these requests waits for a commit, so that every kill meets one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_commits_the_chain_holds_and_knows_all_that_was_sent() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).tables("[ledger]\ndurability = \"before_release\"");
    let (setup, mut process) = Process::start(setup).await;
    for _ in 0..10 {
        let before = upstream.hits();
        let mut load = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let client = process.client();
            load.spawn(async move { while client.tries("hi").await == Some(200) {} });
        }
        upstream.hit(before + 10).await;
        process.kill().await;
        while load.join_next().await.is_some() {}
        ledger::holds(&setup);
        let database = ledger::database(&setup);
        let started = ledger::records(&database, "request_started", 0).await;
        assert!(started.len() >= upstream.hits());
        process = process.start_again(&setup).await;
    }
    process.signal("TERM").await;
    assert_eq!(process.ended().await, Some(0));
    ledger::holds(&setup);
}
