//! The Responses form of an answer.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    Script, Step,
    plan::{Part, Plan},
    request::Asked,
};

pub(super) fn script(asked: Asked, plan: Plan, id_seed: u128, created: u64) -> Script {
    let mut writer = Writer {
        asked,
        plan,
        id_seed,
        created,
        open_text: None,
        output: Vec::new(),
        sequence: 0,
        steps: Vec::new(),
    };
    writer.write();
    if writer.asked.stream {
        writer.into_stream()
    } else {
        writer.into_whole()
    }
}

/// Writes the events in order and collects the finished items on the way.
struct Writer {
    asked: Asked,
    plan: Plan,
    id_seed: u128,
    created: u64,
    /// What the open message says so far.
    open_text: Option<String>,
    output: Vec<Value>,
    sequence: u64,
    steps: Vec<Step>,
}

impl Writer {
    fn write(&mut self) {
        self.response_event("response.created", "in_progress");
        self.response_event("response.in_progress", "in_progress");
        let parts = std::mem::take(&mut self.plan.parts);
        for (index, part) in parts.iter().enumerate() {
            let status = if index + 1 == parts.len() {
                self.last_status()
            } else {
                "completed"
            };
            match part {
                Part::Text(text) => self.text(text),
                Part::Sleep(duration) => self.steps.push(Step::Sleep(*duration)),
                Part::Call { name, arguments } => {
                    self.close_message("completed");
                    self.call(name, arguments, status);
                }
            }
        }
        self.close_message(self.last_status());
        self.plan.parts = parts;
        let status = self.last_status();
        self.response_event(&format!("response.{status}"), status);
    }

    fn into_stream(self) -> Script {
        let mut steps = self.steps;
        if self.plan.broken {
            steps.truncate(steps.len() / 2);
            steps.push(Step::Cut);
        }
        Script::stream(steps.into_iter())
    }

    fn into_whole(self) -> Script {
        let response = self.response(self.last_status());
        Script::json(200, self.plan.total_sleep(), &response, self.plan.broken)
    }

