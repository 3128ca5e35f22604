//! A new configuration: taken over in one step, or not at all and visibly so.

use std::fs;

use serde_json::json;

use crate::support::{
    Gate, Reply, Setup, TestProxy, Upstream, proxy::NOON_MS, reply, setup::replace,
};

#[tokio::test]
async fn a_changed_policy_takes_effect_without_a_restart_and_without_a_fresh_limit() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[budget]\ntotal_requests = 100");
    let mut proxy = TestProxy::start(setup).await;
    for _ in 0..2 {
        assert_eq!(proxy.k1().chat("hi").await.status, 200);
    }
    proxy.setup.set_k1("[budget]\ntotal_requests = 3");
    proxy.setup.set_k1_version(2);
    proxy.setup.write();
    proxy.records("configuration_reloaded", 1).await;
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
    assert_eq!(
        proxy.k1().chat("hi").await.status,
        402,
        "what was used before still counts"
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_used_leaves_the_last_good_one_in_force() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let word = |text: &str| reply::chunk(json!({"content": text}), None);
    let proxy = TestProxy::start(Setup::to(&upstream).k1("[budget]\ntotal_requests = 100")).await;
    upstream.replies_once(
        Reply::stream()
            .data(&word("before "))
            .wait(&gate)
            .data(&word("after"))
            .data(&reply::chunk(json!({}), Some("stop")))
            .done(),
    );
    let mut running = proxy.k1().stream("hi").await;
    let mut seen = running.until("before").await;

    let file = proxy.setup.file();
    let good = fs::read_to_string(&file).unwrap();
    let (without_keys, _) = good.split_once("[[keys]]").unwrap();
    let bad = [
        "policies_dir = [",
        without_keys,
        "",
        "[server]\nlissten = \"x\"",
    ];
    for (count, text) in bad.into_iter().enumerate() {
        replace(&file, text);
        proxy.records("configuration_refused", count + 1).await;
        assert_eq!(proxy.k1().chat("hi").await.status, 200);
        assert_eq!(proxy.k2().chat("hi").await.status, 200);
        let ready = proxy.admin().get("/readyz").await;
        let told = &ready.json()["configuration"];
        assert_eq!((ready.status, &told["keys"]), (200, &json!(3)), "in force");
        let rejected = &told["rejected"];
        assert_eq!(rejected["at"], NOON_MS);
        let why = rejected["problems"][0].as_str().unwrap();
        assert!(why.contains("tallygate.toml"), "{why}");
    }
    fs::remove_file(&file).unwrap();
    proxy.records("configuration_refused", bad.len() + 1).await;
    assert_eq!(proxy.k1().chat("hi").await.status, 200);

    replace(
        &file,
        &good.replace("name = \"k2\"", "name = \"k2\"\ndisabled = true"),
    );
    proxy.records("configuration_reloaded", 1).await;
    assert_eq!(proxy.k2().chat("hi").await.status, 401);
    let ready = proxy.admin().get("/readyz").await.json();
    assert_eq!(ready["configuration"]["rejected"], json!(null));
    gate.open();
    seen += &running.until("[DONE]").await;
    assert!(seen.contains("after"), "the running stream goes on");
}

#[tokio::test]
async fn a_running_request_keeps_the_rules_it_began_with() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let answer = reply::completion("Hi.", reply::usage(10, 5));
    let mut proxy = TestProxy::start(Setup::to(&upstream)).await;
    upstream.replies_once(Reply::json(200, &answer).wait_before_head(&gate));
    let client = proxy.k1();
    let running = tokio::spawn(async move { client.chat("hi").await });
    upstream.hit(1).await;
    proxy.setup.set_k1_key("disabled = true");
    proxy.setup.write();
    proxy.records("configuration_reloaded", 1).await;
    assert_eq!(proxy.k1().chat("hi").await.status, 401);
    gate.open();
    assert_eq!(running.await.unwrap().status, 200);
    let record = proxy.last_settled(1).await;
    assert_eq!(
        (&record["policy"], &record["cost_nano_usd"]),
        (&json!("k1@1"), &json!(30_000))
    );
}
