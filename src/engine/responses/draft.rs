//! The pieces and copies of one call on their way to a whole call.
//!
//! The same call is on the wire up to four times, and clients read different copies: they must
//! all say the same.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{item::Item, members::Members};
use crate::engine::chain::{Call, CallKind};

/// What of a call has arrived.
#[derive(Debug, Clone)]
pub struct Draft {
    kind: String,
    added: Option<Members>,
    done: Option<Members>,
    /// The copy in the response object.
    last: Option<Members>,
    /// Names in events of their own.
    names: Vec<String>,
    /// By `command_index`, 0 where there is none.
    pieces: BTreeMap<u64, Pieces>,
    fault: Option<&'static str>,
}

#[derive(Debug, Clone, Default)]
struct Pieces {
    joined: Option<String>,
    whole: Option<String>,
}

/// A whole call, and the item that goes on if it may.
#[derive(Debug, Clone)]
pub struct Proposal {
    pub call: Call,
    pub item: Members,
    pub kind: String,
    /// Which of the answer's judgements is about it.
    pub judged: usize,
}

const DISAGREE: &str = "The copies of the call differ from each other.";
const CUT_OFF: &str = "The call was cut off.";
const NO_ID: &str = "The call has no id.";
const TWO_PAYLOADS: &str = "The call says in two places what to run.";

/// Members that tell calls apart, by which a client finds what to run or where to answer.
const IDENTITY: &[&str] = &["type", "call_id", "name", "namespace", "server_label"];

impl Draft {
    pub fn new(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            added: None,
            done: None,
            last: None,
            names: Vec::new(),
            pieces: BTreeMap::new(),
            fault: None,
        }
    }

    pub fn call_id(&self) -> Option<String> {
        let copies = [&self.done, &self.added];
        copies
            .into_iter()
            .flatten()
            .find_map(|item| item.text("call_id"))
    }

    pub fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    pub fn add(&mut self, item: Item) {
        self.added = Some(item.members);
    }

    pub fn finish(&mut self, item: Item) {
        if self.done.is_some() {
            self.fault = Some(DISAGREE);
        }
        self.done = Some(item.members);
    }

    pub fn copy(&mut self, item: Item) {
        if self.last.is_some() {
            self.fault = Some(DISAGREE);
        }
        self.last = Some(item.members);
    }

    pub fn piece(&mut self, at: u64, delta: &str) {
        let pieces = self.pieces.entry(at).or_default();
        pieces.joined.get_or_insert_default().push_str(delta);
    }

    pub fn whole(&mut self, at: u64, text: String, name: Option<String>) {
        let pieces = self.pieces.entry(at).or_default();
        if pieces.whole.as_ref().is_some_and(|known| *known != text) {
            self.fault = Some(DISAGREE);
        }
        pieces.whole = Some(text);
        self.names.extend(name);
    }

    /// Says what the call is, if it is one.
    pub fn close(self) -> Proposal {
        let fault = self
            .fault
            .or_else(|| self.check_identity())
            .or_else(|| self.check_payload());
        let finished = [&self.last, &self.done].into_iter().flatten().next();
        let cut_off = finished.is_none_or(|item| {
            let status = item.text("status");
            matches!(status.as_deref(), Some("incomplete" | "failed"))
        });
        let mut item = finished
            .or(self.added.as_ref())
            .cloned()
            .unwrap_or_default();
        let payload = payload_name(&self.kind, &item);
        let arguments = match payload {
            Some(name) => item.text_or_json(name).unwrap_or_default(),
            None => item.without(&["id", "type", "status"]).to_json(),
        };
        let id = id(&self.kind, &mut item);
        let fault = fault
            .or_else(|| cut_off.then_some(CUT_OFF))
            .or_else(|| says_more(payload, &item).then_some(TWO_PAYLOADS))
            .or_else(|| id.is_empty().then_some(NO_ID));
        let call = Call {
            kind: call_kind(&self.kind),
            id,
            name: item.text("name").unwrap_or_else(|| bare(&self.kind)),
            namespace: item.text("namespace").or_else(|| item.text("server_label")),
            arguments,
            fault,
        };
        Proposal {
            call,
            item,
            kind: self.kind,
            judged: 0,
        }
    }

    fn check_identity(&self) -> Option<&'static str> {
        for member in IDENTITY {
            // Where a search begins, its call has an id that it does not keep.
            let begun = self.added.iter().filter(|_| *member != "call_id");
            let copies = begun.chain(&self.done).chain(&self.last);
            let said = copies.filter_map(|item| item.text(member));
            let mut said: BTreeSet<String> = said.filter(|text| !text.is_empty()).collect();
            if *member == "name" {
                let names = self.names.iter().filter(|name| !name.is_empty());
                said.extend(names.cloned());
            }
            if said.len() > 1 {
                return Some(DISAGREE);
            }
        }
        None
    }

    fn check_payload(&self) -> Option<&'static str> {
        let wholes: Vec<&Members> = [&self.done, &self.last].into_iter().flatten().collect();
        let values = |item: &&Members| content(&self.kind, item);
        let mut payloads = wholes.iter().map(values);
        let first = payloads.next()?;
        if payloads.any(|other| other != first) {
            return Some(DISAGREE);
        }
        // Of what a structured action begins as, more may follow without a piece of its own.
        if let (Value::String(whole), Some(added)) = (&first, &self.added) {
            let early = payload_name(&self.kind, added).and_then(|name| added.text_or_json(name));
            if early.is_some_and(|early| !early.is_empty() && early != *whole) {
                return Some(DISAGREE);
            }
        }
        let differs = |(at, pieces): (&u64, &Pieces)| {
            let expected = expected(&self.kind, &first, *at);
            let said = [&pieces.joined, &pieces.whole];
            said.into_iter()
                .flatten()
                .any(|text| Some(text) != expected.as_ref())
        };
        self.pieces.iter().any(differs).then_some(DISAGREE)
    }
}

