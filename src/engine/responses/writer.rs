//! Writes events for the client: those of the provider with their numbers put right, and our
//! own. While nothing was withheld or added, events keep their bytes.

use bytes::Bytes;
use serde_json::{Value, json, value::RawValue};

use super::{
    draft::Proposal,
    event::StreamEvent,
    members::{Members, quoted},
};
use crate::engine::sse::Event;

/// The numbers that events carry.
#[derive(Debug, Default)]
pub struct Writer {
    /// Of the last event that left; `None`: the provider numbers none.
    last: Option<u64>,
    /// Something was withheld or added: from here on events are numbered anew.
    shifted: bool,
    /// The place of the next item in the output.
    next_index: u64,
    /// Our own events have numbers whatever the provider does.
    numbers: bool,
}

/// One event as it came: its bytes, its data, and where both stand.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub bytes: &'a [u8],
    pub event: &'a Event,
    pub data: &'a [u8],
}

/// A piece of the data to replace: from, to, by what.
type Patch = (usize, usize, String);

impl Writer {
    /// Writes a stream of our own.
    pub fn numbering() -> Self {
        Self {
            numbers: true,
            ..Self::default()
        }
    }

    pub fn take_index(&mut self) -> u64 {
        self.next_index += 1;
        self.next_index - 1
    }

    /// An event did not leave: the ones after it close the gap.
    pub fn skip(&mut self) {
        self.shifted = true;
    }

    /// An event of the provider. `None`: it can leave as it came.
    pub fn pass(
        &mut self,
        source: Source<'_>,
        parsed: &StreamEvent<'_>,
        index: Option<u64>,
    ) -> Option<Bytes> {
        let patches = self.patches(source.data, parsed, index);
        let named = known_name(parsed);
        if patches.is_empty() && is_plain(source, named) {
            return None;
        }
        Some(frame(named, &patched(source.data, patches)))
    }

    /// An event about the response object, with `changes` in it.
    pub fn rewritten(
        &mut self,
        data: &[u8],
        parsed: &StreamEvent<'_>,
        changes: Vec<(&RawValue, String)>,
        guard: &Value,
    ) -> Bytes {
        let mut patches = self.patches(data, parsed, None);
        for (raw, text) in changes {
            patches.extend(span(data, raw).map(|(from, to)| (from, to, text)));
        }
        frame(
            known_name(parsed),
            &with_guard(patched(data, patches), guard),
        )
    }

    fn patches(&mut self, data: &[u8], parsed: &StreamEvent<'_>, index: Option<u64>) -> Vec<Patch> {
        let mut patches = Vec::new();
        if let Some(raw) = parsed.sequence_number {
            let given = raw.get().parse::<u64>().ok();
            let number = match (self.shifted, given, self.last) {
                (false, Some(given), _) => given,
                (_, _, Some(last)) => last + 1,
                (_, given, None) => given.unwrap_or(0),
            };
            self.last = Some(number);
            if given != Some(number) {
                patches.extend(span(data, raw).map(|(from, to)| (from, to, number.to_string())));
            }
        }
        if let (Some(raw), Some(index)) = (parsed.output_index, index) {
            let index = index.to_string();
            if raw.get() != index {
                patches.extend(span(data, raw).map(|(from, to)| (from, to, index)));
            }
        }
        patches
    }

    /// An event of our own; `members` is JSON without its braces.
    pub fn own(&mut self, kind: &'static str, members: &str) -> Bytes {
        self.shifted = true;
        let next = self.last.map(|last| last + 1).or(self.numbers.then_some(0));
        self.last = next.or(self.last);
        let number = next.map_or_else(String::new, |next| format!(",\"sequence_number\":{next}"));
        let data = format!("{{\"type\":\"{kind}\"{number},{members}}}");
        frame(Some(kind), data.as_bytes())
    }

    /// A call that may go on: in one form, whatever form it came in.
    pub fn call(&mut self, proposal: &Proposal, out: &mut Vec<Bytes>) -> u64 {
        let index = self.take_index();
        let item = &proposal.item;
        let pieces = match proposal.kind.as_str() {
            "function_call" => Some((ARGUMENTS, "arguments")),
            "custom_tool_call" => Some((INPUT, "input")),
            _ => None,
        };
        let mut begun = item.clone();
        if item.get("status").is_some() {
            begun.set_text("status", "in_progress");
        }
        if let Some((_, payload)) = pieces {
            begun.set_text(payload, "");
        }
        let place = format!("\"output_index\":{index}");
        let of_item = |item: &Members| format!("{place},\"item\":{}", item.to_json());
        out.push(self.own(ITEM_ADDED, &of_item(&begun)));
        if let Some(([delta, done], payload)) = pieces {
            let id = item.text("id").unwrap_or_default();
            let place = format!("\"item_id\":{},{place}", quoted(&id));
            let text = quoted(&proposal.call.arguments);
            if !proposal.call.arguments.is_empty() {
                out.push(self.own(delta, &format!("{place},\"delta\":{text}")));
            }
            let name = quoted(&proposal.call.name);
            let members = format!("{place},\"name\":{name},\"{payload}\":{text}");
            out.push(self.own(done, &members));
        }
        out.push(self.own(ITEM_DONE, &of_item(item)));
        index
    }

