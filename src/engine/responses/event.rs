//! One event of a stream, as far as it has to be understood, and what kind it is.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Fault, item::check_part};

/// What is read of an event. Members that are not named here stay as they came; one that is
/// named and stands there twice, in whatever spelling, makes the event unreadable.
#[derive(Debug, Deserialize)]
pub struct StreamEvent<'a> {
    #[serde(borrow, default, rename = "type")]
    pub kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub sequence_number: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub output_index: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub command_index: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub part: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub command: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub diff: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    call_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow, default)]
    function_call: Option<&'a RawValue>,
    #[serde(borrow, default)]
    choices: Option<&'a RawValue>,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The response object, not ended yet.
    Begun,
    /// The response object, ended.
    Ended,
    ItemAdded,
    ItemDone,
    /// A piece of a call, of the item at `output_index`.
    CallPiece,
    /// A piece of anything else, of the item at `output_index`.
    Piece,
    Error,
    /// Keeps the connection alive, says nothing.
    Alive,
    Unknown,
}

/// Beginnings of the events about pieces of calls.
const CALL_PIECES: &[&str] = &[
    "function_call_arguments.",
    "custom_tool_call_input.",
    "mcp_call_arguments.",
    "shell_call_command.",
    "apply_patch_call_operation_diff.",
];

/// Beginnings of the events in which no call can be.
const PIECES: &[&str] = &[
    "output_text.",
    "refusal.",
    "content_part.",
    "reasoning_text.",
    "reasoning_summary_text.",
    "reasoning_summary_part.",
    "reasoning_summary.",
    "reasoning.",
    "audio.",
    "web_search_call.",
    "file_search_call.",
    "code_interpreter_call.",
    "code_interpreter_call_code.",
    "image_generation_call.",
    "mcp_list_tools.",
    "mcp_call.",
    "shell_call_output_content.",
    "compaction.",
];

impl<'a> StreamEvent<'a> {
    /// # Errors
    /// Not JSON, not UTF-8, or a member that matters of the wrong type or twice.
    pub fn read(data: &'a [u8]) -> Result<Self, Fault> {
        let unreadable = Fault("An event of the answer cannot be read.");
        let text = std::str::from_utf8(data).map_err(|_| unreadable)?;
        // A list would be read as members in their order.
        if !text.starts_with('{') {
            return Err(unreadable);
        }
        serde_json::from_str(text).map_err(|_| unreadable)
    }

    pub fn kind(&self) -> Kind {
        let Some(name) = self.kind.strip_prefix("response.") else {
            return match &*self.kind {
                "" | "error" if self.error.is_some() || self.kind == "error" => Kind::Error,
                "keepalive" | "ping" => Kind::Alive,
                _ => Kind::Unknown,
            };
        };
        let any = |beginnings: &[&str]| beginnings.iter().any(|one| name.starts_with(one));
        match name {
            "created" | "queued" | "in_progress" => Kind::Begun,
            "completed" | "incomplete" | "failed" | "cancelled" => Kind::Ended,
            "output_item.added" => Kind::ItemAdded,
            "output_item.done" => Kind::ItemDone,
            "keepalive" => Kind::Alive,
            _ if any(CALL_PIECES) => Kind::CallPiece,
            _ if any(PIECES) => Kind::Piece,
            _ => Kind::Unknown,
        }
    }

    /// # Errors
    /// When it holds what events of its kind never hold, and what may be a call.
    pub fn check(&self, kind: Kind) -> Result<(), Fault> {
        let calls = [self.tool_calls, self.function_call, self.choices];
        let item = self
            .item
            .filter(|_| !matches!(kind, Kind::ItemAdded | Kind::ItemDone));
        let response = self
            .response
            .filter(|_| !matches!(kind, Kind::Begun | Kind::Ended));
        let call_id = self.call_id.filter(|_| kind != Kind::CallPiece);
        if calls.iter().any(Option::is_some)
            || [item, response, call_id].iter().any(Option::is_some)
        {
            return Err(Fault("An event of the answer holds what may be a call."));
        }
        if kind == Kind::Piece {
            self.part.map_or(Ok(()), check_part)?;
            let says = self.kind.starts_with("response.output_text.");
            if says && self.delta.is_some_and(|raw| !raw.get().starts_with('"')) {
                return Err(Fault("A piece of text is not text."));
            }
        }
        Ok(())
    }

    /// # Errors
    /// Not a number that can be an index.
    pub fn index(&self) -> Result<Option<u64>, Fault> {
        count(self.output_index)
    }

    /// # Errors
    /// Not a number that can be an index.
    pub fn command_index(&self) -> Result<Option<u64>, Fault> {
        count(self.command_index)
    }

    /// The text of a piece of a call and whether it is the whole: `delta`, or the member that
    /// holds all.
    pub fn call_text(&self) -> Option<(String, bool)> {
        let whole = [self.arguments, self.input, self.command, self.diff];
        let text = |raw: &RawValue| {
            serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned())
        };
        match self.delta {
            Some(delta) => Some((text(delta), false)),
            None => {
                let begins = self.kind.ends_with(".added");
                Some((text(whole.into_iter().flatten().next()?), !begins))
            }
        }
    }

    pub fn name(&self) -> Option<String> {
        serde_json::from_str(self.name?.get()).ok()
    }

    /// Bytes that a model wrote here for the first time.
    pub fn written(&self) -> u64 {
        self.delta
            .map_or(0, |delta| delta.get().len().saturating_sub(2) as u64)
    }
}

fn count(raw: Option<&RawValue>) -> Result<Option<u64>, Fault> {
    raw.map(|raw| raw.get().parse())
        .transpose()
        .map_err(|_| Fault("An event of the answer has no usable index."))
}
