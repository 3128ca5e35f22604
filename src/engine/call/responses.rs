//! What a request to the Responses API says differently: its input, what it refers to, and what
//! is not served.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    ChatRequest, Companions as _, Content, InvalidRequest, Span, invalid, offers::Patch, span,
};

/// Something of an earlier answer that a request builds on. It may only be the key's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub id: String,
    /// The member that holds it.
    pub param: &'static str,
    /// Where the item stands that says no more than this.
    pub item: Option<Span>,
}

/// Members that are not served: what they bring is stored at the provider or comes later.
const NOT_SERVED: &[(&str, &str)] = &[
    (
        "background",
        "an answer that is fetched later is not served",
    ),
    (
        "conversation",
        "a conversation that the provider keeps is not served; send its items in \"input\", or \
         use \"previous_response_id\"",
    ),
];

/// Reads a member that only this API has. `false`: it has no such member.
///
/// # Errors
/// A value of the wrong form, or what is not served.
pub(super) fn member(
    request: &mut ChatRequest,
    name: &'static str,
    raw: &RawValue,
    body: &str,
) -> Result<bool, InvalidRequest> {
    let nothing = matches!(raw.get(), "null" | "false");
    if let Some((_, why)) = NOT_SERVED.iter().find(|(member, _)| *member == name) {
        let refused = || {
            invalid(
                format!("The member {name:?} cannot be used: {why}."),
                Some(name),
            )
        };
        return if nothing { Ok(true) } else { Err(refused()) };
    }
    match name {
        "input" => read_input(request, raw, body)?,
        "instructions" if !nothing => {
            let text = serde_json::from_str(raw.get());
            let text = text.map_err(|_| {
                invalid("The member \"instructions\" must be a string.", Some(name))
            })?;
            request.content.add_text(text);
        }
        "previous_response_id" if !nothing => {
            let id = serde_json::from_str(raw.get()).map_err(|_| {
                invalid(
                    "The member \"previous_response_id\" must be a string.",
                    Some(name),
                )
            })?;
            let param = "previous_response_id";
            let item = None;
            request.references.push(Reference { id, param, item });
        }
        "text" => request.json_answer = !nothing && forces_json(raw)?,
        "instructions" | "previous_response_id" => {}
        _ => return Ok(false),
    }
    Ok(true)
}

fn read_input(request: &mut ChatRequest, raw: &RawValue, body: &str) -> Result<(), InvalidRequest> {
    let unreadable =
        |why: String| invalid(format!("The input cannot be read: {why}."), Some("input"));
    let text = raw.get();
    if text.starts_with('"') {
        let text = serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
        request.content.messages += 1;
        request.content.add_text(text);
        return Ok(());
    }
    let items: Content =
        serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
    request.content.append(items);
    let items: Vec<&RawValue> =
        serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
    for raw in items {
        let item: Item<'_> =
            serde_json::from_str(raw.get()).map_err(|error| unreadable(error.to_string()))?;
        let param = "input";
        if let Some(id) = item.approves() {
            let item = None;
            request.references.push(Reference { id, param, item });
        }
        if let Some(id) = item.refers() {
            let item = Some(span(param, raw, body).value());
            request.references.push(Reference { id, param, item });
        }
    }
    Ok(())
}

/// As much of an input item as says what it refers to.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    approval_request_id: Option<Cow<'a, str>>,
}

impl Item<'_> {
    fn refers(&self) -> Option<String> {
        let refers = match self.kind.as_deref() {
            Some(kind) => kind == "item_reference",
            // An item that says no more than its id is a reference, too.
            None => self.role.is_none(),
        };
        self.id.as_deref().filter(|_| refers).map(str::to_owned)
    }

    fn approves(&self) -> Option<String> {
        let approves = self.kind.as_deref() == Some("mcp_approval_response");
        let id = self.approval_request_id.as_deref();
        id.filter(|_| approves).map(str::to_owned)
    }
}

