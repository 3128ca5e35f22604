//! Streams: every piece of text at once, exact accounts, and an ending that a client can tell.

use serde_json::{Value, json};

use crate::support::{Answer, Gate, Reply, Setup, TestProxy, Upstream, packed, reply};

pub fn content(text: &str) -> Value {
    reply::chunk(json!({"content": text}), None)
}

/// What k1 gets for it.
pub async fn streamed(reply: Reply) -> Answer {
    let upstream = Upstream::start().await;
    upstream.replies(reply);
    let proxy = TestProxy::to(&upstream).await;
    proxy.k1().stream("hi").await.answer().await
}

#[tokio::test]
async fn text_leaves_when_it_arrives() {
    let upstream = Upstream::start().await;
    let gates = [Gate::new(), Gate::new(), Gate::new()];
    let mut reply = Reply::stream();
    for (word, gate) in ["one", "two", "three"].into_iter().zip(&gates) {
        reply = reply.data(&content(word)).wait(gate);
    }
    upstream.replies(reply.data(&reply::chunk(json!({}), Some("stop"))).done());
    let proxy = TestProxy::to(&upstream).await;
    let mut open = proxy.k1().stream("hi").await;
    for (word, gate) in ["one", "two", "three"].into_iter().zip(&gates) {
        open.until(word).await;
        gate.open();
    }
    assert!(open.answer().await.is_done());
}

#[tokio::test]
async fn stream_headers_keep_proxies_in_front_from_buffering() {
    let answer = streamed(Reply::stream().data(&content("hi")).done()).await;
    assert!(answer.is_stream());
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
}

#[tokio::test]
async fn a_stream_is_charged_like_the_same_answer_whole() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    proxy.k1().chat("hi").await;
    proxy.k1().stream("hi").await.answer().await;
    let records = proxy.settled(2).await;
    for member in [
        "input_tokens",
        "output_tokens",
        "cost_nano_usd",
        "estimated",
        "outcome",
    ] {
        assert_eq!(records[0][member], records[1][member], "{member}");
    }
}

#[tokio::test]
async fn the_usage_chunk_reaches_only_clients_that_asked_for_it() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let cases = [
        (json!({}), 0),
        (json!({"stream_options": {"include_usage": false}}), 0),
        (json!({"stream_options": {"include_usage": true}}), 1),
    ];
    for (members, wanted) in cases {
        let answer = proxy
            .k1()
            .stream_with("hi", members.clone())
            .await
            .answer()
            .await;
        let chunks = answer.chunks();
        let empty = chunks
            .iter()
            .filter(|chunk| chunk["choices"] == json!([]))
            .count();
        assert_eq!(empty, wanted, "{members}");
        assert_eq!(
            (answer.content().as_str(), answer.is_done()),
            ("Hello there.", true)
        );
        if wanted == 1 {
            assert_eq!(chunks.last().unwrap()["usage"], reply::usage(10, 5));
        } else {
            assert!(
                chunks.iter().all(|chunk| chunk.get("usage").is_none()),
                "{members}"
            );
        }
    }
    let records = proxy.settled(3).await;
    assert!(
        records
            .iter()
            .all(|record| record["cost_nano_usd"] == records[0]["cost_nano_usd"])
    );
}

/// Whoever asked for it, also where we do not ask.
#[tokio::test]
async fn a_usage_chunk_that_always_comes_reaches_only_clients_that_asked_for_it() {
    for provider in ["stream_usage = true", "stream_usage = false"] {
        let upstream = Upstream::start().await;
        upstream.replies(
            Reply::stream()
                .data(&content("Hello there."))
                .data(&reply::chunk(json!({}), Some("stop")))
                .data(&reply::usage_chunk(reply::usage(10, 5)))
                .done(),
        );
        let proxy = TestProxy::start(Setup::to(&upstream).provider(provider)).await;
        for (members, wanted) in [
            (json!({}), 0),
            (json!({"stream_options": {"include_usage": false}}), 0),
            (json!({"stream_options": {"include_usage": true}}), 1),
        ] {
            let open = proxy.k1().stream_with("hi", members.clone()).await;
            let answer = open.answer().await;
            let chunks = answer.chunks().into_iter();
            let empty = chunks.filter(|chunk| chunk["choices"] == json!([])).count();
            assert_eq!(empty, wanted, "{provider} {members}");
            assert!(answer.is_done());
        }
        for record in proxy.settled(3).await {
            assert_eq!(record["cost_nano_usd"], 30_000, "{provider}");
        }
    }
}

