//! What survives a crash: spent amounts, leases, the ledger. One trait, so that nothing above
//! knows which database answers.

pub mod approvals;
pub mod export;
pub mod head;
pub mod reader;
pub mod sqlite;

use std::{future::Future, pin::Pin, sync::Arc};

use serde_json::Value;

use self::approvals::{ApprovalStore, Status};
use crate::engine::{
    policy::Edition,
    record::{CHAIN_START, Digest256, Record, link},
};

pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("another Tallygate serves from this database ({0})")]
    InUse(String),
    #[error("the database cannot be opened: {0}")]
    Open(String),
    #[error("the database does not answer: {0}")]
    Down(String),
    #[error("the database has not answered for {} seconds", .0.as_secs())]
    Slow(std::time::Duration),
}

/// All that one commit writes, in one transaction.
#[derive(Debug, Default)]
pub struct Batch {
    pub records: Vec<Record>,
    pub books: Vec<BookEntry>,
    pub grants: Vec<GrantRequest>,
    pub owned: Vec<Owned>,
    /// Approvals whose status one of the records tells.
    pub noted: Vec<(String, Status)>,
    pub runs: Vec<RunRow>,
    /// Policy versions that were published or archived.
    pub seals: Vec<Edition>,
    pub now_ms: i64,
}

/// An answer, or an item of one, that a provider keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// The provider's id.
    pub id: String,
    pub owner: Owner,
}

/// Whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub key: Arc<str>,
    /// Empty: a message of ours, which no provider knows.
    pub provider: Arc<str>,
    /// No request that builds on it has more input for that. `None`: not known.
    pub tokens: Option<u64>,
    /// Its calls that the client never saw, as JSON.
    pub unanswered: Option<String>,
}

/// What a run of a key has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    pub key: Arc<str>,
    pub id: Arc<str>,
    /// As JSON.
    pub state: String,
}

/// What changed in one account and period.
#[derive(Debug, Clone)]
pub struct BookEntry {
    pub account: Arc<str>,
    /// Changes of what was spent, by period (fixed window) or bucket (sliding).
    pub spent: Vec<(i64, i64)>,
    /// The period that the lease belongs to, and its size from now on.
    pub period: i64,
    pub lease: u64,
    pub reserved: u64,
}

#[derive(Debug, Clone)]
pub struct GrantRequest {
    pub account: Arc<str>,
    pub period: i64,
    pub sliding: bool,
    /// Wants what counts in a sliding window row by row.
    pub rows: bool,
    pub limit: u64,
    pub needed: u64,
    pub ahead: u64,
}

/// What the store gave, and how the account stood before that.
#[derive(Debug, Clone, Default)]
pub struct GrantReply {
    pub granted: u64,
    pub spent: u64,
    /// Of all processes, before this grant.
    pub leased: u64,
    /// Sliding windows, when asked for or when there is not enough: (bucket, amount) of what
    /// still counts, oldest first.
    pub live: Vec<(i64, u64)>,
}

/// How an account stands, for people.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    pub spent: u64,
    pub leased: u64,
}

/// A ledger line as it is stored.
#[derive(Debug, Clone)]
pub struct LedgerLine {
    pub seq: i64,
    /// The digest of the line before.
    pub prev: Digest256,
    pub digest: Digest256,
    /// The record as JSON.
    pub body: String,
}

impl LedgerLine {
    /// The record with its place in the chain, as it is exported.
    pub fn to_json(&self) -> Value {
        let mut value: Value = serde_json::from_str(&self.body).unwrap_or_default();
        if let Some(object) = value.as_object_mut() {
            object.insert("seq".into(), self.seq.into());
            object.insert("prev".into(), hex::encode(self.prev).into());
            object.insert("digest".into(), hex::encode(self.digest).into());
        }
        value
    }
}

/// The chain as far as it was followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// Records that follow from one another.
    pub seq: i64,
    pub digest: Digest256,
}

/// Where a chain does not hold, by the number of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    #[error("record {0} is missing")]
    Missing(i64),
    #[error("record {0} does not follow from the one before it: one of the two was changed")]
    Altered(i64),
}

impl Break {
    pub fn seq(self) -> i64 {
        match self {
            Self::Missing(seq) | Self::Altered(seq) => seq,
        }
    }
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            seq: 0,
            digest: CHAIN_START,
        }
    }
}

impl Chain {
    /// # Errors
    /// The first record that is not what was written.
    pub fn follow(&mut self, line: &LedgerLine) -> Result<(), Break> {
        if line.seq != self.seq + 1 {
            return Err(Break::Missing(self.seq + 1));
        }
        let wanted = link(&self.digest, line.seq, &line.body);
        if line.digest != wanted {
            return Err(Break::Altered(line.seq));
        }
        *self = Self {
            seq: line.seq,
            digest: wanted,
        };
        Ok(())
    }
}

pub trait Store: ApprovalStore {
    /// Writes everything or nothing. Replies in the order of `grants`.
    fn commit<'a>(&'a mut self, batch: &'a Batch) -> Answer<'a, Vec<GrantReply>>;

    /// Turns every lease of an earlier process into spent amounts: nobody can know whether it
    /// was used. Returns what was recovered: (account, period, amount).
    fn recover(&mut self, now_ms: i64) -> Answer<'_, Vec<(String, i64, u64)>>;

    /// What a run has done, as JSON.
    fn run<'a>(&'a mut self, key: &'a str, id: &'a str) -> Answer<'a, Option<String>>;

    /// The policy versions that were ever published.
    fn seals(&mut self) -> Answer<'_, Vec<Edition>>;

    /// Whose these ids are, in their order.
    fn owners<'a>(&'a mut self, ids: &'a [String]) -> Answer<'a, Vec<Option<Owner>>>;

    /// Takes out of the write-ahead log what approvals held and no longer hold, if there is any:
    /// nothing of it is on disk then. Does not wait for who reads: what they hold up, and what
    /// failed, the next call tries again.
    fn forget(&mut self) -> Answer<'_, ()>;

    /// Brings everything into its final place. Nothing is committed after this.
    fn close(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