impl ChatRequest {
    /// What must stand in the input besides: results of calls that the client never saw, before
    /// everything else.
    pub fn with_results(&self, body: &[u8], results: &str) -> Option<Patch> {
        let input = self.value_of("input")?;
        let raw = body.get(input.clone())?;
        let (at, text) = match raw.first()? {
            b'[' => {
                let empty = raw.get(1..)?.trim_ascii_start().starts_with(b"]");
                let comma = if empty { "" } else { "," };
                let at = input.start + 1..input.start + 1;
                (at, format!("{results}{comma}"))
            }
            _ => {
                let said = String::from_utf8_lossy(raw);
                let user = format!("{{\"role\":\"user\",\"content\":{said}}}");
                (input, format!("[{results},{user}]"))
            }
        };
        let text = text.into();
        Some(Patch { at, text })
    }
}

/// Whether `text` asks for anything but plain text.
fn forces_json(raw: &RawValue) -> Result<bool, InvalidRequest> {
    #[derive(Deserialize)]
    struct Text<'a> {
        #[serde(borrow, default)]
        format: Option<Format<'a>>,
    }
    #[derive(Deserialize)]
    struct Format<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
    }
    let text: Text<'_> = serde_json::from_str(raw.get())
        .map_err(|_| invalid("The member \"text\" cannot be read.", Some("text")))?;
    Ok(text.format.is_some_and(|format| format.kind != "text"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Api;
    use super::*;

    fn read(members: Value) -> Result<ChatRequest, InvalidRequest> {
        let mut body = json!({"model": "m"});
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        ChatRequest::read_as(Api::Responses, body.to_string().as_bytes())
    }

    #[test]
    fn text_pictures_and_files_of_all_forms_of_input_are_counted() {
        let image = json!({"type": "input_image", "file_id": "file_1"});
        let items = json!([
            {"role": "user", "content": "one"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "two"}, image]},
            {"type": "function_call_output", "call_id": "c", "output": "three"},
            {"type": "function_call_output", "call_id": "c", "output": [image]},
            {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "data:"}},
            {"role": "user", "content": [{"type": "input_file", "file_id": "file_2"}]},
        ]);
        let request = read(json!({"instructions": "zero", "input": items})).unwrap();
        assert_eq!(request.content.texts, ["zero", "one", "two", "three"]);
        assert_eq!((request.content.images, request.content.unseen), (3, 1));
        assert_eq!(
            read(json!({"input": "one"})).unwrap().content.texts,
            ["one"]
        );
    }

    #[test]
    fn everything_that_builds_on_earlier_answers_is_found() {
        let items = json!([
            {"type": "item_reference", "id": "a"},
            {"id": "b"},
            {"type": "mcp_approval_response", "id": "mine", "approval_request_id": "c"},
            {"type": "message", "id": "replayed", "role": "assistant", "content": []},
        ]);
        let request = read(json!({"previous_response_id": "r", "input": items})).unwrap();
        let mut ids: Vec<&str> = request.references.iter().map(|one| &*one.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["a", "b", "c", "r"]);
    }

    #[test]
    fn what_reads_in_two_ways_or_is_not_served_is_refused() {
        for members in [
            json!({}),
            json!({"input": 5}),
            json!({"input": [5]}),
            json!({"input": "x", "background": true}),
            json!({"input": "x", "background": 1}),
            json!({"input": "x", "conversation": {"id": "c"}}),
            json!({"input": "x", "previous_response_id": ["r"]}),
            json!({"input": "x", "text": "json"}),
            json!({"input": "x", "messages": [{"role": "user", "content": "y"}]}),
        ] {
            assert!(read(members.clone()).is_err(), "{members}");
        }
        let twice =
            br#"{"model":"m","input":[{"type":"message","type":"item_reference","id":"a"}]}"#;
        assert!(ChatRequest::read_as(Api::Responses, twice).is_err());
        let twice = br#"{"model":"m","input":"x","input":"y"}"#;
        assert!(ChatRequest::read_as(Api::Responses, twice).is_err());
    }

    #[test]
    fn a_form_that_the_answer_must_have_is_seen() {
        let format = |kind: &str| json!({"input": "x", "text": {"format": {"type": kind}}});
        assert!(read(format("json_schema")).unwrap().forces_structure());
        assert!(!read(format("text")).unwrap().forces_structure());
        assert!(
            !read(json!({"input": "x", "text": {"verbosity": "low"}}))
                .unwrap()
                .forces_structure()
        );
    }
}
