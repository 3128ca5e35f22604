//! Calls as providers really stream them: each way to cut, number and repeat them gives the calls
//! that were meant if they are allowed, and not a byte of them if one is denied.

use serde_json::{Value, json};

use crate::support::{Answer, Reply, Setup, TestProxy, Upstream, reply};

/// A way to stream calls of get_weather, and perhaps of search_docs after it.
struct Dialect {
    name: &'static str,
    /// What stands in `delta.tool_calls`, a list an event.
    pieces: Vec<Value>,
    finish: Option<&'static str>,
    /// Name and arguments of the calls that are meant.
    calls: &'static [(&'static str, &'static str)],
}

const OSLO: &str = r#"{"city":"Oslo"}"#;
const ONE: &[(&str, &str)] = &[("get_weather", OSLO)];
const TWO: &[(&str, &str)] = &[("get_weather", OSLO), ("search_docs", r#"{"q":"tide"}"#)];

fn dialects() -> Vec<Dialect> {
    let first = json!([{"index": 0, "id": "id_a", "type": "function", "function": {"name": "get_weather", "arguments": ""}}]);
    let part = |text: &str| json!([{"index": 0, "function": {"arguments": text}}]);
    let named = |name: &str, text: &str| json!([{"index": 0, "id": "id_a", "function": {"name": name, "arguments": text}}]);
    let whole = |index: Value, id: &str, (name, arguments): (&str, &str)| {
        let mut call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        if !index.is_null() {
            call["index"] = index;
        }
        call
    };
    let one = |name, pieces, finish| Dialect {
        name,
        pieces,
        finish,
        calls: ONE,
    };
    let two = |name, pieces| Dialect {
        name,
        pieces,
        finish: Some("tool_calls"),
        calls: TWO,
    };
    let letters = |index: u64, text: &str| -> Vec<Value> {
        let letters = text
            .chars()
            .map(|letter| json!([{"index": index, "function": {"arguments": letter.to_string()}}]));
        letters.collect()
    };
    let alternating = || {
        let heads = [
            whole(json!(0), "id_a", ("get_weather", "")),
            whole(json!(1), "id_b", ("search_docs", "")),
        ];
        let (a, b) = (letters(0, TWO[0].1), letters(1, TWO[1].1));
        let mut pieces: Vec<Value> = heads.map(|head| json!([head])).into();
        for at in 0..a.len().max(b.len()) {
            pieces.extend([a.get(at), b.get(at)].into_iter().flatten().cloned());
        }
        pieces
    };
    vec![
        one(
            "name first, then pairs of letters (R032)",
            [
                vec![first.clone()],
                OSLO.as_bytes()
                    .chunks(2)
                    .map(|two| part(str::from_utf8(two).unwrap()))
                    .collect(),
            ]
            .concat(),
            Some("tool_calls"),
        ),
        one(
            "no index (R033)",
            vec![json!([whole(Value::Null, "id_a", TWO[0])])],
            Some("tool_calls"),
        ),
        two(
            "no index, a call a chunk (R034)",
            vec![
                json!([whole(Value::Null, "id_a", TWO[0])]),
                json!([whole(Value::Null, "id_b", TWO[1])]),
            ],
        ),
        two(
            "one index for two calls (R035)",
            vec![
                json!([whole(json!(0), "id_a", TWO[0])]),
                json!([whole(json!(0), "id_b", TWO[1])]),
            ],
        ),
        two("pieces that alternate (R036)", alternating()),
        two(
            "all in one chunk (R037)",
            vec![json!([
                whole(json!(0), "id_a", TWO[0]),
                whole(json!(1), "id_b", TWO[1])
            ])],
        ),
        one(
            "an empty name before the real one (R038)",
            vec![named("", ""), named("get_weather", OSLO)],
            Some("tool_calls"),
        ),
        one(
            "empty names after the real one (R039)",
            [
                vec![named("get_weather", "")],
                letters(0, OSLO)
                    .into_iter()
                    .map(|mut piece| {
                        piece[0]["function"]["name"] = json!("");
                        piece
                    })
                    .collect(),
            ]
            .concat(),
            Some("tool_calls"),
        ),
        one(
            "the name in two pieces (R040)",
            vec![named("get_", ""), named("weather", OSLO)],
            Some("tool_calls"),
        ),
        one(
            "the name again and again (R040)",
            ["{\"ci", "ty\":", "\"Os", "lo", "\"}"]
                .map(|text| named("get_weather", text))
                .into(),
            Some("tool_calls"),
        ),
        one(
            "finished by stop (R043)",
            vec![json!([whole(json!(0), "id_a", TWO[0])])],
            Some("stop"),
        ),
        one(
            "not finished at all (R043)",
            vec![json!([whole(json!(0), "id_a", TWO[0])])],
            None,
        ),
    ]
}

impl Dialect {
    fn reply(&self) -> Reply {
        let role = reply::chunk(json!({"role": "assistant", "content": null}), None);
        let pieces = self
            .pieces
            .iter()
            .map(|piece| reply::chunk(json!({"tool_calls": piece}), None));
        let mut chunks: Vec<Value> = [role].into_iter().chain(pieces).collect();
        // In the chunk of the calls, if there is one only.
        if self.pieces.len() == 1 {
            chunks[1]["choices"][0]["finish_reason"] = json!(self.finish);
        } else if self.finish.is_some() {
            chunks.push(reply::chunk(json!({}), self.finish));
        }
        Reply::stream().all_data(chunks).done()
    }
}

fn offer(names: &[&str]) -> Value {
    let tool = |name: &&str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let tools: Value = names.iter().map(tool).collect();
    json!({"tools": tools})
}

/// What a client library makes of the pieces. Fails on whatever libraries differ about: a call
/// without index, id or name at its beginning, and any of them in a later piece.
fn assembled(answer: &Answer) -> Vec<(String, String, String)> {
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for chunk in answer.chunks() {
        let pieces = chunk["choices"][0]["delta"]["tool_calls"]
            .as_array()
            .cloned();
        for piece in pieces.into_iter().flatten() {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let (id, name) = (text(&piece["id"]), text(&piece["function"]["name"]));
            let arguments = text(&piece["function"]["arguments"]).expect("arguments");
            let index = usize::try_from(piece["index"].as_u64().expect("an index")).unwrap();
            if index == calls.len() {
                assert_eq!(piece["type"], "function");
                calls.push((id.expect("an id"), name.expect("a name"), arguments));
            } else {
                assert_eq!((id, name), (None, None), "told once");
                calls[index].2 += &arguments;
            }
        }
    }
    calls
}

async fn asks(proxy: &TestProxy, offered: &[&str]) -> Answer {
    proxy
        .k1()
        .stream_with("hi", offer(offered))
        .await
        .answer()
        .await
}

#[tokio::test]
async fn in_every_dialect_allowed_calls_arrive_as_they_were_meant() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for dialect in dialects() {
        upstream.replies(dialect.reply());
        let answer = asks(&proxy, &["get_weather", "search_docs"]).await;
        let calls = assembled(&answer);
        let got: Vec<_> = calls
            .iter()
            .map(|(_, name, arguments)| (name.as_str(), arguments.as_str()))
            .collect();
        assert_eq!(got, dialect.calls, "{}", dialect.name);
        let ids: Vec<&str> = calls.iter().map(|(id, ..)| id.as_str()).collect();
        assert_eq!(ids, ["id_a", "id_b"][..ids.len()], "{}", dialect.name);
        let finish = dialect.finish.unwrap_or("tool_calls");
        assert_eq!(
            answer.finish_reason().as_deref(),
            Some(finish),
            "{}",
            dialect.name
        );
        assert!(answer.is_done(), "{}", dialect.name);
    }
}

#[tokio::test]
async fn in_no_dialect_a_byte_of_a_denied_call_leaves() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for (count, dialect) in dialects().into_iter().enumerate() {
        // The last call is the one that nobody offered.
        let offered: &[&str] = if dialect.calls.len() == 2 {
            &["get_weather"]
        } else {
            &["search_docs"]
        };
        upstream.replies(dialect.reply());
        let answer = asks(&proxy, offered).await;
        assert_eq!(assembled(&answer), [], "{}", dialect.name);
        for secret in ["id_a", "id_b", "Oslo", "tide", "tool_calls"] {
            assert!(
                !answer.text().contains(secret),
                "{}: {secret} in {}",
                dialect.name,
                answer.text()
            );
        }
        let (denied, _) = dialect.calls.last().unwrap();
        let told = format!("\"{denied}\" (unknown_tool)");
        assert!(
            answer.content().contains(&told),
            "{}: {}",
            dialect.name,
            answer.content()
        );
        assert_eq!(
            answer.finish_reason().as_deref(),
            Some("stop"),
            "{}",
            dialect.name
        );
        let judged = proxy.records("call_judged", count + 1).await.pop().unwrap();
        assert_eq!(judged["delivered"], false, "{}", dialect.name);
    }
}

