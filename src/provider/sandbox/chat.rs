//! The Chat Completions form of an answer.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    Script, Step,
    plan::{Part, Plan},
    request::Asked,
};

pub(super) fn script(asked: Asked, plan: Plan, id_seed: u128, created: u64) -> Script {
    let reply = Reply {
        id_seed,
        created,
        asked,
        plan,
    };
    if reply.asked.stream {
        reply.stream()
    } else {
        reply.whole()
    }
}

struct Reply {
    asked: Asked,
    plan: Plan,
    id_seed: u128,
    created: u64,
}

/// One step of what each choice says.
enum Delta {
    Role,
    Content(String),
    Call { index: usize, name: String },
    Arguments { index: usize, piece: String },
    Sleep(std::time::Duration),
    Finish,
}

impl Reply {
    fn whole(self) -> Script {
        let choices: Vec<_> = (0..self.asked.choices)
            .map(|index| {
                json!({
                    "index": index,
                    "message": self.message(index),
                    "logprobs": null,
                    "finish_reason": self.finish_reason(),
                })
            })
            .collect();
        let mut body = self.envelope("chat.completion");
        body.insert("choices".into(), choices.into());
        if self.plan.usage {
            body.insert("usage".into(), self.usage());
        }
        Script::json(200, self.plan.total_sleep(), &body.into(), self.plan.broken)
    }

    fn message(&self, choice: usize) -> Value {
        let texts: Vec<&str> = self.plan.parts.iter().filter_map(Part::text).collect();
        let silent = texts.is_empty() && self.plan.has_calls();
        let calls: Vec<_> = self
            .plan
            .parts
            .iter()
            .filter_map(Part::call)
            .enumerate()
            .map(|(index, (name, arguments))| {
                json!({
                    "id": self.call_id(choice, index),
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                })
            })
            .collect();
        let mut message = json!({
            "role": "assistant",
            "content": if silent { Value::Null } else { texts.concat().into() },
            "refusal": null,
            "annotations": [],
        });
        if let (Value::Object(members), false) = (&mut message, calls.is_empty()) {
            members.insert("tool_calls".into(), calls.into());
        }
        message
    }

    fn stream(self) -> Script {
        let mut deltas = self.deltas();
        let broken = self.plan.broken;
        if broken {
            deltas.truncate(deltas.len() / 2);
        } else {
            deltas.push(Delta::Finish);
        }
        let ending = if broken {
            vec![Step::Cut]
        } else {
            self.ending()
        };
        let says = [Delta::Role].into_iter().chain(deltas);
        Script::stream(says.flat_map(move |delta| self.steps(&delta)).chain(ending))
    }

    fn deltas(&self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        let mut calls = 0;
        for part in &self.plan.parts {
            match part {
                Part::Text(text) => {
                    deltas.extend(self.plan.text_pieces(text).into_iter().map(Delta::Content));
                }
                Part::Call { name, arguments } => {
                    let index = calls;
                    calls += 1;
                    deltas.push(Delta::Call {
                        index,
                        name: name.clone(),
                    });
                    let pieces = self.plan.argument_pieces(arguments).into_iter();
                    deltas.extend(pieces.map(|piece| Delta::Arguments { index, piece }));
                }
                Part::Sleep(duration) => deltas.push(Delta::Sleep(*duration)),
            }
        }
        deltas
    }

    /// A delta as chunks, one a choice.
    fn steps(&self, delta: &Delta) -> Vec<Step> {
        if let Delta::Sleep(duration) = delta {
            return vec![Step::Sleep(*duration)];
        }
        let finish = matches!(delta, Delta::Finish).then(|| self.finish_reason());
        let chunks = (0..self.asked.choices).map(|index| {
            let choice = json!({
                "index": index,
                "delta": self.wire(index, delta),
                "logprobs": null,
                "finish_reason": finish,
            });
            self.chunk([choice].into_iter().collect(), Value::Null)
        });
        chunks.collect()
    }

    fn wire(&self, choice: usize, delta: &Delta) -> Value {
        match delta {
            Delta::Role => {
                let silent = matches!(self.plan.parts.first(), Some(Part::Call { .. }));
                let content = if silent { Value::Null } else { "".into() };
                json!({"role": "assistant", "content": content, "refusal": null})
            }
            Delta::Content(text) => json!({"content": text}),
            Delta::Call { index, name } => json!({"tool_calls": [{
                "index": index,
                "id": self.call_id(choice, *index),
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }]}),
            Delta::Arguments { index, piece } => json!({"tool_calls": [{
                "index": index,
                "function": {"arguments": piece},
            }]}),
            Delta::Sleep(_) | Delta::Finish => json!({}),
        }
    }

    fn ending(&self) -> Vec<Step> {
        let usage = self
            .reports_usage()
            .then(|| self.chunk(json!([]), self.usage()));
        usage
            .into_iter()
            .chain([Step::Send(Bytes::from_static(b"data: [DONE]\n\n"))])
            .collect()
    }

    fn chunk(&self, choices: Value, usage: Value) -> Step {
        let mut chunk = self.envelope("chat.completion.chunk");
        chunk.insert("choices".into(), choices);
        if self.reports_usage() {
            chunk.insert("usage".into(), usage);
        }
        Step::Send(Bytes::from(format!("data: {}\n\n", Value::Object(chunk))))
    }

    fn envelope(&self, object: &str) -> Map<String, Value> {
        Map::from_iter([
            (
                "id".into(),
                format!("chatcmpl-{:032x}", self.id_seed).into(),
            ),
            ("object".into(), object.into()),
            ("created".into(), self.created.into()),
            ("model".into(), self.asked.model.name().into()),
            ("service_tier".into(), "default".into()),
            ("system_fingerprint".into(), "fp_sandbox".into()),
        ])
    }

    /// In a stream: only for clients that ask.
    fn reports_usage(&self) -> bool {
        self.asked.include_usage && self.plan.usage
    }

    fn usage(&self) -> Value {
        let prompt = self.asked.prompt_tokens;
        let completion = self.plan.completion_tokens() * self.asked.choices as u64;
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        })
    }

    fn finish_reason(&self) -> &'static str {
        match (self.plan.cut_short, self.plan.has_calls()) {
            (true, _) => "length",
            (false, true) => "tool_calls",
            (false, false) => "stop",
        }
    }

    fn call_id(&self, choice: usize, index: usize) -> String {
        format!("call_{:032x}{choice:02x}{index:02x}", self.id_seed)
    }
}
