//! What is counted for Prometheus: read off the events that go to the ledger, so that nothing is
//! measured twice, and a few durations that no record holds.
//!
//! Counting is plain atomics behind a table that is read without a lock; a label set that is
//! known costs no allocation. `text` writes it all out.

mod histogram;
mod table;
mod text;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

pub use self::text::{Gauge, exposition};
use self::{histogram::Histogram, table::Table};
use crate::engine::record::{Closing, Event, JudgedCall, Opening, Outcome};

/// Everything that is counted since the process began.
#[derive(Default)]
pub struct Metrics {
    /// By key and model at the provider.
    requests: Table<(Arc<str>, Arc<str>), Requests>,
    /// By key (empty: none was known) and code.
    refusals: Table<(Arc<str>, &'static str), AtomicU64>,
    /// By provider and what came of the attempt.
    failed_attempts: Table<(Arc<str>, &'static str), AtomicU64>,
    /// By the code of the layer that said no; empty: it passed.
    calls: Table<&'static str, AtomicU64>,
    /// By what came of it.
    webhook: [AtomicU64; 2],
    /// Exported, and dropped.
    spans: [AtomicU64; 2],
    reservations: Reservations,
    streams_open: AtomicU64,
    added: Histogram,
    /// By provider.
    upstream: Table<Arc<str>, Histogram>,
    first_piece: Table<Arc<str>, Histogram>,
    nobody: Nobody,
}

#[derive(Default)]
struct Requests {
    outcomes: [AtomicU64; OUTCOMES.len()],
    input_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    output_tokens: AtomicU64,
    reasoning_tokens: AtomicU64,
    cost_nano_usd: AtomicU64,
    estimated: AtomicU64,
}

#[derive(Default)]
struct Reservations {
    made: AtomicU64,
    settled: AtomicU64,
    nano_usd: AtomicU64,
    tokens: AtomicU64,
}

/// The name of who named no key.
struct Nobody(Arc<str>);

impl Default for Nobody {
    fn default() -> Self {
        Self("".into())
    }
}

const OUTCOMES: [(Outcome, &str); 5] = [
    (Outcome::Completed, "completed"),
    (Outcome::ClientGone, "client_gone"),
    (Outcome::UpstreamFailed, "upstream_failed"),
    (Outcome::UpstreamError, "upstream_error"),
    (Outcome::Cut, "cut"),
];

impl Metrics {
    /// Counts what is going to the ledger.
    pub fn observe(&self, event: &Event) {
        match event {
            Event::RequestStarted(opening) => self.started(opening),
            Event::AttemptFailed(failed) => {
                let labels = (Arc::clone(&failed.provider), failed.failure);
                self.failed_attempts.with(labels, |attempts| {
                    attempts.fetch_add(1, Relaxed);
                });
            }
            Event::RequestSettled(closing) => self.settled(closing),
            Event::RequestRefused(refused) => {
                self.refused(refused.subject.key.as_ref(), refused.code, 1);
            }
            Event::RefusalsSummed(summary) => self.refused(None, summary.code, summary.count),
            Event::CallJudged(call) => self.judged(call),
            _ => {}
        }
    }

    fn started(&self, opening: &Opening) {
        self.reservations.made.fetch_add(1, Relaxed);
        let (cost, tokens) = (opening.reserved_nano_usd, opening.reserved_tokens);
        self.reservations.nano_usd.fetch_add(cost, Relaxed);
        self.reservations.tokens.fetch_add(tokens, Relaxed);
    }

    fn settled(&self, closing: &Closing) {
        self.reservations.settled.fetch_add(1, Relaxed);
        let key = closing.subject.key.as_ref().unwrap_or(&self.nobody.0);
        let labels = (Arc::clone(key), Arc::clone(&closing.resolved_model));
        self.requests.with(labels, |requests| {
            let outcomes = OUTCOMES.iter().zip(&requests.outcomes);
            for (_, count) in outcomes.filter(|((outcome, _), _)| *outcome == closing.outcome) {
                count.fetch_add(1, Relaxed);
            }
            for (count, amount) in [
                (&requests.input_tokens, closing.input_tokens),
                (&requests.cached_tokens, closing.cached_tokens),
                (&requests.output_tokens, closing.output_tokens),
                (&requests.reasoning_tokens, closing.reasoning_tokens),
                (&requests.cost_nano_usd, closing.cost_nano_usd),
                (&requests.estimated, u64::from(closing.estimated)),
            ] {
                if amount > 0 {
                    count.fetch_add(amount, Relaxed);
                }
            }
        });
    }

    fn refused(&self, key: Option<&Arc<str>>, code: &'static str, count: u64) {
        let key = Arc::clone(key.unwrap_or(&self.nobody.0));
        self.refusals.with((key, code), |refusals| {
            refusals.fetch_add(count, Relaxed);
        });
    }

    fn judged(&self, call: &JudgedCall) {
        let code = call.verdict.blocked.unwrap_or_default();
        self.calls.with(code, |calls| {
            calls.fetch_add(1, Relaxed);
        });
    }

    /// From the whole request read to its sending: guards, reservation, waiting for the store.
    pub fn added(&self, took: Duration) {
        self.added.observe(took);
    }

    /// From the sending to the head of the provider's answer.
    pub fn upstream(&self, provider: &Arc<str>, took: Duration) {
        self.upstream
            .with(Arc::clone(provider), |times| times.observe(took));
    }

    /// From the sending to the first piece of a stream that left for the client.
    pub fn first_piece(&self, provider: &Arc<str>, took: Duration) {
        self.first_piece
            .with(Arc::clone(provider), |times| times.observe(took));
    }

    /// An attempt to tell the webhook of a waiting call.
    pub fn webhook(&self, delivered: bool) {
        let [given, failed] = &self.webhook;
        let count = if delivered { given } else { failed };
        count.fetch_add(1, Relaxed);
    }

    /// Spans that a collector took, or that none will have.
    pub fn spans(&self, exported: bool, count: u64) {
        let [taken, dropped] = &self.spans;
        let spans = if exported { taken } else { dropped };
        spans.fetch_add(count, Relaxed);
    }

    pub fn stream_opened(&self) {
        self.streams_open.fetch_add(1, Relaxed);
    }

    pub fn stream_closed(&self) {
        self.streams_open.fetch_sub(1, Relaxed);
    }
}
