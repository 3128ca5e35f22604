//! A database that does not answer, because another program has locked it.

use serde_json::json;

use crate::support::{
    Process, Setup, TestProxy, Upstream, eventually,
    ledger::{self, Lock},
};

async fn is_ready(proxy: &TestProxy) -> bool {
    proxy.admin().get("/readyz").await.status == 200
}

#[tokio::test]
async fn requests_are_refused_while_the_store_is_down_and_served_once_it_is_back() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[budget]\ntotal_requests = 3");
    let proxy = TestProxy::start(setup).await;
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
    proxy.settled(1).await;
    let lock = Lock::on(&proxy.setup).await;
    let ask = json!({"max_tokens": 5});
    for client in [proxy.k1(), proxy.k1(), proxy.k3()] {
        let refused = client.chat_with("hi", ask.clone()).await;
        assert_eq!(refused.refusal(), (503, "guard_unavailable".to_owned()));
        assert_eq!(refused.header("x-should-retry"), Some("false"));
    }
    let ready = proxy.admin().get("/readyz").await;
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("store"), "{}", ready.text());
    assert_eq!(proxy.admin().get("/healthz").await.status, 200);
    assert_eq!(upstream.hits(), 1, "nothing was sent meanwhile");

    lock.release().await;
    eventually("a ready proxy", async || is_ready(&proxy).await).await;
    for status in [200, 200, 402] {
        assert_eq!(proxy.k1().chat("hi").await.status, status);
    }
    assert_eq!(proxy.records("request_refused", 4).await.len(), 4);
    let account = "key/k1/requests/total";
    let database = ledger::database(&proxy.setup);
    let proxy = proxy.restart().await;
    assert_eq!(ledger::spent_and_reserved(&database, account).await, (3, 0));
    drop(proxy);
}

#[tokio::test]
async fn before_release_sends_nothing_that_is_not_on_disk() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream)
        .tables("[ledger]\ndurability = \"before_release\"")
        .k1("[budget]\ntotal_requests = 1");
    let proxy = TestProxy::start(setup).await;
    let lock = Lock::on(&proxy.setup).await;
    // k3 has no limit: only its record waits for the disk.
    for client in [proxy.k3(), proxy.k1()] {
        assert_eq!(client.chat("hi").await.status, 503);
    }
    assert_eq!(upstream.hits(), 0);
    lock.release().await;
    eventually("a ready proxy", async || is_ready(&proxy).await).await;
    assert_eq!(proxy.k1().chat("hi").await.status, 200, "nothing was held");
}

#[tokio::test]
async fn local_goes_on_by_this_processs_own_count() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream)
        .store("on_down = \"local\"")
        .k1("[limits]\nrequests_per_minute = 3");
    let proxy = TestProxy::start(setup).await;
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
    let lock = Lock::on(&proxy.setup).await;
    for status in [200, 200, 429] {
        assert_eq!(proxy.k1().chat("hi").await.status, status);
    }
    for _ in 0..5 {
        assert_eq!(proxy.k3().chat("hi").await.status, 200, "k3 has no limits");
    }
    let ready = proxy.admin().get("/readyz").await;
    assert_eq!(ready.status, 200, "it serves");
    assert_ne!(ready.json()["store"], "ok", "and tells that it is alone");
    lock.release().await;
    let store_answers = async || proxy.admin().get("/readyz").await.json()["store"] == "ok";
    eventually("a store that answers", store_answers).await;
    assert_eq!(
        proxy.k1().chat("hi").await.status,
        429,
        "the minute is not over"
    );
    assert_eq!(proxy.settled(8).await.len(), 8, "nothing was lost");
}

#[tokio::test]
async fn local_refuses_what_no_slice_covers() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream)
        .store("on_down = \"local\"")
        .k1("[budget]\ntotal_requests = 3");
    let proxy = TestProxy::start(setup).await;
    let lock = Lock::on(&proxy.setup).await;
    assert_eq!(
        proxy.k1().chat("hi").await.refusal(),
        (503, "guard_unavailable".to_owned())
    );
    lock.release().await;
    assert_eq!(upstream.hits(), 0);
}

#[tokio::test]
async fn an_outage_is_logged_once_however_many_requests_it_meets() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[budget]\ntotal_requests = 3");
    let (setup, process) = Process::start(setup).await;
    assert_eq!(process.client().chat("hi").await.status, 200);
    ledger::records(&ledger::database(&setup), "request_settled", 1).await;
    let lock = Lock::on(&setup).await;
    for _ in 0..5 {
        assert_eq!(process.client().chat("hi").await.status, 503);
    }
    // The database gives the first attempt up by itself, and others follow.
    let readyz = async || process.admin().get("/readyz").await.text().to_owned();
    let first = readyz().await;
    eventually("another attempt", async || readyz().await != first).await;
    let told = |words: &str| process.log().matches(words).count();
    assert_eq!(told("the store does not answer"), 1);
    assert_eq!(told("the store answers again"), 0);
    lock.release().await;
    eventually("a store that answers", async || {
        told("the store answers again") == 1
    })
    .await;
    assert_eq!(process.client().chat("hi").await.status, 200);
}