/// The third form of R040: what was allowed is a beginning of what a client would put together.
#[tokio::test]
async fn no_name_can_be_built_that_was_not_judged() {
    let upstream = Upstream::start().await;
    let piece = |name: &str| json!({"tool_calls": [{"index": 0, "id": "id_a", "function": {"name": name, "arguments": ""}}]});
    let pieces = ["search", "_docs_admin"].map(|name| reply::chunk(piece(name), None));
    let end = reply::chunk(json!({}), Some("tool_calls"));
    upstream.replies(Reply::stream().all_data(pieces).data(&end).done());
    let proxy = TestProxy::to(&upstream).await;
    let answer = asks(&proxy, &["search"]).await;
    assert_eq!(assembled(&answer), []);
    assert!(
        answer.content().contains("Blocked by Tallygate"),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn empty_members_beside_text_are_no_calls_and_hold_nothing_back() {
    let upstream = Upstream::start().await;
    let gate = crate::support::Gate::new();
    let mut last = reply::chunk(Value::Null, Some("stop"));
    last["choices"][0]["delta"] = Value::Null;
    let text = |text: &str, calls: Value| {
        reply::chunk(json!({"content": text, "tool_calls": calls}), None)
    };
    upstream.replies(
        Reply::stream()
            .data(&text("one ", Value::Null))
            .data(&text("two ", json!([])))
            .wait(&gate)
            .data(&text("three", Value::Null))
            .data(&last)
            .done(),
    );
    let proxy = TestProxy::to(&upstream).await;
    let mut open = proxy.k1().stream_with("hi", offer(&["get_weather"])).await;
    let before = open.until("two ").await;
    assert!(before.contains("one "));
    gate.open();
    let answer = open.answer().await;
    assert_eq!(answer.content(), "three");
    assert_eq!(answer.finish_reason().as_deref(), Some("stop"));
    assert!(answer.is_done());
    assert_eq!(proxy.last_settled(1).await["tool_calls"], 0);
}

#[tokio::test]
async fn text_beside_a_denied_call_is_kept_and_told_once() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for said in ["One moment.", ""] {
        let call = json!({"index": 0, "id": "id_a", "function": {"name": "delete_account", "arguments": "{\"of\":\"secret\"}"}});
        let both = reply::chunk(json!({"content": said, "tool_calls": [call]}), None);
        let end = reply::chunk(json!({}), Some("tool_calls"));
        upstream.replies(Reply::stream().data(&both).data(&end).done());
        let answer = asks(&proxy, &["get_weather"]).await;
        let content = answer.content();
        assert!(
            content.starts_with(said) && content.contains("\"delete_account\" (unknown_tool)"),
            "{content}"
        );
        assert_eq!(
            content.matches("One moment.").count(),
            usize::from(!said.is_empty())
        );
        for secret in ["id_a", "secret"] {
            assert!(!answer.text().contains(secret));
        }
    }
}

#[tokio::test]
async fn legacy_calls_are_judged_whole_streamed_and_beside_others() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let denied = json!({"name": "delete_account", "arguments": "{\"of\":\"secret\"}"});
    let allowed = json!([{"index": 0, "id": "id_a", "type": "function", "function": {"name": "get_weather", "arguments": OSLO}}]);
    for message in [
        json!({"role": "assistant", "content": null, "function_call": denied}),
        json!({"role": "assistant", "content": null, "function_call": denied, "tool_calls": allowed}),
    ] {
        let mut body = reply::completion("", reply::usage(10, 5));
        body["choices"][0]["message"] = message.clone();
        body["choices"][0]["finish_reason"] = json!("function_call");
        upstream.replies(Reply::json(200, &body));
        let whole = proxy.k1().chat_with("hi", offer(&["get_weather"])).await;
        let end = reply::chunk(json!({}), Some("function_call"));
        upstream.replies(
            Reply::stream()
                .data(&reply::chunk(message, None))
                .data(&end)
                .done(),
        );
        let streamed = asks(&proxy, &["get_weather"]).await;
        for answer in [whole, streamed] {
            assert!(
                answer
                    .content()
                    .contains("\"delete_account\" (unknown_tool)"),
                "{}",
                answer.text()
            );
            for secret in ["secret", "id_a", "function_call", "tool_calls"] {
                assert!(
                    !answer.text().contains(secret),
                    "{secret} in {}",
                    answer.text()
                );
            }
            assert_eq!(answer.finish_reason().as_deref(), Some("stop"));
        }
    }
}

/// It is text by the protocol, and the README says that it passes.
#[tokio::test]
async fn a_call_that_is_written_as_text_is_text() {
    let upstream = Upstream::start().await;
    let text = "<tool_call>{\"name\":\"delete_account\"}</tool_call>";
    upstream.says(text, reply::usage(10, 5));
    let proxy = TestProxy::start(Setup::to(&upstream).k1("[tools]\nallow = []")).await;
    assert_eq!(proxy.k1().chat("hi").await.content(), text);
    let streamed = proxy.k1().stream("hi").await.answer().await;
    assert_eq!(
        (streamed.content().as_str(), streamed.is_done()),
        (text, true)
    );
}
