//! Event streams as providers really frame them.

use bytes::Bytes;
use serde_json::json;

use crate::{
    streaming::{content, streamed},
    support::{Reply, TestProxy, Upstream, reply},
};

/// A complete stream without usage, framed as the provider likes.
fn framed(text: &str, frame: impl Fn(&str) -> String) -> Reply {
    let events = [
        content(text).to_string(),
        reply::chunk(json!({}), Some("stop")).to_string(),
    ];
    let events = events.iter().map(String::as_str).chain(["[DONE]"]);
    events.fold(Reply::stream(), |reply, event| reply.piece(frame(event)))
}

#[tokio::test]
async fn all_line_ends_and_spacings_of_events_are_read() {
    let framings: [fn(&str) -> String; 4] = [
        |data| format!("data: {data}\r\n\r\n"),
        |data| format!("data:{data}\n\n"),
        |data| format!("data: {data}\r\r"),
        |data| format!("id: 7\nevent: message\ndata: {data}\nretry: 9\n\n"),
    ];
    for frame in framings {
        let answer = streamed(framed("Grüße", frame)).await;
        let text = answer.text().replace("\r\n", "\n").replace('\r', "\n");
        assert!(text.contains("Grüße"), "{text}");
        assert!(text.ends_with("[DONE]\n\n"), "{text}");
        assert!(!text.contains("event:"), "{text}");
    }
}

#[tokio::test]
async fn an_event_cut_anywhere_arrives_whole() {
    let whole = format!("data: {}\r\n\r\n", content("天气🌦"));
    let pieces: Vec<Bytes> = whole.bytes().map(|byte| Bytes::from(vec![byte])).collect();
    let reply = pieces.into_iter().fold(Reply::stream(), Reply::piece);
    let answer = streamed(reply.data(&reply::chunk(json!({}), Some("stop"))).done()).await;
    assert!(answer.text().contains("天气🌦"));
    assert!(!answer.text().contains('\u{fffd}'));
}

#[tokio::test]
async fn keep_alive_comments_are_never_data_and_empty_events_are_dropped() {
    let reply = Reply::stream()
        .piece(": working\n\n")
        .data(&content("a"))
        .piece(":\n\n")
        .piece("event: ping\ndata: \n\n")
        .piece("event: keepalive\n\n")
        .piece("data:\n\n")
        .data(&content("b"))
        .data(&reply::chunk(json!({}), Some("stop")))
        .done();
    let answer = streamed(reply).await;
    assert_eq!((answer.content().as_str(), answer.is_done()), ("ab", true));
}

#[tokio::test]
async fn a_large_event_passes_and_one_beyond_the_bound_ends_the_stream() {
    let large = "x".repeat(4 << 20);
    let reply = Reply::stream()
        .data(&content(&large))
        .data(&reply::chunk(json!({}), Some("stop")));
    let answer = streamed(reply.done()).await;
    assert!(answer.content() == large && answer.is_done());
    let endless = (0..20).fold(Reply::stream().piece("data: \""), |reply, _| {
        reply.piece(vec![b'x'; 1 << 20])
    });
    let answer = streamed(Reply::stream().data(&content("a")).followed_by(endless)).await;
    answer.stream_error();
    assert!(answer.body.len() < 1 << 20);
}

#[tokio::test]
async fn chunks_without_choices_do_not_stop_the_stream() {
    let upstream = Upstream::start().await;
    upstream.replies(
        Reply::stream()
            .data(&json!({"id": "", "choices": [], "prompt_filter_results": []}))
            .data(&json!({"id": "x", "choices": null}))
            .data(&content("hi"))
            .data(&reply::chunk(json!({}), Some("stop")))
            .data(&json!({"usage": reply::usage(7, 3)}))
            .done(),
    );
    let proxy = TestProxy::to(&upstream).await;
    let answer = proxy.k1().stream("hi").await.answer().await;
    assert_eq!((answer.content().as_str(), answer.is_done()), ("hi", true));
    assert!(
        answer
            .chunks()
            .iter()
            .all(|chunk| chunk["choices"].is_array())
    );
    assert_eq!(proxy.last_settled(1).await["input_tokens"], 7);
}
