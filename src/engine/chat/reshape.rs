//! An answer in the shape that the client asked for, where the provider chose the other one.
//! SDKs read a JSON body in place of a stream as an empty answer.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json, value::RawValue};

use super::strict::{Members, Unreadable, list};
use crate::engine::sse;

/// A judged body as the stream that tells the same. `hide_usage`: the client did not ask for it.
///
/// # Errors
/// It is no answer.
pub fn as_stream(body: &[u8], hide_usage: bool) -> Result<Vec<u8>, Unreadable> {
    let text = str::from_utf8(body).map_err(|_| Unreadable)?;
    let mut event = Members::read(text)?;
    let raw = event.take("choices").ok_or(Unreadable)?;
    let raw: Vec<&RawValue> = serde_json::from_str(&raw).map_err(|_| Unreadable)?;
    let choices: Result<Vec<String>, Unreadable> =
        raw.iter().map(|choice| as_delta(choice.get())).collect();
    event.set("object", "\"chat.completion.chunk\"");
    let mut usage = event.clone();
    event.take("usage");
    event.set("choices", list(choices?.iter().map(String::as_str)));
    let mut events = vec![event.to_json()];
    if !hide_usage && usage.get("usage").is_some_and(|usage| usage != "null") {
        usage.set("choices", "[]");
        events.push(usage.to_json());
    }
    let mut stream = Vec::new();
    for event in events {
        stream.extend_from_slice(b"data: ");
        // A line end inside JSON is only ever white space.
        let space = |byte: u8| {
            if matches!(byte, b'\n' | b'\r') {
                b' '
            } else {
                byte
            }
        };
        stream.extend(event.bytes().map(space));
        stream.extend_from_slice(b"\n\n");
    }
    stream.extend_from_slice(b"data: [DONE]\n\n");
    Ok(stream)
}

fn as_delta(choice: &str) -> Result<String, Unreadable> {
    let mut choice = Members::read(choice)?;
    if choice.get("delta").is_some() {
        return Err(Unreadable);
    }
    if let Some(message) = choice.take("message") {
        let mut message = Members::read(&message)?;
        if let Some(calls) = message.take("tool_calls") {
            message.set("tool_calls", numbered(&calls)?);
        }
        choice.set("delta", message.to_json());
    }
    Ok(choice.to_json())
}

/// Calls in a stream have an index.
fn numbered(calls: &str) -> Result<String, Unreadable> {
    let mut listed = Vec::new();
    let calls: Vec<&RawValue> = serde_json::from_str(calls).map_err(|_| Unreadable)?;
    for (at, call) in calls.iter().enumerate() {
        let mut call = Members::read(call.get())?;
        call.retain(|name, _| name != "index");
        call.set("index", at.to_string());
        listed.push(call.to_json());
    }
    Ok(list(listed.iter().map(String::as_str)))
}

/// A judged stream, all of it, as the body that tells the same.
///
/// # Errors
/// It holds no chunk.
pub fn as_body(stream: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let (mut body, mut choices) = (Map::new(), BTreeMap::<u64, Map<String, Value>>::new());
    let mut at = 0;
    while let Some(event) = sse::next_event(stream, at) {
        at = event.bytes.end;
        let Ok(Value::Object(chunk)) = serde_json::from_slice(&event.data(stream)) else {
            continue;
        };
        for (name, value) in chunk {
            match (name.as_str(), value) {
                ("choices", Value::Array(list)) => {
                    list.into_iter()
                        .for_each(|choice| fold(choice, &mut choices));
                }
                ("obfuscation", _) | (_, Value::Null) => {}
                (_, value) => {
                    body.insert(name, value);
                }
            }
        }
    }
    if choices.is_empty() {
        return Err(Unreadable);
    }
    body.insert("object".to_owned(), json!("chat.completion"));
    let choices = choices.into_values().map(Value::Object).collect();
    body.insert("choices".to_owned(), choices);
    serde_json::to_vec(&body).map_err(|_| Unreadable)
}

fn fold(choice: Value, choices: &mut BTreeMap<u64, Map<String, Value>>) {
    let Value::Object(choice) = choice else {
        return;
    };
    let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
    let whole = choices.entry(index).or_insert_with(|| {
        let message = json!({ "role": "assistant", "content": null });
        let start = json!({ "index": index, "message": message, "finish_reason": null });
        start.as_object().cloned().unwrap_or_default()
    });
    for (name, value) in choice {
        match (name.as_str(), value) {
            ("delta", Value::Object(delta)) => {
                if let Some(Value::Object(message)) = whole.get_mut("message") {
                    delta.into_iter().for_each(|member| add(message, member));
                }
            }
            ("delta", _) | (_, Value::Null) => {}
            (_, value) => {
                whole.insert(name, value);
            }
        }
    }
}

/// Texts are joined, lists too; of anything else the last counts.
fn add(message: &mut Map<String, Value>, (name, value): (String, Value)) {
    match (message.get_mut(&name), value) {
        (_, Value::Null) => {}
        (Some(Value::String(text)), Value::String(more)) if name != "role" => text.push_str(&more),
        (Some(Value::Array(list)), Value::Array(more)) => list.extend(more.into_iter().map(bare)),
        (_, Value::Array(list)) => {
            message.insert(name, list.into_iter().map(bare).collect());
        }
        (_, value) => {
            message.insert(name, value);
        }
    }
}

/// A call in a body has no index.
fn bare(mut entry: Value) -> Value {
    if let Value::Object(entry) = &mut entry {
        entry.shift_remove("index");
    }
    entry
}
