//! What is fuzzed, and what must hold for every input. The targets in `fuzz_targets` call these;
//! so do the tests, over the corpus and over random bytes.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json, value::RawValue};
use tallygate::engine::{
    chain::{Block, Call, Delivery, Judgement},
    chat::{Answer, Body, CallRules, ChatStream, Judge, StreamRules, as_body, as_stream},
    sse::next_event,
};

/// Events follow one another without gaps, and their data is part of them.
pub fn sse(data: &[u8]) {
    let mut at = 0;
    while let Some(event) = next_event(data, at) {
        assert!(event.bytes.start == at && event.bytes.end > at);
        assert!(event.data.iter().all(|line| line.end <= event.bytes.end));
        at = event.bytes.end;
    }
    assert!(at <= data.len());
}

/// A stream of any bytes, cut where its first byte says.
pub fn relay(data: &[u8]) {
    let Some((cut, stream)) = data.split_first() else {
        return;
    };
    for delivery in deliveries() {
        for allows in [true, false] {
            let whole = relayed(stream, stream.len(), allows, delivery);
            let cut = relayed(stream, usize::from(*cut), allows, delivery);
            assert_eq!(whole, cut, "a cut changes nothing");
            check_stream(&whole, allows);
        }
    }
}

/// Pieces of calls, as the bytes say: which member holds what.
pub fn calls(data: &[u8]) {
    let mut stream = String::new();
    for step in data.chunks(4) {
        let at = |nth: usize| usize::from(step.get(nth).copied().unwrap_or(0));
        let pick = |of: &[Value], nth: usize| of[at(nth) % of.len()].clone();
        let index = pick(&[json!(0), json!(1), json!(7), json!("0"), json!(true), Value::Null], 0);
        let id = pick(&[json!("id_1"), json!("id_2"), json!(""), Value::Null], 1);
        let name = pick(&[json!("allowed"), json!("other"), json!("all"), json!("owed"), json!(""), Value::Null], 2);
        let text = pick(&[json!("{}"), json!("{\"a\":"), json!("1}"), json!({"a": 1}), json!(""), Value::Null], 3);
        let call = json!({"index": index, "id": id, "function": {"name": name, "arguments": text}});
        let delta = match at(0) / 8 % 8 {
            0 => json!({"function_call": {"name": name, "arguments": text}}),
            1 => json!({"content": "text", "tool_calls": [call]}),
            2 => json!({"tool_calls": call}),
            3 => json!({"content": "text"}),
            _ => json!({"tool_calls": [call]}),
        };
        let finish = pick(&[json!("stop"), json!("tool_calls"), json!("length")], 3);
        let finish = if at(1) / 8 % 8 == 0 { finish } else { Value::Null };
        let choice = json!({"index": at(2) / 64, "delta": delta, "finish_reason": finish});
        stream += &format!("data: {}\n\n", json!({"id": "chatcmpl-1", "choices": [choice]}));
    }
    stream += "data: [DONE]\n\n";
    for delivery in deliveries() {
        for allows in [true, false] {
            let out = relayed(stream.as_bytes(), stream.len(), allows, delivery);
            check_stream(&out, allows);
        }
    }
}

/// A whole body of any bytes.
pub fn body(data: &[u8]) {
    for delivery in deliveries() {
        for allows in [true, false] {
            let Ok(answer) = Answer::read(&Bytes::copy_from_slice(data), &rules(allows, delivery)) else {
                continue;
            };
            let Body::Send(sent) = answer.body else {
                continue;
            };
            serde_json::from_slice::<&RawValue>(&sent).expect("JSON is sent");
            // Numbers that no float holds are JSON all the same; this reader refuses them.
            if let Ok(value) = serde_json::from_slice::<Value>(&sent) {
                check_event(&value, allows);
            }
            if let Ok(stream) = as_stream(&sent, false) {
                check_stream(&stream, allows);
                let _ = as_body(&stream);
            }
        }
    }
}

fn deliveries() -> [Delivery; 3] {
    let [replace, error, each] = [(false, false), (true, false), (false, true)]
        .map(|(as_error, each)| Delivery { as_error, each });
    [replace, error, each]
}

/// Lets every call pass that is at no fault, or none.
#[derive(Debug)]
struct All(bool);

impl Judge for All {
    fn judge(&self, call: &Call) -> Judgement {
        let allowed = self.0 && call.fault.is_none() && !call.name.is_empty();
        let block = || Block {
            code: "tool_not_allowlisted",
            tool: String::new(),
            rule: String::new(),
            message: String::new(),
            approval: None,
        };
        Judgement {
            tool: call.name.clone(),
            results: Vec::new(),
            arguments: call.arguments.clone(),
            digest: String::new(),
            blocked: (!allowed).then(block),
            paused: None,
        approval: None,
        taken: None,
        inner: Vec::new(),
        }
    }
}

fn rules(allows: bool, delivery: Delivery) -> CallRules {
    CallRules {
        judge: Arc::new(All(allows)),
        delivery,
        policy: "p@1".into(),
        decision: "dec_1".to_owned(),
        rulings: None,
    }
}

fn relayed(stream: &[u8], cut: usize, allows: bool, delivery: Delivery) -> Vec<u8> {
    let mut chat = ChatStream::new(StreamRules {
        hide_usage: stream.len().is_multiple_of(2),
        largest_event: 1 << 16,
        most_withheld: 1 << 16,
        calls: rules(allows, delivery),
    });
    let mut out = Vec::new();
    for piece in stream.chunks(cut.max(1)) {
        chat.feed(Bytes::copy_from_slice(piece), &mut out);
    }
    chat.end(false, &mut out);
    out.concat()
}

/// Whole events, each one JSON or the end, nothing after the end, no call unless allowed.
fn check_stream(out: &[u8], allows: bool) {
    let (mut at, mut over) = (0, false);
    while let Some(event) = next_event(out, at) {
        at = event.bytes.end;
        let data = event.data(out);
        if event.data.is_empty() {
            continue;
        }
        assert!(!over, "something follows the end");
        if data.trim_ascii() == b"[DONE]" {
            over = true;
            continue;
        }
        let value: Value = serde_json::from_slice(&data).expect("an event is JSON");
        assert!(value["choices"].is_array() || value["error"].is_object());
        check_event(&value, allows);
    }
    assert!(out.get(at..).is_some_and(<[u8]>::is_empty), "half an event was sent");
}

fn check_event(value: &Value, allows: bool) {
    for choice in value["choices"].as_array().into_iter().flatten() {
        for part in ["delta", "message"] {
            let calls = choice[part]["tool_calls"].as_array().map_or(0, Vec::len);
            let legacy = choice[part]["function_call"].is_object();
            assert!(allows || (calls == 0 && !legacy), "a denied call left: {value}");
        }
        assert!(choice["tool_calls"].as_array().is_none_or(Vec::is_empty), "{value}");
    }
}
