//! A judged answer in the other shape: a whole body as a stream, and the reverse.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    Fault,
    event::{Kind, StreamEvent},
    writer::Writer,
};
use crate::engine::sse;

/// A body as the events that it would have come in.
///
/// # Errors
/// When it is no response object.
pub fn as_stream(body: &[u8]) -> Result<Bytes, Fault> {
    let unreadable = Fault("The answer cannot be read.");
    let object: Map<String, Value> = serde_json::from_slice(body).map_err(|_| unreadable)?;
    let items = object.get("output").and_then(Value::as_array);
    let items = items.ok_or(unreadable)?;
    let mut begun = object.clone();
    begun.insert("status".to_owned(), "in_progress".into());
    begun.insert("output".to_owned(), json!([]));
    begun.insert("usage".to_owned(), Value::Null);
    let mut writer = Writer::numbering();
    let mut out = vec![writer.object("response.created", &begun)];
    for item in items {
        writer.item(item, &mut out);
    }
    let ending = match object.get("status").and_then(Value::as_str) {
        Some("incomplete") => "response.incomplete",
        Some("failed" | "cancelled") => "response.failed",
        _ => "response.completed",
    };
    out.push(writer.object(ending, &object));
    Ok(out.concat().into())
}

/// What a stream's last event has of the whole answer.
///
/// # Errors
/// When it has no such event.
pub fn as_body(stream: &[u8]) -> Result<Bytes, Fault> {
    let mut at = 0;
    let mut body = Err(Fault("The stream has no ending."));
    while let Some(event) = sse::next_event(stream, at) {
        at = event.bytes.end;
        let data = event.data(stream);
        if let Ok(parsed) = StreamEvent::read(data.trim_ascii())
            && parsed.kind() == Kind::Ended
            && let Some(response) = parsed.response
        {
            body = Ok(Bytes::copy_from_slice(response.get().as_bytes()));
        }
    }
    body
}

impl Writer {
    fn object(&mut self, kind: &'static str, object: &Map<String, Value>) -> Bytes {
        let object = Value::Object(object.clone());
        self.own(kind, &format!("\"response\":{object}"))
    }

    /// A finished item as it would have come: begun, its text or arguments, done.
    fn item(&mut self, item: &Value, out: &mut Vec<Bytes>) {
        let at = format!("\"output_index\":{}", self.take_index());
        let mut begun = item.clone();
        for (member, empty) in [
            ("content", json!([])),
            ("arguments", "".into()),
            ("input", "".into()),
        ] {
            if let Some(value) = begun.get_mut(member).filter(|value| !value.is_object()) {
                *value = empty;
            }
        }
        if let Some(status) = begun.get_mut("status") {
            *status = "in_progress".into();
        }
        out.push(self.own(
            "response.output_item.added",
            &format!("{at},\"item\":{begun}"),
        ));
        let id = item.get("id").cloned().unwrap_or_default();
        let place = format!("\"item_id\":{id},{at}");
        let kind = item.get("type").and_then(Value::as_str);
        match kind {
            Some("message") => {
                let parts = item.get("content").and_then(Value::as_array);
                for (index, part) in parts.into_iter().flatten().enumerate() {
                    self.part(&format!("{place},\"content_index\":{index}"), part, out);
                }
            }
            Some("function_call") => self.payload(ARGUMENTS, &place, item.get("arguments"), out),
            Some("custom_tool_call") => self.payload(INPUT, &place, item.get("input"), out),
            _ => {}
        }
        out.push(self.own(
            "response.output_item.done",
            &format!("{at},\"item\":{item}"),
        ));
    }

    fn part(&mut self, place: &str, part: &Value, out: &mut Vec<Bytes>) {
        let ([delta, done], member) = match part.get("type").and_then(Value::as_str) {
            Some("refusal") => (REFUSAL, "refusal"),
            _ => (TEXT, "text"),
        };
        let text = part.get(member).cloned().unwrap_or_default();
        let mut begun = part.clone();
        if let Some(value) = begun.get_mut(member) {
            *value = "".into();
        }
        let logprobs = if member == "text" {
            ",\"logprobs\":[]"
        } else {
            ""
        };
        out.push(self.own(
            "response.content_part.added",
            &format!("{place},\"part\":{begun}"),
        ));
        out.push(self.own(delta, &format!("{place},\"delta\":{text}{logprobs}")));
        out.push(self.own(done, &format!("{place},\"{member}\":{text}{logprobs}")));
        out.push(self.own(
            "response.content_part.done",
            &format!("{place},\"part\":{part}"),
        ));
    }

    fn payload(
        &mut self,
        ([delta, done], member): ([&'static str; 2], &str),
        place: &str,
        payload: Option<&Value>,
        out: &mut Vec<Bytes>,
    ) {
        let text = payload.cloned().unwrap_or_default();
        out.push(self.own(delta, &format!("{place},\"delta\":{text}")));
        out.push(self.own(done, &format!("{place},\"{member}\":{text}")));
    }
}

const TEXT: [&str; 2] = ["response.output_text.delta", "response.output_text.done"];
const REFUSAL: [&str; 2] = ["response.refusal.delta", "response.refusal.done"];
const ARGUMENTS: ([&str; 2], &str) = (
    [
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
    ],
    "arguments",
);
const INPUT: ([&str; 2], &str) = (
    [
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
    ],
    "input",
);
