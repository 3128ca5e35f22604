//! A record as the ledger has it, as far as a replay looks at it.

use serde::Deserialize;

/// The members of all kinds side by side; what a kind has not is empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// Milliseconds since 1970.
    pub at: i64,
    pub kind: Kind,
    pub request_id: Option<Box<str>>,
    pub key: Option<Box<str>>,
    pub tenant: Option<Box<str>>,
    /// `id@version` that judged then.
    pub policy: Option<Box<str>>,
    pub requested_model: Option<Box<str>>,
    pub run: Option<Box<str>>,
    pub step: Option<u64>,
    pub provider: Option<Box<str>>,
    pub resolved_model: Option<Box<str>>,
    pub reserved_tokens: u64,
    /// Absent in records of before it was written down.
    pub input_bound: Option<u64>,
    pub output_cap: Option<u64>,
    /// Of the conversation up to its last user input, where that was looked at.
    pub input_sha256: Option<Box<str>>,
    pub tainted: bool,
    pub resumes: Option<Box<str>>,
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    pub cost_nano_usd: u64,
    pub outcome: Option<Box<str>>,
    /// Why a request was refused, and the limit or list that said so.
    pub code: Option<Box<str>>,
    pub rule: Option<Box<str>>,
    pub delivered: bool,
    /// Of a call that was judged.
    #[serde(skip)]
    pub call: Option<Call>,
}

impl Entry {
    /// Reads a record's JSON. `None`: it is none of ours.
    pub fn read(text: &str) -> Option<Self> {
        let mut entry: Self = serde_json::from_str(text).ok()?;
        if entry.kind == Kind::CallJudged {
            entry.call = serde_json::from_str(text).ok();
        }
        Some(entry)
    }
}

/// What the chain said of a call.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Call {
    pub tool: Box<str>,
    pub arguments_sha256: Box<str>,
    pub results: Vec<LayerResult>,
    pub blocked: Option<Box<str>>,
    pub idempotent_replay: bool,
    /// The calls in a wrapper call.
    pub inner: Vec<Call>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct LayerResult {
    pub code: Box<str>,
    pub outcome: LayerOutcome,
    pub rule: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerOutcome {
    Passed,
    Blocked,
    Warn,
    Paused,
}

/// What a replay tells apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Started,
    RequestStarted,
    RequestSettled,
    RequestRefused,
    CallJudged,
    #[default]
    #[serde(other)]
    Other,
}