    /// Of the response and of its last item: the one that a cap cuts.
    fn last_status(&self) -> &'static str {
        if self.plan.cut_short {
            "incomplete"
        } else {
            "completed"
        }
    }

    fn text(&mut self, text: &str) {
        if self.open_text.is_none() {
            self.item_event(
                "response.output_item.added",
                self.message(json!([]), "in_progress"),
            );
            self.part_event("response.content_part.added", &[("part", output_text(""))]);
        }
        self.open_text.get_or_insert_default().push_str(text);
        for piece in self.plan.text_pieces(text) {
            let members = [("delta", piece.into()), ("logprobs", json!([]))];
            self.part_event("response.output_text.delta", &members);
        }
    }

    fn close_message(&mut self, status: &str) {
        let Some(text) = self.open_text.take() else {
            return;
        };
        let members = [("text", text.as_str().into()), ("logprobs", json!([]))];
        self.part_event("response.output_text.done", &members);
        self.part_event(
            "response.content_part.done",
            &[("part", output_text(&text))],
        );
        self.finish_item(self.message(json!([output_text(&text)]), status));
    }

    fn call(&mut self, name: &str, arguments: &str, status: &str) {
        self.item_event(
            "response.output_item.added",
            self.call_item(name, "", "in_progress"),
        );
        let place = [
            ("item_id", self.item_id("fc").into()),
            ("output_index", self.output.len().into()),
        ];
        let [item_id, output_index] = &place;
        for piece in self.plan.argument_pieces(arguments) {
            let members = [
                item_id.clone(),
                output_index.clone(),
                ("delta", piece.into()),
            ];
            self.event("response.function_call_arguments.delta", &members);
        }
        let members = [
            item_id.clone(),
            output_index.clone(),
            ("arguments", arguments.into()),
        ];
        self.event("response.function_call_arguments.done", &members);
        self.finish_item(self.call_item(name, arguments, status));
    }

    fn finish_item(&mut self, item: Value) {
        self.item_event("response.output_item.done", item.clone());
        self.output.push(item);
    }

    fn response_event(&mut self, kind: &str, status: &str) {
        self.event(kind, &[("response", self.response(status))]);
    }

    fn item_event(&mut self, kind: &str, item: Value) {
        self.event(
            kind,
            &[("output_index", self.output.len().into()), ("item", item)],
        );
    }

    /// An event about the one text part of the open message.
    fn part_event(&mut self, kind: &str, members: &[(&str, Value)]) {
        let place = [
            ("item_id", self.item_id("msg").into()),
            ("output_index", self.output.len().into()),
            ("content_index", 0.into()),
        ];
        self.event(kind, &[&place, members].concat());
    }

    fn event(&mut self, kind: &str, members: &[(&str, Value)]) {
        let head = [
            ("type", kind.into()),
            ("sequence_number", self.sequence.into()),
        ];
        let members = head.iter().chain(members);
        let event: Map<_, _> = members
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        self.sequence += 1;
        let frame = format!("event: {kind}\ndata: {}\n\n", Value::Object(event));
        self.steps.push(Step::Send(Bytes::from(frame)));
    }

    fn message(&self, content: Value, status: &str) -> Value {
        json!({
            "id": self.item_id("msg"),
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        })
    }

    fn call_item(&self, name: &str, arguments: &str, status: &str) -> Value {
        json!({
            "id": self.item_id("fc"),
            "type": "function_call",
            "status": status,
            "call_id": format!("call_{:032x}{:02x}", self.id_seed, self.output.len()),
            "name": name,
            "arguments": arguments,
        })
    }

    /// The id of the item that is being written.
    fn item_id(&self, prefix: &str) -> String {
        format!("{prefix}_{:032x}{:02x}", self.id_seed, self.output.len())
    }

    /// The response object as it stands. While it is in progress it has neither output nor usage.
    fn response(&self, status: &str) -> Value {
        let ended = status != "in_progress";
        let cut = status == "incomplete";
        json!({
            "id": format!("resp_{:032x}", self.id_seed),
            "object": "response",
            "created_at": self.created,
            "status": status,
            "completed_at": (status == "completed").then_some(self.created),
            "background": false,
            "error": null,
            "incomplete_details": cut.then(|| json!({"reason": "max_output_tokens"})),
            "instructions": self.asked_or("instructions", Value::Null),
            "max_output_tokens": self.asked_or("max_output_tokens", Value::Null),
            "model": self.asked.model.name(),
            "output": if ended { self.output.as_slice() } else { &[] },
            "parallel_tool_calls": self.asked_or("parallel_tool_calls", true.into()),
            "previous_response_id": self.asked_or("previous_response_id", Value::Null),
            "reasoning": {"effort": null, "summary": null},
            "service_tier": if ended { "default" } else { "auto" },
            "store": self.asked_or("store", true.into()),
            "temperature": self.asked_or("temperature", 1.0.into()),
            "text": {"format": {"type": "text"}},
            "tool_choice": self.asked_or("tool_choice", "auto".into()),
            "tools": self.asked_or("tools", json!([])),
            "top_p": self.asked_or("top_p", 1.0.into()),
            "truncation": self.asked_or("truncation", "disabled".into()),
            "usage": (ended && self.plan.usage).then(|| self.usage()),
            "user": self.asked_or("user", Value::Null),
            "metadata": self.asked_or("metadata", json!({})),
        })
    }

    fn asked_or(&self, member: &str, default: Value) -> Value {
        match self.asked.body.get(member) {
            None | Some(Value::Null) => default,
            Some(value) => value.clone(),
        }
    }

    fn usage(&self) -> Value {
        let (input, output) = (self.asked.prompt_tokens, self.plan.completion_tokens());
        json!({
            "input_tokens": input,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input + output,
        })
    }
}

fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text})
}