/// The member that says what to run.
fn payload_name(kind: &str, item: &Members) -> Option<&'static str> {
    match kind {
        "function_call" | "mcp_approval_request" | "tool_search_call" => Some("arguments"),
        "custom_tool_call" => Some("input"),
        "local_shell_call" | "shell_call" => Some("action"),
        "computer_call" if item.get("actions").is_some() && item.get("action").is_none() => {
            Some("actions")
        }
        "computer_call" if item.get("actions").is_none() => Some("action"),
        "apply_patch_call" => Some("operation"),
        _ => None,
    }
}

/// Members that say what to run in one kind of item or another.
const PAYLOADS: &[&str] = &[
    "arguments",
    "input",
    "action",
    "actions",
    "operation",
    "function",
    "commands",
    "command",
];

/// `true` if a client could find something to run beside the payload that was judged.
fn says_more(payload: Option<&str>, item: &Members) -> bool {
    let other = |name: &&&str| payload.is_some_and(|payload| payload != **name);
    PAYLOADS
        .iter()
        .filter(other)
        .any(|name| item.get(name).is_some())
}

/// The payload, so that two copies can be compared whatever their spelling.
fn content(kind: &str, item: &Members) -> Value {
    match payload_name(kind, item) {
        Some(name) if matches!(kind, "function_call" | "custom_tool_call") => {
            item.text_or_json(name).unwrap_or_default().into()
        }
        Some(name) => item.get(name).map(json).unwrap_or_default(),
        None => json_text(&item.without(&["id", "status"]).to_json()),
    }
}

fn json(raw: &serde_json::value::RawValue) -> Value {
    json_text(raw.get())
}

fn json_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// What the pieces at `at` must have amounted to.
fn expected(kind: &str, payload: &Value, at: u64) -> Option<String> {
    let text = match kind {
        "shell_call" => payload.get("commands")?.get(usize::try_from(at).ok()?)?,
        "apply_patch_call" => payload.get("diff")?,
        _ => payload,
    };
    text.as_str().map(str::to_owned)
}

/// Where the client answers: the item's own id where there is no other.
fn id(kind: &str, item: &mut Members) -> String {
    let given = item.text("call_id").filter(|id| !id.is_empty());
    if let Some(id) = given {
        return id;
    }
    let own = item.text("id").unwrap_or_default();
    if kind != "mcp_approval_request" && !own.is_empty() {
        item.set_text("call_id", &own);
    }
    own
}

fn call_kind(kind: &str) -> CallKind {
    match kind {
        "function_call" => CallKind::Function,
        "custom_tool_call" => CallKind::Custom,
        other => CallKind::Item(bare(other).into()),
    }
}

/// An item's type as a tool is called by it.
pub fn bare(kind: &str) -> String {
    match kind {
        "function_call" | "custom_tool_call" => String::new(),
        "mcp_approval_request" | "mcp_call" => "mcp".to_owned(),
        other => other.strip_suffix("_call").unwrap_or(other).to_owned(),
    }
}
