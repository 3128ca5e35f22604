//! What is read beside the serving process's own connection: by operators, on the command line
//! and in the console. Nothing here changes anything or makes the writing thread wait.

use super::{
    Answer, LedgerLine, Standing, StoreError,
    approvals::{Approval, Listing},
};

pub trait Reader: Send {
    /// How an account stands in the period (or, sliding, in the last 60 seconds).
    fn standing<'a>(
        &'a mut self,
        account: &'a str,
        period: i64,
        sliding: bool,
        now_ms: i64,
    ) -> Answer<'a, Standing>;

    /// The ledger's lines after `seq`, oldest first, at most `most`.
    fn lines_after(&mut self, seq: i64, most: i64) -> Answer<'_, Vec<LedgerLine>>;

    /// The number of the last record; 0 if there is none.
    fn last_seq(&mut self) -> Answer<'_, i64>;

    /// The records of `within` that are wanted, newest first, at most `most`.
    fn find<'a>(
        &'a mut self,
        wanted: &'a Wanted,
        within: Stretch,
        most: i64,
    ) -> Answer<'a, Vec<Found>>;

    /// When the first record at or after `seq` was made.
    fn time_at(&mut self, seq: i64) -> Answer<'_, Option<i64>>;

    /// Calls that wait for a person, newest first.
    fn approvals(&mut self, listing: Listing) -> Answer<'_, Vec<Approval>>;

    fn approval<'a>(&'a mut self, id: &'a str) -> Answer<'a, Option<Approval>>;

    /// How many approvals are pending at this moment.
    fn waiting(&mut self, now_ms: i64) -> Answer<'_, u64>;

    /// What settled requests came to, added up by `width` hours each.
    fn usage(&mut self, hours: Hours, by: By, width: i64) -> Answer<'_, Vec<Usage>>;

    /// What was refused in these hours, and why.
    fn refusals(&mut self, hours: Hours) -> Answer<'_, Vec<Refusals>>;
}

/// Numbers of records: after the first, up to and with the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    pub after: i64,
    pub up_to: i64,
}

/// Which records to find. What is absent is not asked for; all that is there must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Any of them; empty: every kind.
    pub kinds: Vec<String>,
    pub request_id: Option<String>,
    pub key: Option<String>,
    pub tenant: Option<String>,
    pub run: Option<String>,
    /// Only what belongs to some run.
    pub in_a_run: bool,
    /// As asked for or as resolved.
    pub model: Option<String>,
    /// Of a refusal, or of a layer that did not let a call pass in silence.
    pub code: Option<String>,
    /// Milliseconds since 1970, inclusive.
    pub from_ms: Option<i64>,
    /// Exclusive.
    pub to_ms: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub seq: i64,
    /// The record as JSON.
    pub body: String,
}

/// Hours since 1970, UTC: from the first, before the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hours {
    pub from: i64,
    pub before: i64,
}

/// What is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Key,
    Model,
}

/// What was used within some hours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// The first of them.
    pub hour: i64,
    /// Of the key or the model.
    pub name: String,
    pub requests: u64,
    pub tokens: u64,
    pub cost_nano_usd: u64,
}

/// Refusals of one kind within some hours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusals {
    /// Empty: no key was known.
    pub key: String,
    pub code: String,
    /// The limit or rule that said no; empty where the code says all.
    pub rule: String,
    pub count: u64,
    /// The last hour in which it happened.
    pub last_hour: i64,
}

/// An hour in milliseconds.
pub const HOUR_MS: i64 = 3_600_000;

/// Records are written a moment after they were made, in batches.
pub const SLACK_MS: i64 = 60_000;

/// Without what the times asked for leave out: records stand in the order of their times, give
/// or take a moment.
///
/// # Errors
/// The database does not answer.
pub async fn narrowed(
    reader: &mut dyn Reader,
    within: Stretch,
    from_ms: Option<i64>,
    to_ms: Option<i64>,
) -> Result<Stretch, StoreError> {
    let mut narrow = within;
    if let Some(from_ms) = from_ms {
        let first = first_at(reader, within, from_ms.saturating_sub(SLACK_MS)).await?;
        narrow.after = first - 1;
    }
    if let Some(to_ms) = to_ms {
        narrow.up_to = first_at(reader, within, to_ms.saturating_add(SLACK_MS)).await?;
    }
    narrow.up_to = narrow.up_to.min(within.up_to);
    Ok(narrow)
}

/// The first record not before `at_ms`; one after the last, if there is none.
///
/// # Errors
/// The database does not answer.
pub async fn first_at(
    reader: &mut dyn Reader,
    within: Stretch,
    at_ms: i64,
) -> Result<i64, StoreError> {
    let (mut low, mut high) = (within.after + 1, within.up_to + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match reader.time_at(middle).await? {
            Some(at) if at < at_ms => low = middle + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}
