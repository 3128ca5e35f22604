//! The support itself: a test built on it can only be trusted if these hold.

use serde_json::json;

use super::{Client, Gate, Reply, Upstream, reply};

fn client(upstream: &Upstream) -> Client {
    Client::new(upstream.address(), "key")
}

#[tokio::test]
async fn upstream_answers_and_keeps_what_it_was_asked() {
    let upstream = Upstream::start().await;
    let answer = client(&upstream).chat("hi").await;
    assert_eq!(
        (answer.status, answer.content().as_str()),
        (200, "Hello there.")
    );
    assert_eq!(answer.finish_reason().as_deref(), Some("stop"));
    let request = upstream.last_request();
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/v1/chat/completions")
    );
    assert_eq!(request.header("authorization"), Some("Bearer key"));
    assert_eq!(request.json()["messages"][0]["content"], "hi");
    upstream.idle().await;
    assert_eq!(
        (
            upstream.hits(),
            upstream.in_flight(),
            upstream.connections()
        ),
        (1, 0, 1)
    );
}

#[tokio::test]
async fn upstream_streams_usage_only_to_those_who_ask() {
    let upstream = Upstream::start().await;
    let plain = client(&upstream).stream("hi").await.answer().await;
    assert!(plain.is_done() && plain.content() == "Hello there.");
    assert!(!plain.text().contains("usage"));
    let members = json!({"stream_options": {"include_usage": true}});
    let asked = client(&upstream)
        .stream_with("hi", members)
        .await
        .answer()
        .await;
    assert_eq!(asked.chunks().last().unwrap()["usage"], reply::usage(10, 5));
}

#[tokio::test]
async fn pieces_wait_for_their_gate() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.replies_once(
        Reply::stream()
            .data(&json!(1))
            .wait(&gate)
            .data(&json!(2))
            .done(),
    );
    let mut open = client(&upstream).stream("hi").await;
    assert_eq!(open.next_piece().await.unwrap(), "data: 1\n\n");
    assert_eq!(upstream.in_flight(), 1);
    gate.open();
    assert_eq!(open.until("[DONE]").await, "data: 2\n\ndata: [DONE]\n\n");
}

#[tokio::test]
async fn a_client_that_leaves_is_seen_by_the_upstream() {
    let upstream = Upstream::start().await;
    upstream.replies_once(Reply::stream().data(&json!(1)).hang());
    let mut open = client(&upstream).stream("hi").await;
    open.next_piece().await.unwrap();
    drop(open);
    upstream.left_early(1).await;
    upstream.replies_once(Reply::silence());
    let waiting = client(&upstream)
        .chat_request("hi", json!({}))
        .send_only()
        .await;
    upstream.hit(2).await;
    drop(waiting);
    upstream.left_early(2).await;
    upstream.idle().await;
}

#[tokio::test]
async fn cut_and_reset_answers_are_told_from_whole_ones() {
    let upstream = Upstream::start().await;
    let begun = Reply::stream().data(&json!(1));
    for (reply, cut) in [
        (begun.clone(), false),
        (begun.clone().cut(), true),
        (begun.reset(), true),
    ] {
        upstream.replies_once(reply);
        let mut open = client(&upstream).stream("hi").await;
        assert_eq!(open.next_piece().await.unwrap(), "data: 1\n\n");
        assert_eq!(open.answer().await.cut, cut);
    }
}

#[tokio::test]
async fn idle_connections_close_when_told() {
    let upstream = Upstream::start().await;
    let mut open = client(&upstream).stream("hi").await;
    open.until("[DONE]").await;
    upstream.close_idle().await;
    upstream.idle().await;
}

#[tokio::test]
#[should_panic(expected = "odd event")]
async fn events_that_an_sdk_would_stumble_over_fail_the_test() {
    let upstream = Upstream::start().await;
    upstream.replies_once(Reply::stream().piece("event: ping\n\n"));
    client(&upstream).stream("hi").await.answer().await.chunks();
}