#[tokio::test]
async fn a_daily_limit_ends_streams_where_it_ends_whole_answers() {
    for stream in [false, true] {
        let upstream = Upstream::start().await;
        upstream.says("Hi.", reply::usage(50, 100));
        let setup = Setup::to(&upstream).k1("[budget]\ndaily_tokens = 450");
        let proxy = TestProxy::start(setup).await;
        for status in [200, 200, 200, 402] {
            let members = json!({"stream": stream, "max_tokens": 100});
            let answer = proxy.k1().chat_with("hi", members).await;
            assert_eq!(answer.status, status, "stream {stream}");
        }
    }
}

/// Longer than each of its limits, and never silent for as long.
#[tokio::test]
async fn a_stream_is_not_cut_while_data_flows() {
    let upstream = Upstream::start().await;
    let gates: Vec<Gate> = (0..8).map(|_| Gate::new()).collect();
    let mut reply = Reply::stream();
    for gate in &gates {
        reply = reply.data(&content("word ")).wait(gate);
    }
    upstream.replies(reply.data(&reply::chunk(json!({}), Some("stop"))).done());
    let limits = "connect_timeout = \"1s\"\nfirst_byte_timeout = \"1s\"\nidle_timeout = \"1s\"";
    let proxy = TestProxy::start(Setup::to(&upstream).provider(limits)).await;
    let mut open = proxy.k1().stream("hi").await;
    for gate in &gates {
        open.until("word ").await;
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        gate.open();
    }
    let answer = open.answer().await;
    assert!(answer.is_done() && answer.finish_reason().is_some());
}

