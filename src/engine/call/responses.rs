//! What a request to the Responses API says differently: its input, what it refers to, and what
//! is not served.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{ChatRequest, Content, InvalidRequest, invalid};

/// Something of an earlier answer that a request builds on. It may only be the key's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub id: String,
    /// The member that holds it.
    pub param: &'static str,
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
        "input" => read_input(request, raw)?,
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
            request.references.push(Reference { id, param });
        }
        "text" => request.json_answer = !nothing && forces_json(raw)?,
        "instructions" | "previous_response_id" => {}
        _ => return Ok(false),
    }
    Ok(true)
}

fn read_input(request: &mut ChatRequest, raw: &RawValue) -> Result<(), InvalidRequest> {
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
    let items: Vec<Item<'_>> =
        serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
    for item in items {
        let id = match item.kind.as_deref() {
            Some("item_reference") => item.id,
            Some("mcp_approval_response") => item.approval_request_id,
            // An item that says no more than its id is a reference, too.
            None if item.role.is_none() => item.id,
            _ => None,
        };
        if let Some(id) = id {
            let (id, param) = (id.into_owned(), "input");
            request.references.push(Reference { id, param });
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
