//! What the ledger holds: names, counts, codes and digests. No field can hold a prompt, an
//! argument or an answer.

use std::{net::IpAddr, sync::Arc};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{
    budget::LimitNote,
    chain::{GuardResult, Judgement},
    names::clean_name,
    run::{Action, Effect, Reason, Report, Taken},
};

/// One thing that happened.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// Milliseconds since 1970.
    pub at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Arc<str>>,
    #[serde(flatten)]
    pub event: Event,
}

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The process began to serve.
    Started {
        version: &'static str,
    },
    /// Before anything was sent to a provider.
    RequestStarted(Box<Opening>),
    /// An attempt at a provider failed, and another is made.
    AttemptFailed(Box<FailedAttempt>),
    RequestSettled(Box<Closing>),
    RequestRefused(Box<Refused>),
    /// A tool call that a model proposed, passed or not.
    CallJudged(Box<JudgedCall>),
    /// A run was helped on, or it became known whether that helped.
    Escalation(Box<EscalationNote>),
    /// A caller said how its run went.
    RunReported(Box<RunReport>),
    /// A call waits for a person.
    ApprovalOpened(Box<ApprovalNote>),
    /// A person, or the time, decided.
    ApprovalDecided(Box<ApprovalNote>),
    /// The one delivery that an approval lets through was made.
    ApprovalUsed(Box<ApprovalNote>),
    /// Refusals that are too many to be recorded one by one.
    RefusalsSummed(Summary),
    ConfigurationReloaded {
        keys: usize,
        policies: usize,
    },
    ConfigurationRefused {
        problems: usize,
        first: String,
    },
    /// From here on this version never changes.
    PolicyPublished {
        policy: String,
        sha256: String,
    },
    /// It serves nobody any more.
    PolicyArchived {
        policy: String,
        sha256: String,
    },
    /// A process ended without giving its slice back: the slice counts as spent.
    LeaseRecovered {
        account: String,
        period: i64,
        amount: u64,
    },
}

impl Event {
    /// All of them.
    pub const KINDS: &[&str] = &[
        "started",
        "request_started",
        "attempt_failed",
        "request_settled",
        "request_refused",
        "call_judged",
        "escalation",
        "run_reported",
        "approval_opened",
        "approval_decided",
        "approval_used",
        "refusals_summed",
        "configuration_reloaded",
        "configuration_refused",
        "policy_published",
        "policy_archived",
        "lease_recovered",
    ];

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::RequestStarted(_) => "request_started",
            Self::AttemptFailed(_) => "attempt_failed",
            Self::RequestSettled(_) => "request_settled",
            Self::RequestRefused(_) => "request_refused",
            Self::CallJudged(_) => "call_judged",
            Self::Escalation(_) => "escalation",
            Self::RunReported(_) => "run_reported",
            Self::ApprovalOpened(_) => "approval_opened",
            Self::ApprovalDecided(_) => "approval_decided",
            Self::ApprovalUsed(_) => "approval_used",
            Self::RefusalsSummed(_) => "refusals_summed",
            Self::ConfigurationReloaded { .. } => "configuration_reloaded",
            Self::ConfigurationRefused { .. } => "configuration_refused",
            Self::PolicyPublished { .. } => "policy_published",
            Self::PolicyArchived { .. } => "policy_archived",
            Self::LeaseRecovered { .. } => "lease_recovered",
        }
    }
}

/// Who asked for what.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Subject {
    pub key: Option<Arc<str>>,
    pub tenant: Option<Arc<str>>,
    /// `id@version`.
    pub policy: Option<Arc<str>>,
    pub requested_model: Option<Arc<str>>,
    /// The run that it belongs to, and how many requests of it were admitted with this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Opening {
    #[serde(flatten)]
    pub subject: Subject,
    pub provider: Arc<str>,
    pub resolved_model: Arc<str>,
    pub stream: bool,
    pub reserved_nano_usd: u64,
    pub reserved_tokens: u64,
    /// Of these, for the input of one attempt.
    pub input_bound: u64,
    /// All limits that had to leave room, before and after the reservation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitNote>,
    pub output_cap: Option<u64>,
    /// SHA-256 of the request body.
    pub body_sha256: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<&'static str>,
    /// Limits that only count, and that it passed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub would_refuse: Vec<WouldRefuse>,
    #[serde(skip_serializing_if = "OfferNotes::is_empty")]
    pub tools: OfferNotes,
    /// The request whose parked answer this one is given: no provider is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumes: Option<Arc<str>>,
    /// SHA-256 of the conversation up to its last user input, where rules looked at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_sha256: Option<Arc<str>>,
    /// Data from outside stood in that conversation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tainted: bool,
    /// What the client calls its run besides its name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Box<str>>,
}

/// A limit that only counts, and how it stood when a request passed it.
#[derive(Debug, Clone, Serialize)]
pub struct WouldRefuse {
    /// What the request would have been told.
    pub code: &'static str,
    /// The limit, as the configuration names it.
    pub rule: &'static str,
    /// Whose it is: `key "k1"`.
    pub subject: Arc<str>,
    /// `usd`, in nano-dollars here, `tokens` or `requests`: of all that follows.
    pub unit: &'static str,
    pub limit: u64,
    pub used: u64,
    pub reserved: u64,
    /// By the smallest answer.
    pub needed: u64,
}

