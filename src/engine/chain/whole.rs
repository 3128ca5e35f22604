//! Layer 1: is the call whole? A name, and arguments that are one complete JSON object within
//! bounds, of which no two readers can disagree.

use super::{Call, CallGuard, CallKind, Content, Finding, Proposal};
use crate::engine::json::{Fault, Json, MAX_BYTES};

pub const CODE: &str = "malformed_output";

/// Longer names are refused, in bytes.
const LONGEST_NAME: usize = 128;

pub(super) fn read(call: &Call) -> Proposal<'_> {
    Proposal {
        call,
        tool: call.tool(),
        content: content(call),
    }
}

pub(super) fn ask(_: &CallGuard, proposal: &Proposal<'_>) -> Vec<Finding> {
    match proposal.content {
        Ok(_) => Vec::new(),
        Err(fault) => vec![Finding::no(CODE, fault)],
    }
}

/// What goes on to the client if nothing speaks against it.
pub(super) fn to_send(proposal: &Proposal<'_>) -> String {
    let call = proposal.call;
    // Client libraries differ in whether they read nothing as no arguments.
    match call.kind == CallKind::Function && is_nothing(&call.arguments) {
        true => EMPTY.to_owned(),
        false => call.arguments.clone(),
    }
}

fn content(call: &Call) -> Result<Content, &'static str> {
    if let Some(fault) = call.fault {
        return Err(fault);
    }
    match &call.kind {
        CallKind::Item(kind) => {
            check_name(kind)?;
            parse(&call.arguments).map(Content::Json)
        }
        CallKind::Function => {
            check_names(call)?;
            arguments(&call.arguments).map(Content::Json)
        }
        CallKind::Custom => {
            check_names(call)?;
            match call.arguments.len() > MAX_BYTES {
                true => Err("The input of the custom tool is too large (at most 1 MiB)."),
                false => Ok(Content::Text),
            }
        }
    }
}

fn arguments(text: &str) -> Result<Json, &'static str> {
    let text = if is_nothing(text) { EMPTY } else { text };
    match parse(text)? {
        object @ Json::Object(_) => Ok(object),
        _ => Err("The arguments are no JSON object."),
    }
}

fn parse(text: &str) -> Result<Json, &'static str> {
    Json::parse(text).map_err(Fault::message)
}

fn is_nothing(arguments: &str) -> bool {
    arguments.is_empty()
}

fn check_names(call: &Call) -> Result<(), &'static str> {
    if let Some(namespace) = call.namespace.as_deref().filter(|name| !name.is_empty()) {
        check_name(namespace)?;
    }
    check_name(&call.name)?;
    // Rules name hosted types and servers so; no function may pass for one.
    let tool = call.tool();
    match ["type:", "mcp:"]
        .iter()
        .any(|family| tool.starts_with(family))
    {
        true => Err("The name of the tool is reserved."),
        false => Ok(()),
    }
}

/// Whether a tool, a type or a scope can have this name.
pub fn is_tool_name(name: &str) -> bool {
    check_name(name).is_ok()
}

/// Letters and signs of any script, but nothing that is invisible, ends a line, or is space.
fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("The call names no tool.");
    }
    if name.len() > LONGEST_NAME {
        return Err("The name of the tool is too long (at most 128 bytes).");
    }
    match name.chars().any(is_odd) {
        true => Err("The name of the tool holds white space or characters that cannot be seen."),
        false => Ok(()),
    }
}

fn is_odd(char: char) -> bool {
    char.is_whitespace()
        || char.is_control()
        || matches!(
            char,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
                | '\u{ffa0}' | '\u{fff0}'..='\u{ffff}' | '\u{e0000}'..='\u{e0fff}'
        )
}

const EMPTY: &str = "{}";
