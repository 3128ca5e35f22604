//! Streams and bodies as a client sees them behind the judge.

mod bodies;
mod fixtures;
mod oddities;
mod random;
mod reader;
mod refusals;
mod reshape;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use self::reader::Seen;
use super::*;
use crate::engine::{
    chain::{Block, Call, CallKind, Delivery, Judgement},
    chat::{Answer, Body, CallRules, Judge, StreamRules, Tally},
};

const DECISION: &str = "dec_0123456789abcdef";

/// What a test's chain says to a call.
type Says = fn(&Call) -> bool;

fn all(_: &Call) -> bool {
    true
}

fn none(_: &Call) -> bool {
    false
}

fn not_delete(call: &Call) -> bool {
    !call.name.starts_with("delete")
}

#[derive(Debug)]
struct Chain(Says);

impl Judge for Chain {
    fn judge(&self, call: &Call) -> Judgement {
        let code = match call.fault {
            Some(_) => Some("malformed_output"),
            None if (self.0)(call) => None,
            None => Some("tool_not_allowlisted"),
        };
        Judgement {
            tool: call.tool(),
            digest: String::new(),
            paused: None,
            approval: None,
            taken: None,
            inner: Vec::new(),
            results: Vec::new(),
            arguments: call.arguments.clone(),
            blocked: code.map(|code| Block {
                code,
                tool: call.name.clone(),
                rule: code.to_owned(),
                message: call.fault.unwrap_or("It is not allowed.").to_owned(),
                approval: None,
            }),
        }
    }
}

fn call_rules(allows: Says, delivery: Delivery) -> CallRules {
    CallRules {
        judge: Arc::new(Chain(allows)),
        delivery,
        decision: DECISION.to_owned(),
        rulings: None,
        policy: "test@1".into(),
    }
}

fn rules(allows: Says, delivery: Delivery) -> StreamRules {
    StreamRules {
        hide_usage: false,
        largest_event: 1 << 20,
        most_withheld: 1 << 20,
        calls: call_rules(allows, delivery),
    }
}

/// What came of a stream that arrives in pieces of `size` bytes.
fn run(bytes: &[u8], size: usize, rules: StreamRules) -> Seen {
    let mut stream = ResponsesStream::new(rules);
    let mut out = Vec::new();
    for piece in bytes.chunks(size.max(1)) {
        stream.feed(Bytes::copy_from_slice(piece), &mut out);
    }
    stream.end(false, &mut out);
    Seen::new(&out.concat(), stream.tally().clone())
}

fn whole(body: &Bytes, rules: CallRules) -> Answer {
    judge_whole(body, rules).unwrap().0
}

/// The body that the client gets.
fn sent(answer: &Answer) -> Bytes {
    match &answer.body {
        Body::Send(body) => body.clone(),
        other => panic!("{other:?}"),
    }
}

fn stream(events: &[Value]) -> Vec<u8> {
    let frame = |event: &Value| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap()
        )
    };
    events.iter().map(frame).collect::<String>().into_bytes()
}

/// Writes the events of an answer as OpenAI would, numbered.
#[derive(Default)]
struct Script {
    events: Vec<Value>,
    output: Vec<Value>,
}

impl Script {
    fn new() -> Self {
        let mut script = Self::default();
        script
            .event(json!({"type": "response.created", "response": script.response("in_progress")}));
        script
    }

    fn event(&mut self, mut event: Value) -> &mut Self {
        event["sequence_number"] = self.events.len().into();
        self.events.push(event);
        self
    }

    fn response(&self, status: &str) -> Value {
        let usage = (status != "in_progress")
            .then(|| json!({"input_tokens": 20, "output_tokens": 10, "total_tokens": 30}));
        json!({"id": "resp_1", "object": "response", "status": status, "model": "m-1",
            "output": if status == "in_progress" { &[] } else { self.output.as_slice() }, "usage": usage})
    }

    fn text(&mut self, text: &str) -> &mut Self {
        let index = self.output.len();
        let id = format!("msg_{index}");
        let message = |content: Value, status: &str| json!({"type": "message", "id": id, "role": "assistant", "status": status, "content": content});
        let part = |text: &str| json!({"type": "output_text", "annotations": [], "text": text});
        let at = |kind: &str, rest: Value| {
            let mut event =
                json!({"type": kind, "item_id": id, "output_index": index, "content_index": 0});
            let members = rest.as_object().unwrap().clone();
            event.as_object_mut().unwrap().extend(members);
            event
        };
        self.event(json!({"type": "response.output_item.added", "output_index": index, "item": message(json!([]), "in_progress")}));
        self.event(at("response.content_part.added", json!({"part": part("")})));
        for word in text.split_inclusive(' ') {
            self.event(at("response.output_text.delta", json!({"delta": word})));
        }
        self.event(at("response.output_text.done", json!({"text": text})));
        self.event(at(
            "response.content_part.done",
            json!({"part": part(text)}),
        ));
        self.item_done(message(json!([part(text)]), "completed"))
    }

    fn call(&mut self, id: &str, name: &str, arguments: &str) -> &mut Self {
        self.begin_call(id, name, arguments)
            .finish_call(id, name, arguments)
    }

    fn begin_call(&mut self, id: &str, name: &str, arguments: &str) -> &mut Self {
        let index = self.output.len();
        let item = function(id, name, "", "in_progress");
        self.event(
            json!({"type": "response.output_item.added", "output_index": index, "item": item}),
        );
        for piece in arguments.as_bytes().chunks(3) {
            let piece = std::str::from_utf8(piece).unwrap();
            self.event(json!({"type": "response.function_call_arguments.delta", "item_id": format!("fc_{id}"), "output_index": index, "delta": piece}));
        }
        self
    }

    fn finish_call(&mut self, id: &str, name: &str, arguments: &str) -> &mut Self {
        let index = self.output.len();
        self.event(json!({"type": "response.function_call_arguments.done", "item_id": format!("fc_{id}"), "output_index": index, "arguments": arguments}));
        self.item_done(function(id, name, arguments, "completed"))
    }

    /// An item without pieces.
    fn item(&mut self, item: Value) -> &mut Self {
        let index = self.output.len();
        self.event(
            json!({"type": "response.output_item.added", "output_index": index, "item": item}),
        );
        self.item_done(item)
    }

    fn item_done(&mut self, item: Value) -> &mut Self {
        let index = self.output.len();
        self.event(
            json!({"type": "response.output_item.done", "output_index": index, "item": item}),
        );
        self.output.push(item);
        self
    }

    fn end(&mut self, status: &str) -> Vec<u8> {
        let response = self.response(status);
        self.event(json!({"type": format!("response.{status}"), "response": response}));
        stream(&self.events)
    }
}

fn function(id: &str, name: &str, arguments: &str, status: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name, "arguments": arguments, "status": status})
}
