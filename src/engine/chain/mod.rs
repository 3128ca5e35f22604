//! The questions put to every tool call that a model proposes, in their one order; the first
//! "no" ends it.
//!
//! Whoever takes calls out of an answer (chat, Responses) makes a `Call` of each, asks
//! `CallGuard::judge`, and sends on what passed, written from `Judgement::arguments`.

mod notice;

use std::sync::Arc;

use serde::Serialize;

pub use self::notice::{guard_object, notice};

/// A call as the model proposed it, whole, decoded, not yet judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub kind: CallKind,
    /// As it will be sent on. Empty: the model gave none.
    pub id: String,
    pub name: String,
    /// Responses: a name is unique only within its namespace.
    pub namespace: Option<String>,
    /// Function calls: the JSON text of the arguments. Custom calls: free text. Items: the
    /// canonical JSON of the action.
    pub arguments: String,
    /// Why the pieces make no call, if they do not: it is blocked at the first layer.
    pub fault: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallKind {
    Function,
    Custom,
    /// A Responses item that is a call by its type, such as `local_shell`; judged by the name
    /// `type:local_shell`.
    Item(Box<str>),
}

/// Everything a judgement may know: the policy's rules, the contracts, and facts of one
/// authenticated request.
#[derive(Debug, Clone)]
pub struct CallGuard {
    pub tenant: Arc<str>,
    /// `id@version`.
    pub policy: Arc<str>,
}

/// The answer to one call.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// One for each layer that was asked, in order.
    pub results: Vec<GuardResult>,
    /// What to send on: function arguments written from the parsed value, number text kept;
    /// other kinds as they came.
    pub arguments: String,
    pub blocked: Option<Block>,
}

/// Why a call is not sent on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// `malformed_output`, `unknown_tool`, …
    pub code: &'static str,
    /// What the call names, cut and cleaned so that it can stand in a text for people.
    pub tool: String,
    /// The rule that said no, as the configuration names it.
    pub rule: String,
    /// One sentence for people and models.
    pub message: String,
}

/// What one layer said, for the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuardResult {
    /// The layer's code.
    pub code: &'static str,
    pub outcome: GuardOutcome,
    pub rule: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardOutcome {
    Passed,
    Blocked,
    Warn,
    Paused,
}

/// `tools.on_block`, `tools.batch` and what the request forces: how blocked calls are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delivery {
    /// The answer is an error: `on_block = "error"`, or the request forces a call or JSON.
    pub as_error: bool,
    /// `batch = "each"`: the allowed siblings of a blocked call go on.
    pub each: bool,
}

impl CallGuard {
    /// Asks the layers in order.
    pub fn judge(&self, call: &Call) -> Judgement {
        Judgement {
            results: Vec::new(),
            arguments: call.arguments.clone(),
            blocked: call.fault.map(|fault| Block {
                code: "malformed_output",
                tool: call.name.chars().take(64).collect(),
                rule: "malformed_output".to_owned(),
                message: fault.to_owned(),
            }),
        }
    }
}
