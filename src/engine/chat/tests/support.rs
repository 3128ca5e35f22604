//! A judge with rules as small as the tests, streams written by hand, and what a client makes
//! of an answer.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::engine::{
    chain::{Block, Call, Delivery, Judgement},
    chat::{CallRules, ChatStream, Judge, Judged, StreamRules, Tally},
    sse::next_event,
};

pub const DONE: &str = "data: [DONE]\n\n";

/// Lets calls of these names pass if their arguments are an object.
#[derive(Debug, Clone)]
pub struct Allows(pub &'static [&'static str]);

impl Judge for Allows {
    fn judge(&self, call: &Call) -> Judgement {
        let function = call.kind == crate::engine::chain::CallKind::Function;
        let empty = call.arguments.trim().is_empty();
        let object = || serde_json::from_str::<serde_json::Map<String, Value>>(&call.arguments);
        let arguments = if function && empty {
            "{}".to_owned()
        } else {
            call.arguments.clone()
        };
        let broken = function && !empty && object().is_err();
        let fault = call
            .fault
            .or(broken.then_some("The arguments are no object."));
        let (code, message) = match fault {
            Some(fault) => ("malformed_output", fault),
            None if self.0.contains(&call.name.as_str()) => {
                return judgement(call, arguments, None);
            }
            None => ("tool_not_allowlisted", "Not allowed."),
        };
        let block = Block {
            code,
            tool: call.name.clone(),
            rule: code.to_owned(),
            message: message.to_owned(),
            approval: None,
        };
        judgement(call, arguments, Some(block))
    }
}

fn judgement(call: &Call, arguments: String, blocked: Option<Block>) -> Judgement {
    Judgement {
        tool: call.name.clone(),
        results: Vec::new(),
        arguments,
        digest: String::new(),
        blocked,
        paused: None,
        approval: None,
        taken: None,
        inner: Vec::new(),
    }
}

pub fn call_rules(allowed: &'static [&'static str], delivery: Delivery) -> CallRules {
    CallRules {
        judge: Arc::new(Allows(allowed)),
        delivery,
        policy: "p@1".into(),
        decision: "dec_1".to_owned(),
        rulings: None,
    }
}

pub fn rules() -> StreamRules {
    rules_for(&["a", "b", "read_file"], Delivery::default())
}

pub fn rules_for(allowed: &'static [&'static str], delivery: Delivery) -> StreamRules {
    StreamRules {
        hide_usage: false,
        largest_event: 1 << 20,
        most_withheld: 1 << 20,
        calls: call_rules(allowed, delivery),
    }
}

pub fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// A chunk with one choice.
pub fn chunk(index: u64, delta: Value, finish: Option<&str>) -> String {
    event(
        &json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m",
        "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}),
    )
}

pub fn text(text: &str) -> String {
    chunk(0, json!({"content": text}), None)
}

pub fn pieces(calls: Value) -> String {
    chunk(0, json!({"tool_calls": calls}), None)
}

pub fn finish(reason: &str) -> String {
    chunk(0, json!({}), Some(reason))
}

/// What came out of a stream, and what is known of it.
#[derive(Debug)]
pub struct Relayed {
    pub out: String,
    pub tally: Tally,
    pub judged: Vec<Judged>,
    pub refused: Vec<Block>,
}

pub fn relay(rules: StreamRules, stream: &str) -> Relayed {
    relay_cut(rules, stream.as_bytes(), &[])
}

pub fn relay_cut(rules: StreamRules, stream: &[u8], cuts: &[usize]) -> Relayed {
    let mut chat = ChatStream::new(rules);
    let mut out = Vec::new();
    let mut from = 0;
    for to in cuts.iter().copied().chain([stream.len()]) {
        chat.feed(Bytes::copy_from_slice(&stream[from..to]), &mut out);
        from = to;
    }
    chat.end(false, &mut out);
    Relayed {
        out: String::from_utf8(out.concat()).unwrap(),
        tally: chat.tally().clone(),
        judged: chat.take_judged(),
        refused: chat.refused().to_vec(),
    }
}

/// A choice as a client puts it together that expects the canonical form.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Seen {
    pub text: String,
    /// Name, id, arguments.
    pub calls: Vec<(String, String, String)>,
    pub function_call: Option<(String, String)>,
    pub finish: Option<String>,
}

impl Relayed {
    pub fn events(&self) -> Vec<Value> {
        let (bytes, mut at) = (self.out.as_bytes(), 0);
        let mut events = Vec::new();
        while let Some(event) = next_event(bytes, at) {
            at = event.bytes.end;
            let data = event.data(bytes);
            if !event.data.is_empty() && &*data != b"[DONE]" {
                events.push(serde_json::from_slice(&data).unwrap());
            }
        }
        assert_eq!(at, bytes.len(), "half an event was sent");
        events
    }

    pub fn is_done(&self) -> bool {
        self.out.ends_with(DONE)
    }

    /// Reads the canonical form and fails on any other.
    pub fn choices(&self) -> BTreeMap<u64, Seen> {
        let mut choices: BTreeMap<u64, Seen> = BTreeMap::new();
        for event in self.events() {
            for choice in event["choices"].as_array().into_iter().flatten() {
                let index = choice["index"].as_u64().unwrap_or(0);
                let seen = choices.entry(index).or_default();
                seen.read(choice);
            }
        }
        choices
    }

    pub fn first(&self) -> Seen {
        self.choices().remove(&0).unwrap_or_default()
    }
}

impl Seen {
    fn read(&mut self, choice: &Value) {
        let delta = &choice["delta"];
        self.text += delta["content"].as_str().unwrap_or_default();
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            assert_eq!(call["index"], self.calls.len(), "no gap, no piece");
            let kind = call["type"].as_str().unwrap();
            let input = if kind == "custom" {
                "input"
            } else {
                "arguments"
            };
            let of = |value: &Value| value.as_str().unwrap().to_owned();
            let id = of(&call["id"]);
            assert!(!id.is_empty() && self.calls.iter().all(|(_, other, _)| *other != id));
            self.calls
                .push((of(&call[kind]["name"]), id, of(&call[kind][input])));
        }
        if let Some(call) = delta["function_call"].as_object() {
            assert!(self.function_call.is_none() && self.calls.is_empty());
            let of = |name: &str| call[name].as_str().unwrap().to_owned();
            self.function_call = Some((of("name"), of("arguments")));
        }
        let finish = choice["finish_reason"].as_str();
        if let Some(finish) = finish.filter(|finish| !finish.is_empty()) {
            self.finish = Some(finish.to_owned());
        }
    }

    /// The calls without their ids.
    pub fn called(&self) -> Vec<(&str, &str)> {
        self.calls
            .iter()
            .map(|(name, _, arguments)| (name.as_str(), arguments.as_str()))
            .collect()
    }
}