#[tokio::test]
async fn members_of_a_stream_that_nobody_knows_reach_the_client() {
    let upstream = Upstream::start().await;
    let mut text = reply::chunk(
        json!({"content": "Hi.", "reasoning_content": "thinking", "annotations": [{"a": 1.10}]}),
        None,
    );
    text["x_vendor"] = json!({"a": [1.10, null]});
    text["service_tier"] = json!("default");
    let call = json!([{"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]);
    let beside = reply::chunk(
        json!({"reasoning_content": "more", "tool_calls": call}),
        None,
    );
    let end = reply::chunk(json!({}), Some("tool_calls"));
    upstream.replies(Reply::stream().data(&text).data(&beside).data(&end).done());
    let proxy = TestProxy::to(&upstream).await;
    let tools = json!([{"type": "function", "function": {"name": "get_weather"}}]);
    let open = proxy.k1().stream_with("hi", json!({"tools": tools})).await;
    let chunks = open.answer().await.chunks();
    assert_eq!(chunks[0], text);
    let deltas = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
    let thought: String = deltas
        .filter_map(|delta| delta["reasoning_content"].as_str())
        .collect();
    assert_eq!(thought, "thinkingmore");
}

#[tokio::test]
async fn a_provider_that_cannot_report_usage_is_not_asked_to() {
    let upstream = Upstream::start().await;
    upstream.replies_with(|request| match request.json().get("stream_options") {
        Some(_) => Reply::error(400, "unknown_parameter", "stream_options is unknown"),
        None => Reply::says("Hello there.", Value::Null, request),
    });
    let proxy = TestProxy::start(Setup::to(&upstream).provider("stream_usage = false")).await;
    let answer = proxy.k1().stream("hi").await.answer().await;
    assert_eq!(
        (answer.status, answer.content().as_str()),
        (200, "Hello there.")
    );
    let record = proxy.last_settled(1).await;
    assert_eq!(record["estimated"], true);
    assert!(record["cost_nano_usd"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn hanging_up_before_the_usage_chunk_is_not_free() {
    let upstream = Upstream::start().await;
    let words = (0..100).map(|_| content("word "));
    upstream.replies(
        Reply::stream()
            .all_data(words)
            .data(&content("last"))
            .hang(),
    );
    let proxy = TestProxy::to(&upstream).await;
    for count in 1..=10 {
        let mut open = proxy.k1().stream("hi").await;
        open.until("last").await;
        drop(open);
        upstream.left_early(count).await;
    }
    for record in proxy.settled(10).await {
        assert_eq!(
            (&record["outcome"], &record["estimated"]),
            (&json!("client_gone"), &json!(true))
        );
        let output = record["output_tokens"].as_u64().unwrap();
        assert!(
            (90..=600).contains(&output),
            "{output} tokens for 101 words"
        );
        assert!(record["cost_nano_usd"].as_u64().unwrap() > 0);
    }
}

#[tokio::test]
async fn a_failed_stream_costs_what_was_delivered_not_the_worst_case() {
    let upstream = Upstream::start().await;
    let error = json!({"error": {"message": "overloaded", "type": "server_error", "code": null}});
    let texts = ["some ", "text ", "came "].map(content);
    upstream.replies(
        Reply::stream()
            .all_data(texts)
            .piece(format!("event: error\ndata: {error}\n\n")),
    );
    let proxy = TestProxy::to(&upstream).await;
    let open = proxy
        .k1()
        .stream_with("hi", json!({"max_tokens": 50_000}))
        .await;
    let answer = open.answer().await;
    assert_eq!(answer.stream_error().message, "overloaded");
    assert_eq!(answer.finish_reason(), None);
    let record = proxy.last_settled(1).await;
    let cost = record["cost_nano_usd"].as_u64().unwrap();
    assert!((1..1_000_000).contains(&cost), "{cost}");
    assert_eq!(
        (&record["outcome"], &record["estimated"]),
        (&json!("upstream_failed"), &json!(true))
    );
}

#[tokio::test]
async fn a_complete_answer_without_done_ends_properly() {
    let upstream = Upstream::start().await;
    let reply = Reply::stream()
        .data(&content("hi"))
        .data(&reply::chunk(json!({}), Some("stop")));
    upstream.replies(reply);
    let proxy = TestProxy::to(&upstream).await;
    let answer = proxy.k1().stream("hi").await.answer().await;
    assert_eq!((answer.content().as_str(), answer.is_done()), ("hi", true));
    assert_eq!(proxy.last_settled(1).await["outcome"], "completed");
}

#[tokio::test]
async fn an_answer_that_breaks_off_ends_in_an_error_and_no_done() {
    let begun = || Reply::stream().data(&content("half an "));
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for (count, reply) in [begun(), begun().cut(), begun().reset()]
        .into_iter()
        .enumerate()
    {
        upstream.replies(reply);
        let answer = proxy.k1().stream("hi").await.answer().await;
        assert_eq!(answer.content(), "half an ");
        assert!(!answer.stream_error().message.is_empty());
        assert_eq!((answer.finish_reason(), answer.is_done()), (None, false));
        let record = proxy.last_settled(count + 1).await;
        assert_eq!(
            (&record["outcome"], &record["estimated"]),
            (&json!("upstream_failed"), &json!(true))
        );
        assert!(record["output_tokens"].as_u64().unwrap() > 0);
    }
}

#[tokio::test]
async fn half_a_call_is_never_delivered() {
    let call = |function: Value| {
        let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
        reply::chunk(json!({"tool_calls": [call]}), None)
    };
    let reply = Reply::stream()
        .data(&content("Let me see."))
        .data(&call(json!({"name": "get_weather", "arguments": ""})))
        .data(&call(json!({"arguments": "{\"city\":"})))
        .cut();
    let answer = streamed(reply).await;
    assert_eq!(answer.content(), "Let me see.");
    assert!(!answer.text().contains("get_weather") && !answer.text().contains("city"));
    answer.stream_error();
}

#[tokio::test]
async fn a_whole_call_arrives_as_the_provider_meant_it() {
    let fragment = |function: Value| {
        let call = json!({"index": 0, "function": function});
        reply::chunk(json!({"tool_calls": [call]}), None)
    };
    let first = json!({"index": 0, "id": "call_1", "type": "function",
        "function": {"name": "get_weather", "arguments": ""}});
    let pieces = ["{\"ci", "ty\":", "\"Oslo", "\"}"];
    let reply = Reply::stream()
        .data(&reply::chunk(json!({"tool_calls": [first]}), None))
        .all_data(pieces.map(|piece| fragment(json!({"arguments": piece}))))
        .data(&reply::chunk(json!({}), Some("tool_calls")))
        .done();
    let upstream = Upstream::start().await;
    upstream.replies(reply);
    let proxy = TestProxy::to(&upstream).await;
    let tool = json!({"type": "function", "function": {"name": "get_weather"}});
    let open = proxy.k1().stream_with("hi", json!({"tools": [tool]})).await;
    let answer = open.answer().await;
    let chunks = answer.chunks();
    let calls: Vec<_> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array())
        .collect();
    let arguments: String = calls
        .iter()
        .map(|calls| calls[0]["function"]["arguments"].as_str().unwrap())
        .collect();
    assert_eq!(calls[0][0]["id"], "call_1");
    assert_eq!(calls[0][0]["function"]["name"], "get_weather");
    assert_eq!(arguments, "{\"city\":\"Oslo\"}");
    assert_eq!(answer.finish_reason().as_deref(), Some("tool_calls"));
}

#[tokio::test]
async fn an_error_before_any_text_is_answered_with_a_status() {
    let upstream = Upstream::start().await;
    let error = json!({"error": {"message": "too many", "code": "1302"}});
    upstream.replies(Reply::stream().data(&error).done());
    let proxy = TestProxy::to(&upstream).await;
    let answer = proxy.k1().stream("hi").await.answer().await;
    assert!(answer.error().message.contains("too many"));
    let record = proxy.last_settled(1).await;
    assert_eq!(record["cost_nano_usd"], 0);
    assert_ne!(record["outcome"], "completed");
}

#[tokio::test]
async fn an_error_status_to_a_stream_request_stays_a_json_error() {
    for status in [400, 429, 503] {
        let answer = streamed(Reply::error(status, "some_code", "No.")).await;
        let error = answer.error();
        assert_eq!((answer.status, error.message.as_str()), (status, "No."));
        assert_eq!(error.code.as_deref(), Some("some_code"));
    }
}

#[tokio::test]
async fn a_json_answer_to_a_stream_request_is_counted() {
    let upstream = Upstream::start().await;
    upstream.replies(Reply::json(
        200,
        &reply::completion("Hi.", reply::usage(10, 5)),
    ));
    let proxy = TestProxy::to(&upstream).await;
    let answer = proxy.k1().stream("hi").await.answer().await;
    assert_eq!((answer.status, answer.content().as_str()), (200, "Hi."));
    assert_eq!(proxy.last_settled(1).await["cost_nano_usd"], 30_000);
}

#[tokio::test]
async fn compressed_answers_are_read_and_reach_the_client_readable() {
    let plain = [
        content("Hello there."),
        reply::chunk(json!({}), Some("stop")),
    ];
    let mut events: String = plain
        .iter()
        .map(|data| format!("data: {data}\n\n"))
        .collect();
    events += "data: [DONE]\n\n";
    let whole = reply::completion("Hello there.", reply::usage(1, 1)).to_string();
    for coding in ["gzip", "deflate", "br", "zstd"] {
        let upstream = Upstream::start().await;
        let proxy = TestProxy::to(&upstream).await;
        let packed = |reply: Reply, plain: &str| {
            let reply = reply.header("content-encoding", coding);
            reply.piece(packed(coding, plain.as_bytes()))
        };
        upstream.replies_once(packed(Reply::stream(), &events));
        let streamed = proxy.k1().stream("hi").await.answer().await;
        assert!(streamed.is_done(), "{coding}: {}", streamed.text());
        upstream.replies_once(packed(Reply::new(200, "application/json"), &whole));
        for answer in [streamed, proxy.k1().chat("hi").await] {
            assert_eq!(answer.header("content-encoding"), None);
            assert_eq!(answer.content(), "Hello there.", "{coding}");
        }
        let asked = upstream.last_request();
        assert_eq!(asked.header("accept-encoding"), Some("identity"));
    }
}

/// A few kilobytes that unpack to more than an answer may have.
#[tokio::test]
async fn an_answer_that_unpacks_without_end_is_given_up() {
    for coding in ["gzip", "deflate", "br", "zstd"] {
        let bomb = packed(coding, &vec![b' '; 80 << 20]);
        let upstream = Upstream::start().await;
        upstream.replies_with(move |request| {
            let streamed = request.json()["stream"] == true;
            let reply = if streamed {
                Reply::stream()
            } else {
                Reply::new(200, "application/json")
            };
            reply.header("content-encoding", coding).piece(bomb.clone())
        });
        let proxy = TestProxy::to(&upstream).await;
        for stream in [false, true] {
            let answer = proxy.k1().chat_with("hi", json!({"stream": stream})).await;
            assert_eq!(answer.status, 502, "{coding}");
            answer.error();
        }
    }
}

#[tokio::test]
async fn an_answer_in_a_coding_we_cannot_read_is_refused() {
    for reply in [Reply::stream(), Reply::new(200, "application/json")] {
        let answer = streamed(
            reply
                .header("content-encoding", "lz9")
                .piece("\u{1}unreadable"),
        )
        .await;
        assert_eq!(answer.status, 502);
        answer.error();
        assert!(!answer.text().contains("unreadable"));
    }
}
