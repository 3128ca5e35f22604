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

fn denied() -> String {
    let call = json!({"index": 0, "id": "id_secret", "type": "function",
        "function": {"name": "delete_account", "arguments": "{\"of\":\"secret\"}"}});
    reply::chunk(json!({"tool_calls": [call]}), None).to_string()
}

#[tokio::test]
async fn a_denied_call_is_seen_in_every_framing_and_the_text_before_it_does_not_wait() {
    let framings: [fn(&str) -> String; 4] = [
        |data| format!("data: {data}\r\n\r\n"),
        |data| format!("data:{data}\n\n"),
        |data| format!("data: {data}\r\r"),
        |data| format!(": working\nevent: x\ndata: {data}\n\n"),
    ];
    for frame in framings {
        let upstream = Upstream::start().await;
        let gate = crate::support::Gate::new();
        let text = frame(&content("Hm.").to_string());
        let rest = [
            denied(),
            reply::chunk(json!({}), Some("tool_calls")).to_string(),
            "[DONE]".to_owned(),
        ];
        let rest: String = rest.iter().map(|event| frame(event)).collect();
        // The last line end of the text is cut in two.
        let (begun, end) = text.split_at(text.len() - 1);
        let first = Reply::stream()
            .piece(begun.to_owned())
            .piece(end.to_owned())
            .wait(&gate);
        upstream.replies(
            rest.bytes()
                .fold(first, |reply, byte| reply.piece(vec![byte])),
        );
        let proxy = TestProxy::to(&upstream).await;
        let mut open = proxy.k1().stream("hi").await;
        open.until("Hm.").await;
        gate.open();
        let answer = open.answer().await;
        assert!(
            answer.text().contains("(unknown_tool)"),
            "{}",
            answer.text()
        );
        assert!(!answer.text().contains("secret"), "{}", answer.text());
        assert!(answer.is_done());
    }
}

#[tokio::test]
async fn the_client_hears_keep_alives_while_a_call_is_held() {
    let upstream = Upstream::start().await;
    let gate = crate::support::Gate::new();
    let end = Reply::stream()
        .data(&reply::chunk(json!({}), Some("tool_calls")))
        .done();
    upstream.replies(
        Reply::stream()
            .data(&content("Hm."))
            .piece(format!("data: {}\n\n", denied()))
            .piece(": working\n\n")
            .wait(&gate)
            .followed_by(end),
    );
    let proxy = TestProxy::to(&upstream).await;
    let mut open = proxy.k1().stream("hi").await;
    let before = open.until("\n\n: working\n\n").await;
    assert!(!before.contains("secret"), "{before}");
    gate.open();
    assert!(open.answer().await.text().contains("(unknown_tool)"));
}

#[tokio::test]
async fn events_that_say_nothing_do_not_end_the_stream() {
    for nothing in [
        "data: \"\"\n\n",
        "data: null\n\n",
        "data:  \n\n",
        "data\n\n",
    ] {
        let reply = Reply::stream()
            .data(&content("a"))
            .piece(nothing)
            .data(&content("b"))
            .data(&reply::chunk(json!({}), Some("stop")))
            .done();
        let answer = streamed(reply).await;
        assert_eq!(
            (answer.content().as_str(), answer.is_done()),
            ("ab", true),
            "{nothing:?}"
        );
        assert!(answer.chunks().iter().all(serde_json::Value::is_object));
    }
}

#[tokio::test]
async fn arguments_in_any_script_arrive_as_they_came_and_invalid_text_does_not_pass() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let tools = json!({"tools": [{"type": "function", "function": {"name": "get_weather"}}]});
    let arguments = "{\"city\":\"天气🌦 Grüße\"}";
    let call = json!({"index": 0, "id": "id_a", "type": "function", "function": {"name": "get_weather", "arguments": arguments}});
    let data = reply::chunk(json!({"tool_calls": [call]}), None);
    let end = Reply::stream()
        .data(&reply::chunk(json!({}), Some("tool_calls")))
        .done();
    let whole = format!("data: {data}\n\n").into_bytes();
    let pieces = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(Reply::stream(), |reply, byte| reply.piece(vec![*byte]))
    };
    upstream.replies(pieces(&whole).followed_by(end.clone()));
    let answer = proxy
        .k1()
        .stream_with("hi", tools.clone())
        .await
        .answer()
        .await;
    let sent =
        answer.chunks()[0]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].clone();
    assert_eq!(sent, arguments);

    let at = whole.iter().position(|byte| *byte > 0x7f).unwrap();
    let broken = [&whole[..at], &whole[at + 1..]].concat();
    upstream.replies(
        Reply::stream()
            .data(&content("Hm."))
            .piece(broken)
            .followed_by(end),
    );
    let answer = proxy.k1().stream_with("hi", tools).await.answer().await;
    assert_eq!(
        answer.stream_error().code.as_deref(),
        Some("malformed_output")
    );
    assert!(!answer.text().contains('\u{fffd}') && !answer.text().contains("id_a"));
}

#[tokio::test]
async fn large_arguments_in_small_pieces_pass_whole() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let arguments = json!({"text": "x".repeat(300 << 10)}).to_string();
    let part = |text: &[u8]| {
        let text = str::from_utf8(text).unwrap();
        reply::chunk(
            json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}),
            None,
        )
    };
    let first = json!({"index": 0, "id": "id_a", "type": "function", "function": {"name": "note", "arguments": ""}});
    upstream.replies(
        Reply::stream()
            .data(&reply::chunk(json!({"tool_calls": [first]}), None))
            .all_data(arguments.as_bytes().chunks(100).map(part))
            .data(&reply::chunk(json!({}), Some("tool_calls")))
            .done(),
    );
    let tools = json!({"tools": [{"type": "function", "function": {"name": "note"}}]});
    let answer = proxy.k1().stream_with("hi", tools).await.answer().await;
    let sent =
        answer.chunks()[0]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].clone();
    assert_eq!(sent, arguments);
}
