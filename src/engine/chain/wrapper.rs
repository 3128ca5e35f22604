//! Calls that hold other calls. Some models put several calls into one of a function
//! `multi_tool_use.parallel`, and some client libraries take them out again, so each is judged
//! as a call of its own.

use super::{Call, CallGuard, CallKind, Content, Proposal};
use crate::engine::json::Json;

const WRAPPERS: &[&str] = &["parallel", "multi_tool_use.parallel"];
/// Written before the name of each call in a wrapper.
const RECIPIENT: &str = "functions.";
/// More calls in one wrapper are refused.
const MAX_INNER: usize = 128;

/// Whether the call is nothing but a wrapper: named so, and not a tool that the request offers.
pub(super) fn is_bare(guard: &CallGuard, proposal: &Proposal<'_>) -> bool {
    let call = proposal.call;
    is_wrapper(proposal)
        && guard
            .offered
            .find(call.namespace.as_deref(), &call.name)
            .is_none()
}

/// The calls in a wrapper; none if it is no wrapper.
///
/// # Errors
/// It has not exactly the form in which calls can be taken out.
pub(super) fn open(guard: &CallGuard, proposal: &Proposal<'_>) -> Result<Vec<Call>, &'static str> {
    let Ok(Content::Json(arguments)) = &proposal.content else {
        return Ok(Vec::new());
    };
    if !is_wrapper(proposal) {
        return Ok(Vec::new());
    }
    // A tool of the client's own that has the name by chance. With other spellings of the
    // member it is still taken for a wrapper, and refused.
    let members = arguments.members().unwrap_or_default();
    let wraps = |(name, _): &(String, Json)| name.eq_ignore_ascii_case("tool_uses");
    if !is_bare(guard, proposal) && !members.iter().any(wraps) {
        return Ok(Vec::new());
    }
    match members {
        [(name, Json::Array(uses))]
            if name == "tool_uses" && !uses.is_empty() && uses.len() <= MAX_INNER =>
        {
            uses.iter().map(inner).collect::<Option<_>>().ok_or(FORM)
        }
        _ => Err(FORM),
    }
}

fn is_wrapper(proposal: &Proposal<'_>) -> bool {
    proposal.call.kind == CallKind::Function && is_name(&proposal.tool)
}

/// Whether a tool of this name holds other calls.
pub fn is_name(tool: &str) -> bool {
    WRAPPERS.contains(&bare(tool))
}

fn bare(name: &str) -> &str {
    name.strip_prefix(RECIPIENT).unwrap_or(name)
}

fn inner(call: &Json) -> Option<Call> {
    let [first, second] = call.members()? else {
        return None;
    };
    let (recipient, parameters) = match (first, second) {
        ((a, recipient), (b, parameters)) | ((b, parameters), (a, recipient))
            if a == "recipient_name" && b == "parameters" =>
        {
            (recipient.as_str()?, parameters)
        }
        _ => return None,
    };
    let name = bare(recipient);
    if WRAPPERS.contains(&bare(name)) {
        return None;
    }
    parameters.members()?;
    Some(Call {
        kind: CallKind::Function,
        id: String::new(),
        name: name.to_owned(),
        namespace: None,
        arguments: parameters.to_string(),
        fault: None,
    })
}

const FORM: &str = "The call holds other calls in a form in which they cannot be judged.";
