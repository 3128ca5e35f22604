//! What of a chat answer goes on to the client, and what it amounted to.
//!
//! Events that nothing changes leave as the bytes they came in, at once. Tool calls pass
//! through here in this version: this is the seam where they will be withheld and judged.

mod chunk;
#[cfg(test)]
mod tests;

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};

pub use self::chunk::Chunk;
use super::{
    pricing::UsageReading,
    sse::{self, Event},
};

/// What has to be known of the request to read its answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamRules {
    /// We asked the provider for usage and the client did not: what comes of it stays here.
    pub hide_usage: bool,
    /// An event larger than this ends the stream. Bytes.
    pub largest_event: usize,
}

/// What an answer amounted to, for settling and the record.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub usage: Option<UsageReading>,
    pub model: Option<String>,
    pub service_tier: Option<String>,
    /// Bytes of text and calls received, for an estimate.
    pub written: u64,
    pub tool_calls: u64,
    pub finished: bool,
    /// An error that the provider sent, or that we found.
    pub error: Option<Value>,
}

/// Reads a streamed answer.
pub struct ChatStream {
    rules: StreamRules,
    /// The beginning of an event whose end has not come.
    rest: BytesMut,
    tally: Tally,
    begun: bool,
    /// Nothing after `[DONE]` or an error is for anybody.
    over: bool,
    sent: bool,
}

enum Fate {
    Pass,
    Drop,
    /// Pass without these bytes.
    PassWithout(Range<usize>),
    Replace(Bytes),
    /// The stream ends with this.
    End(Option<Bytes>),
}