    /// A message of ours, as a model would have written it. Gives its place.
    pub fn message(&mut self, id: &str, text: &str, guard: &Value, out: &mut Vec<Bytes>) -> u64 {
        let index = self.take_index();
        let begun = json!({"id": id, "type": "message", "status": "in_progress", "content": [],
            "role": "assistant"});
        let item = message_item(id, text);
        let part = |text: &str| json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text});
        let at = format!("\"output_index\":{index}");
        let place = format!("\"item_id\":{},{at},\"content_index\":0", quoted(id));
        let text_member = quoted(text);
        let logprobs = "\"logprobs\":[]";
        out.extend([
            self.own(ITEM_ADDED, &format!("{at},\"item\":{begun}")),
            self.own(PART_ADDED, &format!("{place},\"part\":{}", part(""))),
            self.own(
                TEXT_DELTA,
                &format!("{place},\"delta\":{text_member},{logprobs}"),
            ),
            self.own(
                TEXT_DONE,
                &format!("{place},\"text\":{text_member},{logprobs}"),
            ),
            self.own(PART_DONE, &format!("{place},\"part\":{}", part(text))),
            self.own(
                ITEM_DONE,
                &format!("{at},\"item\":{item},\"guard\":{guard}"),
            ),
        ]);
        index
    }

    /// An error in the form that SDKs raise, and the ending that they wait for.
    pub fn failure(&mut self, error: &Value, response: &Value, guard: &Value) -> Bytes {
        let guard = match guard {
            Value::Null => String::new(),
            guard => format!(",\"guard\":{guard}"),
        };
        let told = self.own(ERROR, &format!("\"error\":{error}{guard}"));
        let ended = self.own(FAILED, &format!("\"response\":{response}{guard}"));
        [told, ended].concat().into()
    }
}

/// The item of a message of ours.
pub fn message_item(id: &str, text: &str) -> String {
    json!({
        "id": id,
        "type": "message",
        "status": "completed",
        "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}],
        "role": "assistant",
    })
    .to_string()
}

const ITEM_ADDED: &str = "response.output_item.added";
const ITEM_DONE: &str = "response.output_item.done";
const PART_ADDED: &str = "response.content_part.added";
const PART_DONE: &str = "response.content_part.done";
const TEXT_DELTA: &str = "response.output_text.delta";
const TEXT_DONE: &str = "response.output_text.done";
const ERROR: &str = "error";
const FAILED: &str = "response.failed";
const ARGUMENTS: [&str; 2] = [
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
];
const INPUT: [&str; 2] = [
    "response.custom_tool_call_input.delta",
    "response.custom_tool_call_input.done",
];

/// A type that can stand on a line of its own.
fn known_name<'a>(parsed: &'a StreamEvent<'_>) -> Option<&'a str> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let name = &*parsed.kind;
    (!name.is_empty() && name.as_bytes().iter().all(plain)).then_some(name)
}

/// `true` if the event's lines say what its data says: some clients go by the name in the line.
fn is_plain(source: Source<'_>, name: Option<&str>) -> bool {
    let Event { bytes, data, .. } = source.event;
    let [data] = data.as_slice() else {
        return false;
    };
    let before = source
        .bytes
        .get(bytes.start..data.start)
        .unwrap_or_default();
    let after = source.bytes.get(data.end..bytes.end).unwrap_or_default();
    let before = before
        .strip_suffix(b"data: ")
        .or(before.strip_suffix(b"data:"));
    let Some(line) = before else { return false };
    let blank = after.iter().all(u8::is_ascii_whitespace);
    let said = line.strip_prefix(b"event:").map(<[u8]>::trim_ascii);
    let agrees = line.is_empty() || (said.is_some() && said == name.map(str::as_bytes));
    blank && agrees
}

/// Where `raw`, which borrows from `data`, stands in it.
pub fn span(data: &[u8], raw: &RawValue) -> Option<(usize, usize)> {
    let from = (raw.get().as_ptr() as usize).checked_sub(data.as_ptr() as usize)?;
    let to = from + raw.get().len();
    (to <= data.len()).then_some((from, to))
}

/// A JSON object with the `guard` object at its end, if there is one.
pub fn with_guard(mut object: Vec<u8>, guard: &Value) -> Vec<u8> {
    object.truncate(object.trim_ascii_end().len());
    if !guard.is_null() && object.pop() == Some(b'}') {
        object.extend_from_slice(format!(",\"guard\":{guard}}}").as_bytes());
    }
    object
}

pub fn patched(data: &[u8], mut patches: Vec<Patch>) -> Vec<u8> {
    patches.sort_by_key(|(from, ..)| *from);
    let mut out = Vec::with_capacity(data.len() + 64);
    let mut at = 0;
    for (from, to, text) in patches {
        out.extend_from_slice(data.get(at..from).unwrap_or_default());
        out.extend_from_slice(text.as_bytes());
        at = to;
    }
    out.extend_from_slice(data.get(at..).unwrap_or_default());
    out
}

fn frame(name: Option<&str>, data: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(data.len() + 64);
    if let Some(name) = name {
        frame.extend_from_slice(format!("event: {name}\n").as_bytes());
    }
    frame.extend_from_slice(b"data: ");
    // A line end inside JSON is only ever white space.
    let spaced = |byte: &u8| {
        if matches!(byte, b'\n' | b'\r') {
            b' '
        } else {
            *byte
        }
    };
    frame.extend(data.iter().map(spaced));
    frame.extend_from_slice(b"\n\n");
    frame.into()
}
