//! What the store keeps of approvals: parked answers, and the state of each call that waits.

use std::sync::Arc;

use super::Answer;

/// A model's answer that waits for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// `par_…`.
    pub id: String,
    /// SHA-256 of whose conversation it answers, and under which policy.
    pub conversation: String,
    /// The request that caused it.
    pub request_id: String,
    pub provider: String,
    pub model: String,
    /// Server-sent events, or one body.
    pub streamed: bool,
    /// As the provider gave it.
    pub answer: Vec<u8>,
    pub expires_at_ms: i64,
}

/// One call that waits, or waited, for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// `apr_…`.
    pub id: String,
    pub parked: String,
    pub request_id: String,
    pub key: Arc<str>,
    pub tenant: Arc<str>,
    pub run: Option<String>,
    /// `id@version`.
    pub policy: Arc<str>,
    pub tool: String,
    /// SHA-256 of the canonical arguments, in hexadecimal.
    pub digest: String,
    /// The rule that wants a decision.
    pub rule: String,
    /// Until it is decided.
    pub arguments: Option<String>,
    pub status: Status,
    pub created_at_ms: i64,
    pub expires_at_ms: i64,
    pub decision: Option<Decided>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub at_ms: i64,
    pub by: String,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Pending,
    Approved,
    Rejected,
    /// Nobody decided in time.
    Expired,
    /// The rules had changed when a person approved: it lets nothing through.
    Void,
    /// Approved, and the one delivery was made.
    Used,
}

impl Status {
    const NAMES: &[(Self, &'static str)] = &[
        (Self::Pending, "pending"),
        (Self::Approved, "approved"),
        (Self::Rejected, "rejected"),
        (Self::Expired, "expired"),
        (Self::Void, "void"),
        (Self::Used, "used"),
    ];

    pub fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(status, _)| *status == self);
        named.map_or("", |(_, name)| name)
    }

    pub fn of(name: &str) -> Option<Self> {
        let named = Self::NAMES.iter().find(|(_, known)| *known == name);
        named.map(|(status, _)| *status)
    }
}

/// What a person, or a clock, says of a pending approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub approval: String,
    /// `Approved`, `Rejected` or `Void`.
    pub status: Status,
    pub by: String,
    pub reason: String,
    pub now_ms: i64,
}

/// What became of a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    Done(Box<Approval>),
    /// Somebody was first, or it had expired. Holds how it stands.
    Late(Box<Approval>),
    Unknown,
}

/// The approvals in a store. One approval is decided once and used once, whoever asks at the
/// same time.
pub trait ApprovalStore: Send {
    /// Keeps an answer with the calls in it that wait.
    fn park<'a>(&'a mut self, parked: &'a Parked, calls: &'a [Approval]) -> Answer<'a, ()>;

    /// The newest answer that waits for this conversation and has not expired.
    fn parked_for<'a>(
        &'a mut self,
        conversation: &'a str,
        now_ms: i64,
    ) -> Answer<'a, Option<Parked>>;

    /// The conversations for which answers wait.
    fn conversations(&mut self, now_ms: i64) -> Answer<'_, Vec<String>>;

    /// The approvals of one answer, in the order of its calls.
    fn approvals_of<'a>(&'a mut self, parked: &'a str) -> Answer<'a, Vec<Approval>>;

    /// Takes the answer out for its one delivery: its approved calls become used. `false`: it was
    /// taken before.
    fn claim<'a>(&'a mut self, parked: &'a str) -> Answer<'a, bool>;

    fn decide<'a>(&'a mut self, verdict: &'a Verdict) -> Answer<'a, Recorded>;

    /// Lets the time run out for what is due, and gives every approval whose status does not
    /// stand in the ledger yet.
    fn unnoted(&mut self, now_ms: i64) -> Answer<'_, Vec<Approval>>;

    /// The oldest calls that wait and of which the webhook has not taken word.
    fn untold(&mut self, now_ms: i64) -> Answer<'_, Vec<Approval>>;

    /// The webhook has taken word of this one.
    fn tell<'a>(&'a mut self, approval: &'a str) -> Answer<'a, ()>;
}

/// Which approvals to list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Listing {
    pub status: Option<Status>,
    pub most: u32,
}