impl ChatStream {
    pub fn new(rules: StreamRules) -> Self {
        Self {
            rules,
            rest: BytesMut::new(),
            tally: Tally::default(),
            begun: false,
            over: false,
            sent: false,
        }
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// `true` once nothing more can come out.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Takes a piece in; pushes what may leave.
    pub fn feed(&mut self, piece: Bytes, out: &mut Vec<Bytes>) {
        if self.over {
            return;
        }
        let bytes = self.whole(piece);
        let mut at = self.skip_mark(&bytes);
        let mut passed = at..at;
        while let Some(event) = sse::next_event(&bytes, at) {
            at = event.bytes.end;
            match self.judge(&bytes, &event) {
                Fate::Pass => {
                    passed.end = at;
                    continue;
                }
                Fate::PassWithout(gap) => {
                    self.push(bytes.slice(passed.start..gap.start), out);
                    passed = gap.end..at;
                    continue;
                }
                fate => {
                    self.push(bytes.slice(passed.clone()), out);
                    passed = at..at;
                    self.apply(fate, out);
                }
            }
            if self.over {
                return;
            }
        }
        self.push(bytes.slice(passed), out);
        let left = bytes.slice(at..);
        if left.len() > self.rules.largest_event {
            let end = self.fail("malformed_output", "An event of the answer is too large.");
            self.apply(end, out);
            return;
        }
        self.rest.extend_from_slice(&left);
    }

    /// The body ended: properly (`cut` false) or not.
    pub fn end(&mut self, cut: bool, out: &mut Vec<Bytes>) {
        if self.over {
            return;
        }
        self.over = true;
        if !cut && self.tally.finished {
            out.push(Bytes::from_static(DONE));
        } else if self.tally.error.is_none() {
            let end = self.fail("upstream_broken", "The provider's answer broke off.");
            self.apply(end, out);
        }
    }

    /// Ends the stream in the middle, with words for the client.
    pub fn stop(&mut self, code: &str, message: &str, out: &mut Vec<Bytes>) {
        if !self.over {
            let end = self.fail(code, message);
            self.apply(end, out);
        }
    }

    /// Ends the stream at one of our limits: `told` is the error, as a whole JSON object.
    pub fn cut(&mut self, told: &[u8], out: &mut Vec<Bytes>) {
        self.over = true;
        out.push(data_line(told));
        out.push(Bytes::from_static(DONE));
    }

    /// Whether anything has left for the client.
    pub fn has_sent(&self) -> bool {
        self.sent
    }

    fn whole(&mut self, piece: Bytes) -> Bytes {
        if self.rest.is_empty() {
            return piece;
        }
        self.rest.extend_from_slice(&piece);
        self.rest.split().freeze()
    }

    /// A byte order mark makes one SDK lose the first event.
    fn skip_mark(&mut self, bytes: &Bytes) -> usize {
        let marked = !self.begun && bytes.starts_with(b"\xef\xbb\xbf");
        self.begun |= !bytes.is_empty();
        if marked { 3 } else { 0 }
    }

    fn push(&mut self, bytes: Bytes, out: &mut Vec<Bytes>) {
        if !bytes.is_empty() {
            self.sent = true;
            out.push(bytes);
        }
    }

    fn apply(&mut self, fate: Fate, out: &mut Vec<Bytes>) {
        match fate {
            Fate::Pass | Fate::PassWithout(_) | Fate::Drop => {}
            Fate::Replace(bytes) => self.push(bytes, out),
            Fate::End(bytes) => {
                self.over = true;
                // An error before anything was sent is answered with a status instead.
                let silent = self.tally.error.is_some() && !self.sent;
                if let (Some(bytes), false) = (bytes, silent) {
                    self.push(bytes, out);
                }
            }
        }
    }

    fn judge(&mut self, bytes: &Bytes, event: &Event) -> Fate {
        if event.data.is_empty() {
            // Comments keep connections alive; other lines without data break SDKs.
            return if event.other_lines {
                Fate::Drop
            } else {
                Fate::Pass
            };
        }
        let data = event.data(bytes);
        let text = data.trim_ascii();
        if text.is_empty() {
            return Fate::Drop;
        }
        if text.starts_with(b"[DONE]") {
            return Fate::End(Some(Bytes::from_static(DONE)));
        }
        if text.len() > self.rules.largest_event {
            return self.fail("malformed_output", "An event of the answer is too large.");
        }
        match Chunk::read(text) {
            Ok(chunk) => self.read(bytes, event, text, &chunk),
            Err(_) => self.fail("malformed_output", "An event of the answer cannot be read."),
        }
    }

    fn read(&mut self, bytes: &[u8], event: &Event, text: &[u8], chunk: &Chunk<'_>) -> Fate {
        self.tally.add(chunk);
        if let Some(error) = chunk.error() {
            let error = shaped(error.get());
            let line = data_line(json!({ "error": error }).to_string().as_bytes());
            self.tally.error = Some(error);
            return Fate::End(Some(line));
        }
        if chunk.choices().is_empty() && chunk.usage().is_some() && self.rules.hide_usage {
            return Fate::Drop;
        }
        let usage = chunk.usage.filter(|_| self.rules.hide_usage);
        let null_usage = usage.is_some_and(|usage| usage.get() == "null");
        if null_usage && chunk.error.is_none() && !event.other_lines && chunk.choices.is_some() {
            // A quote inside a JSON string is escaped, so this can only match a member.
            let whole = bytes.get(event.bytes.clone()).unwrap_or_default();
            if let Some(at) = memchr::memmem::find(whole, NULL_USAGE) {
                let start = event.bytes.start + at;
                return Fate::PassWithout(start..start + NULL_USAGE.len());
            }
        }
        let gone: Vec<(&str, &str)> = [("usage", usage), ("error", chunk.error)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?.get())))
            .collect();
        let no_choices = chunk.choices.is_none();
        if gone.is_empty() && !event.other_lines && !no_choices {
            return Fate::Pass;
        }
        rewritten(text, &gone, no_choices)
    }

    fn fail(&mut self, code: &str, message: &str) -> Fate {
        let error =
            json!({ "message": message, "type": "server_error", "param": null, "code": code });
        let line = data_line(json!({ "error": error }).to_string().as_bytes());
        self.tally.error = Some(error);
        Fate::End(Some(line))
    }
}

