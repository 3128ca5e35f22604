//! What a replay found: what would have been decided differently, and what cannot be told.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

/// More different rows are only counted.
const MOST_ROWS: usize = 5_000;

/// Everything that a replay has to tell.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// `id@version` that judged this time.
    pub policy: Arc<str>,
    /// Milliseconds since 1970: from the first, before the second.
    pub from: i64,
    pub to: i64,
    /// Records that were looked at.
    pub records: u64,
    pub requests: Counts,
    pub calls: Counts,
    pub cost: Cost,
    /// Most frequent first.
    pub differences: Vec<Difference>,
    /// Differences of rows that are too many to be told apart.
    pub more_differences: u64,
    /// Layers that look at content: what they said then was taken over. Calls by code.
    pub as_recorded: BTreeMap<&'static str, u64>,
    /// What the ledger does not tell, by rule: requests or calls for which it would count.
    pub undecided: BTreeMap<&'static str, u64>,
}

/// How often something was let through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub all: u64,
    pub passed_then: u64,
    pub passed_now: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    pub then_nano_usd: u64,
    /// Without what requests would have cost that were refused then.
    pub now_nano_usd: u64,
    /// Requests that were refused then and would pass now: nobody knows what they would cost.
    pub unknown_requests: u64,
}

/// Decisions of one kind that would be others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    #[serde(flatten)]
    pub what: Row,
    pub count: u64,
    /// Milliseconds since 1970, as is `last_at`.
    pub first_at: i64,
    pub last_at: i64,
    /// The first of these requests.
    pub request_id: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Row {
    pub of: Of,
    pub then: Decision,
    pub now: Decision,
    /// The rule that says no: this time, or if nothing does, then.
    pub rule: Box<str>,
    pub key: Box<str>,
    /// As asked for.
    pub model: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    Request,
    Call,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Passed,
    /// The answer would have been cut short by a lower output cap.
    Shortened,
    /// A request that was turned down.
    Refused,
    /// A call that was turned down.
    Blocked,
    /// A call that waits for a person.
    Paused,
    /// No longer turned down by what did so then; what comes after that is not on record.
    Undecided,
}

impl Decision {
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Shortened => "shortened",
            Self::Refused => "refused",
            Self::Blocked => "blocked",
            Self::Paused => "paused",
            Self::Undecided => "undecided",
        }
    }
}

/// Collects while records are looked at.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub report: Report,
    rows: BTreeMap<Row, Difference>,
}

impl Tally {
    pub fn differs(&mut self, row: Row, at_ms: i64, request_id: &str) {
        if let Some(known) = self.rows.get_mut(&row) {
            known.count += 1;
            known.last_at = known.last_at.max(at_ms);
        } else if self.rows.len() >= MOST_ROWS {
            self.report.more_differences += 1;
        } else {
            let first = Difference {
                what: row.clone(),
                count: 1,
                first_at: at_ms,
                last_at: at_ms,
                request_id: request_id.into(),
            };
            self.rows.insert(row, first);
        }
    }

    pub fn undecided(&mut self, rule: &'static str, count: u64) {
        if count > 0 {
            *self.report.undecided.entry(rule).or_default() += count;
        }
    }

    pub fn as_recorded(&mut self, code: &'static str) {
        *self.report.as_recorded.entry(code).or_default() += 1;
    }

    pub fn end(mut self) -> Report {
        let mut rows: Vec<Difference> = self.rows.into_values().collect();
        rows.sort_by(|a, b| (b.count, &a.what).cmp(&(a.count, &b.what)));
        self.report.differences = rows;
        self.report
    }
}
