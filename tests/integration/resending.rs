//! A request is sent again only when it is certain that nobody has begun to answer it.

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{
    Setup, TestProxy,
    h2::{Fate, H2Upstream},
    reply,
};

async fn behind(fates: &[Fate], budget: &str) -> (H2Upstream, TestProxy) {
    let body = reply::completion("Hi.", reply::usage(10, 5));
    let upstream = H2Upstream::start(fates, &body).await;
    let setup = Setup::at(&format!("http://{}/v1", upstream.address))
        .provider("http = \"2\"")
        .k1(budget);
    let proxy = TestProxy::start(setup).await;
    (upstream, proxy)
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_and_counts_once() {
    let budget = "[budget]\ntotal_requests = 1";
    let (upstream, proxy) = behind(&[Fate::Refused], budget).await;
    let answer = proxy.k1().chat("hi").await;
    assert_eq!((answer.status, answer.content().as_str()), (200, "Hi."));
    assert_eq!((upstream.streams(), upstream.answered()), (2, 1));
    let settled = proxy.settled(1).await;
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0]["outcome"], "completed");
    assert_eq!(proxy.k1().chat("hi").await.status, 402);
}

#[tokio::test]
async fn a_stream_that_failed_after_it_was_read_is_not() {
    let (upstream, proxy) = behind(&[Fate::Failed], "").await;
    let answer = proxy.k1().chat("hi").await;
    assert_eq!(answer.status, 502);
    answer.error();
    assert_eq!(upstream.streams(), 1, "it may have been processed");
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
}

#[tokio::test]
async fn a_provider_that_refuses_for_ever_is_given_up() {
    let (upstream, proxy) = behind(&[Fate::Refused; 50], "").await;
    let answer = proxy.k1().chat("hi").await;
    assert_eq!(answer.status, 502);
    answer.error();
    assert!(
        (2..=4).contains(&upstream.streams()),
        "{}",
        upstream.streams()
    );
    let settled = proxy.last_settled(1).await;
    assert_eq!(
        (&settled["outcome"], &settled["cost_nano_usd"]),
        (&json!("upstream_failed"), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_requests_than_a_connection_takes_and_connections_that_close_are_no_failure() {
    let mut fates = Vec::new();
    for _ in 0..4 {
        fates.extend([Fate::Answered; 7]);
        fates.extend([Fate::Refused, Fate::LastOfItsConnection]);
    }
    let (upstream, proxy) = behind(&fates, "").await;
    let mut all = JoinSet::new();
    for _ in 0..50 {
        let client = proxy.k1();
        all.spawn(async move { client.chat("hi").await.status });
    }
    assert_eq!(all.join_all().await, [200; 50]);
    assert_eq!(upstream.answered(), 50, "each is answered once");
    assert_eq!(proxy.settled(50).await.len(), 50);
}