const NULL_USAGE: &[u8] = b",\"usage\":null";
const DONE: &[u8] = b"data: [DONE]\n\n";

impl Tally {
    /// Takes in a chunk of a stream, or a whole body.
    pub fn add(&mut self, chunk: &Chunk<'_>) {
        if let Some(usage) = chunk.usage() {
            // The last report counts; cumulative ones must not be added up.
            let value = serde_json::from_str(usage.get()).unwrap_or(Value::Null);
            self.usage = UsageReading::of(&value).or(self.usage);
        }
        if self.model.is_none() {
            self.model = chunk
                .model
                .as_deref()
                .filter(|model| !model.is_empty())
                .map(Into::into);
        }
        if let Some(tier) = chunk.service_tier.as_deref() {
            self.service_tier = Some(tier.to_owned());
        }
        for choice in chunk.choices() {
            self.finished |= choice
                .finish_reason
                .as_deref()
                .is_some_and(|why| !why.is_empty());
            for delta in choice.delta.iter().chain(&choice.message) {
                self.written += delta.written();
                let begun = |raw: &&&serde_json::value::RawValue| raw.get().contains("\"name\"");
                self.tool_calls += delta.tool_calls.iter().flatten().filter(begun).count() as u64;
            }
        }
    }
}

/// The event again, without members that clients trip over, lines that do not belong on a chat
/// stream, and with the `choices` that every client expects.
fn rewritten(text: &[u8], gone: &[(&str, &str)], no_choices: bool) -> Fate {
    let mut data = String::from_utf8_lossy(text).into_owned();
    let before = data.len();
    for (name, value) in gone {
        // A quote inside a JSON string is escaped, so this can only match a member.
        for form in [
            format!(",\"{name}\":{value}"),
            format!("\"{name}\":{value},"),
        ] {
            if let Some(at) = data.find(&form) {
                data.replace_range(at..at + form.len(), "");
                break;
            }
        }
    }
    if data.len() == before && !gone.is_empty() {
        data = reserialised(text, gone);
    }
    if no_choices {
        match serde_json::from_str::<serde_json::Map<String, Value>>(&data) {
            Ok(mut object) => {
                object.insert("choices".to_owned(), json!([]));
                data = Value::Object(object).to_string();
            }
            Err(_) => return Fate::Drop,
        }
    }
    Fate::Replace(data_line(data.as_bytes()))
}

/// The slow way for odd spacing: parse, drop the members, write.
fn reserialised(text: &[u8], gone: &[(&str, &str)]) -> String {
    let mut object: serde_json::Map<String, Value> =
        serde_json::from_slice(text).unwrap_or_default();
    for (name, _) in gone {
        object.shift_remove(*name);
    }
    Value::Object(object).to_string()
}

fn data_line(data: &[u8]) -> Bytes {
    // A line feed inside JSON is only ever white space.
    let data: Vec<u8> = data
        .iter()
        .map(|byte| if *byte == b'\n' { b' ' } else { *byte })
        .collect();
    [b"data: ", data.as_slice(), b"\n\n"].concat().into()
}

/// A provider's error in OpenAI's shape: its message kept, codes as text, and never the text
/// of a call that failed.
pub fn shaped(error: &str) -> Value {
    let value: Value = serde_json::from_str(error).unwrap_or_else(|_| error.into());
    let text = |value: Option<&Value>| match value {
        Some(Value::String(text)) => Value::String(text.clone()),
        Some(Value::Number(number)) => Value::String(number.to_string()),
        _ => Value::Null,
    };
    let message = match &value {
        Value::String(text) => text.clone(),
        other => match other.get("message") {
            Some(Value::String(text)) => text.clone(),
            _ => "The provider answered with an error.".to_owned(),
        },
    };
    let kind = match text(value.get("type")) {
        Value::Null => "upstream_error".into(),
        kind => kind,
    };
    json!({
        "message": message,
        "type": kind,
        "param": text(value.get("param")),
        "code": text(value.get("code")),
    })
}