/// What became of offered tools that a rule speaks against, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OfferNotes {
    /// Taken out of what went upstream.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stripped: Vec<String>,
    /// Let through, since the rule only observes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub observed: Vec<String>,
    /// MCP servers that must ask before each call, as the request did not say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made_to_ask: Vec<String>,
}

impl OfferNotes {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Closing {
    #[serde(flatten)]
    pub subject: Subject,
    pub provider: Arc<str>,
    pub resolved_model: Arc<str>,
    pub answered_model: Option<String>,
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    pub reasoning_tokens: u64,
    pub cost_nano_usd: u64,
    /// The provider reported no usage: the numbers are our own count.
    pub estimated: bool,
    pub usage_suspect: bool,
    pub outcome: Outcome,
    pub status: u16,
    pub tool_calls: u64,
    /// The same limits, before and after what was reserved became what was used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitNote>,
    pub duration_ms: i64,
}

#[derive(Debug, Clone, Serialize)]
pub struct FailedAttempt {
    #[serde(flatten)]
    pub subject: Subject,
    pub provider: Arc<str>,
    pub resolved_model: Arc<str>,
    /// Counted from 1.
    pub attempt: u32,
    /// `unreachable`, `no_answer`, `rate_limited`, `credential_refused`, `error_status`.
    pub failure: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Charged for it, since it may have been worked on.
    #[serde(skip_serializing_if = "is_zero")]
    pub charged_tokens: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub charged_nano_usd: u64,
    pub next_provider: Arc<str>,
    pub next_model: Arc<str>,
    /// Milliseconds between the two.
    pub after_ms: u64,
}

/// What a caller said of its run.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    #[serde(flatten)]
    pub subject: Subject,
    #[serde(flatten)]
    pub report: Report,
}

/// Why a run was helped on, how, and whether it helped.
#[derive(Debug, Clone, Serialize)]
pub struct EscalationNote {
    /// Of the request at which it became known.
    #[serde(flatten)]
    pub subject: Subject,
    /// The same in all records of one escalation.
    pub escalation: String,
    pub reason: Reason,
    pub action: Action,
    pub outcome: Effect,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How a request ended that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Completed,
    ClientGone,
    /// No answer, or one that broke off.
    UpstreamFailed,
    /// An error answer.
    UpstreamError,
    /// Ended by us at a limit.
    Cut,
}

#[derive(Debug, Clone, Serialize)]
pub struct Refused {
    #[serde(flatten)]
    pub subject: Subject,
    pub code: &'static str,
    pub status: u16,
    /// The limit that said no, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// How it stood.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitNote>,
    /// Where it came from, when no key tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    pub duration_ms: i64,
}

/// One step in the life of an approval.
#[derive(Debug, Clone, Serialize)]
pub struct ApprovalNote {
    pub approval: String,
    pub key: Arc<str>,
    pub tenant: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// `id@version`.
    pub policy: Arc<str>,
    /// As the model wrote it, cleaned.
    pub tool: String,
    pub arguments_sha256: String,
    /// The rule that wanted a decision.
    pub rule: String,
    /// `pending`, `approved`, `rejected`, `expired`, `void`, `used`.
    pub status: &'static str,
    /// Who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// What the chain said of one call. Of its arguments nothing but the digest.
#[derive(Debug, Clone, Serialize)]
pub struct JudgedCall {
    /// With the policy and version that judged.
    #[serde(flatten)]
    pub subject: Subject,
    #[serde(flatten)]
    pub verdict: CallVerdict,
    /// The client got it. One that passed is withheld all the same if a sibling is blocked.
    pub delivered: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct CallVerdict {
    /// As the model wrote it, cleaned.
    pub tool: String,
    /// SHA-256 of the canonical arguments.
    pub arguments_sha256: String,
    pub results: Vec<GuardResult>,
    /// The code of the layer that said no, or `guard_unavailable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<&'static str>,
    /// The approval by which it passed or did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
    /// The run had made the same call before: it is not counted again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub idempotent_replay: bool,
    /// The calls in a wrapper call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<CallVerdict>,
}

impl JudgedCall {
    /// `subject` is that of the request; the policy is the one that judged.
    pub fn of(subject: &Subject, judgement: &Judgement) -> Self {
        Self {
            subject: subject.clone(),
            verdict: CallVerdict::of(judgement),
            delivered: judgement.blocked.is_none(),
        }
    }
}

impl CallVerdict {
    fn of(judgement: &Judgement) -> Self {
        Self {
            tool: clean_name(&judgement.tool),
            arguments_sha256: judgement.digest.clone(),
            results: judgement.results.clone(),
            blocked: judgement.blocked.as_ref().map(|block| block.code),
            approval: judgement.approval.clone(),
            idempotent_replay: judgement
                .taken
                .as_ref()
                .is_some_and(|token| token.taken == Taken::Replay),
            inner: judgement.inner.iter().map(Self::of).collect(),
        }
    }
}

/// SHA-256, the links of the chain.
pub type Digest256 = [u8; 32];

/// What the first record follows.
pub const CHAIN_START: Digest256 = [0; 32];

/// So many refusals of one kind since the last record of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub code: &'static str,
    /// The address they came from, if all came from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    pub count: u64,
}

/// A chain link's digest: over the one before, the number, and the record as written.
pub fn link(prev: &Digest256, seq: i64, body: &str) -> Digest256 {
    Sha256::new()
        .chain_update(prev)
        .chain_update(seq.to_be_bytes())
        .chain_update(body.as_bytes())
        .finalize()
        .into()
}
