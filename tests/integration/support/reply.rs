//! What an `Upstream` answers: a script of exact bytes, waits and endings.

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Captured;

/// A point that a reply does not pass before the test opens it.
#[derive(Debug, Clone)]
pub struct Gate(watch::Sender<bool>);

impl Gate {
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub async fn passed(&self) {
        self.0.subscribe().wait_for(|open| *open).await.unwrap();
    }
}

#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) before_head: Option<Gate>,
    pub(super) acts: Vec<Act>,
    pub(super) ending: Ending,
}

#[derive(Debug, Clone)]
pub(super) enum Act {
    /// One chunk of the body, written at once.
    Piece(Bytes),
    Wait(Gate),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The body ends as HTTP says and the connection stays open.
    Whole,
    /// As `Whole`, then the connection is closed although nothing announced it.
    WholeThenClosed,
    /// The connection is closed in the middle of the body.
    Cut,
    /// The same with a reset.
    Reset,
    /// Nothing more comes and nothing is closed.
    Hang,
}

impl Reply {
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json").piece(body.to_string())
    }

    /// An event stream without events yet.
    pub fn stream() -> Self {
        Self::new(200, "text/event-stream; charset=utf-8")
    }

    pub fn new(status: u16, content_type: &str) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            before_head: None,
            acts: Vec::new(),
            ending: Ending::Whole,
        }
    }

    /// An OpenAI error.
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        let error = json!({"message": message, "type": "error", "param": null, "code": code});
        Self::json(status, &json!({"error": error}))
    }

    /// A provider as it should be: streams when asked to, reports usage in a stream when asked to.
    pub fn says(text: &str, usage: Value, request: &Captured) -> Self {
        let body = request.json();
        if body["stream"] != true {
            return Self::json(200, &completion(text, usage));
        }
        let asks = body["stream_options"]["include_usage"] == true;
        let words = text
            .split_inclusive(' ')
            .map(|word| chunk(json!({"content": word}), None));
        let mut reply = Self::stream()
            .data(&chunk(json!({"role": "assistant", "content": ""}), None))
            .all_data(words)
            .data(&chunk(json!({}), Some("stop")));
        if asks {
            reply = reply.data(&usage_chunk(usage));
        }
        reply.done()
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Bytes of the body, sent as one chunk.
    pub fn piece(mut self, bytes: impl Into<Bytes>) -> Self {
        self.acts.push(Act::Piece(bytes.into()));
        self
    }

    pub fn data(self, data: &Value) -> Self {
        self.piece(format!("data: {data}\n\n"))
    }

    pub fn all_data(self, all: impl IntoIterator<Item = Value>) -> Self {
        all.into_iter().fold(self, |reply, data| reply.data(&data))
    }

    pub fn done(self) -> Self {
        self.piece("data: [DONE]\n\n")
    }

    /// The body of `next` behind this one, with its ending.
    pub fn followed_by(mut self, next: Self) -> Self {
        self.acts.extend(next.acts);
        self.ending(next.ending)
    }

    pub fn wait(mut self, gate: &Gate) -> Self {
        self.acts.push(Act::Wait(gate.clone()));
        self
    }

    pub fn wait_before_head(mut self, gate: &Gate) -> Self {
        self.before_head = Some(gate.clone());
        self
    }

    pub fn then_closed(self) -> Self {
        self.ending(Ending::WholeThenClosed)
    }

    pub fn cut(self) -> Self {
        self.ending(Ending::Cut)
    }

    pub fn reset(self) -> Self {
        self.ending(Ending::Reset)
    }

    pub fn hang(self) -> Self {
        self.ending(Ending::Hang)
    }

    /// Takes the request and answers nothing, ever.
    pub fn silence() -> Self {
        Self::stream().wait_before_head(&Gate::new())
    }

    /// Of a body that is sent in one go, as JSON answers are; `None`: it is chunked.
    pub(super) fn length(&self) -> Option<usize> {
        let at_once = matches!(self.ending, Ending::Whole | Ending::WholeThenClosed);
        match self.acts.as_slice() {
            [] if at_once => Some(0),
            [Act::Piece(body)] if at_once => Some(body.len()),
            _ => None,
        }
    }

    fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }
}

/// A whole chat answer.
pub fn completion(text: &str, usage: Value) -> Value {
    json!({
        "id": "chatcmpl-upstream",
        "object": "chat.completion",
        "created": 1_800_000_000,
        "model": "m-small-2031-01-01",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": null},
            "logprobs": null,
            "finish_reason": "stop",
        }],
        "usage": usage,
    })
}

pub fn chunk(delta: Value, finish_reason: Option<&str>) -> Value {
    json!({
        "id": "chatcmpl-upstream",
        "object": "chat.completion.chunk",
        "created": 1_800_000_000,
        "model": "m-small-2031-01-01",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    })
}

pub fn usage_chunk(usage: Value) -> Value {
    json!({
        "id": "chatcmpl-upstream",
        "object": "chat.completion.chunk",
        "created": 1_800_000_000,
        "model": "m-small-2031-01-01",
        "choices": [],
        "usage": usage,
    })
}

pub fn usage(prompt: u64, completion: u64) -> Value {
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    })
}
