//! What an output item is: text, something that the provider ran, or a call for the client.

use serde_json::value::RawValue;

use super::{Fault, members::Members};

/// What may be done with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// What the model says to the user: never waits.
    Message,
    /// Neither said to anybody nor run by anybody.
    Quiet,
    /// Run by the provider before we see it. Judged by its type alone.
    Hosted,
    /// For the client to run: withheld and judged. Unknown types are of this kind.
    Call,
}

/// Item types that hold nothing to run: what the model thought, and results of what was run.
const QUIET: &[&str] = &[
    "reasoning",
    "compaction",
    "mcp_list_tools",
    "mcp_approval_response",
    "function_call_output",
    "custom_tool_call_output",
    "computer_call_output",
    "local_shell_call_output",
    "shell_call_output",
    "apply_patch_call_output",
    "tool_search_output",
    "program_output",
];

/// Item types of tools that the provider runs.
const HOSTED: &[&str] = &[
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "program",
];

/// Parts of a message or of a reasoning item.
const PARTS: &[&str] = &[
    "output_text",
    "text",
    "refusal",
    "reasoning_text",
    "summary_text",
    "output_audio",
];

/// Members in which other dialects have calls. No item of this API has them.
const FOREIGN: &[&str] = &["tool_calls", "function_call", "tool_uses", "choices"];

/// An item, read strictly.
#[derive(Debug, Clone)]
pub struct Item {
    pub kind: String,
    pub role: Role,
    pub members: Members,
}

impl Item {
    /// # Errors
    /// What cannot be read, or holds a call where none belongs.
    pub fn read(raw: &RawValue) -> Result<Self, Fault> {
        let members = Members::read(raw).map_err(|_| Fault("An output item cannot be read."))?;
        let kind = members
            .text("type")
            .ok_or(Fault("An output item names no type."))?;
        if members.names().any(|name| FOREIGN.contains(&name)) {
            return Err(Fault("An output item holds calls of another API."));
        }
        let role = role(&kind, &members);
        if matches!(role, Role::Message | Role::Quiet) {
            check_parts(members.get("content"))?;
            check_parts(members.get("summary"))?;
        }
        Ok(Self {
            kind,
            role,
            members,
        })
    }

    /// Bytes that a model wrote here, for an estimate.
    pub fn written(&self) -> u64 {
        let content = ["content", "arguments", "input", "action", "operation"];
        let parts = content.iter().filter_map(|name| self.members.get(name));
        parts.map(|raw| raw.get().len() as u64).sum()
    }
}

fn role(kind: &str, members: &Members) -> Role {
    match kind {
        "message" => Role::Message,
        "shell_call" if in_container(members) => Role::Hosted,
        "tool_search_call" if members.text("execution").as_deref() == Some("server") => {
            Role::Hosted
        }
        kind if QUIET.contains(&kind) => Role::Quiet,
        kind if HOSTED.contains(&kind) => Role::Hosted,
        _ => Role::Call,
    }
}

/// A shell whose environment is a container is one of the provider's.
fn in_container(members: &Members) -> bool {
    let environment = members.get("environment").map(Members::read);
    environment
        .and_then(Result::ok)
        .and_then(|environment| environment.text("type"))
        .is_some_and(|kind| kind.starts_with("container"))
}

/// Text, or a list of parts of known types.
fn check_parts(content: Option<&RawValue>) -> Result<(), Fault> {
    let Some(raw) = content.filter(|raw| !raw.get().starts_with('"')) else {
        return Ok(());
    };
    let parts: Vec<&RawValue> = serde_json::from_str(raw.get())
        .map_err(|_| Fault("The content of an output item cannot be read."))?;
    parts.into_iter().try_for_each(check_part)
}

/// # Errors
/// A part that may hold a call.
pub fn check_part(raw: &RawValue) -> Result<(), Fault> {
    let part = Members::read(raw).map_err(|_| Fault("A part of a message cannot be read."))?;
    let known = part
        .text("type")
        .is_some_and(|kind| PARTS.contains(&kind.as_str()));
    if known && !part.names().any(|name| FOREIGN.contains(&name)) {
        Ok(())
    } else {
        Err(Fault("A message holds a part of an unknown type."))
    }
}
