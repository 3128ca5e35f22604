//! The permit: the right to send one request, and the duty to settle it. Only admission makes one.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use super::{
    super::{
        held::Pausing,
        rejection::{Rejection, Source, Told},
        resolve::Target,
    },
    attempts::Spare,
};
use crate::{
    books::{Books, OpenRun, Refusal, Reservation},
    clock::Clock,
    config::Provider,
    engine::{
        call::Api,
        chain::{CallGuard, Delivery},
        record::{Event, Refused, Subject},
    },
    metrics::Metrics,
    traces::{Trace, Wish},
};

/// The right to send one request, and the duty to settle it: once, with what was used. One
/// that is dropped unsettled was left by its client.
pub struct Permit {
    pub(super) books: Books,
    pub(super) clock: Clock,
    pub(super) request_id: Arc<str>,
    pub(super) key: Arc<str>,
    pub(super) reply_seed: u128,
    pub(super) subject: Subject,
    pub(super) target: Target,
    /// Set if another attempt may follow a failed one.
    pub(super) spare: Option<Box<Spare>>,
    /// Routes there were at first.
    pub(super) places: u32,
    pub(super) run: Option<Arc<OpenRun>>,
    pub(super) api: Api,
    pub(super) body: Bytes,
    pub(super) stream: bool,
    pub(super) hide_usage: bool,
    /// The cap that was sent, if it is lower than the client's.
    pub(super) lowered_cap: Option<u64>,
    /// The names of offered tools that were taken out, if any were.
    pub(super) stripped: Option<HeaderValue>,
    pub(super) input_estimate: u64,
    /// Judges the calls that the model proposes.
    pub(super) call_guard: CallGuard,
    /// How blocked calls are told.
    pub(super) delivery: Delivery,
    /// Set if its answer may have to wait for people.
    pub(super) pausing: Option<Pausing>,
    /// `None` once settled; and for an answer that was parked, which was paid for then.
    pub(super) reservation: Option<Reservation>,
    pub(super) settled: bool,
    /// A call that must be on disk before the client has it.
    pub(super) unwritten: bool,
    pub(super) sent: bool,
    /// When; for what is counted.
    pub(super) sent_at: Option<Instant>,
    pub(super) started_ms: i64,
    /// Set if the request is told of as a trace.
    pub(super) trace: Option<Trace>,
}

impl Permit {
    pub fn provider(&self) -> &Arc<Provider> {
        &self.target.provider
    }

    pub fn api(&self) -> Api {
        self.api
    }

    pub fn request_id(&self) -> &Arc<str> {
        &self.request_id
    }

    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The model at the provider.
    pub fn model(&self) -> &Arc<str> {
        &self.target.model
    }

    /// What judges the calls of the answer.
    pub fn guard(&self) -> &CallGuard {
        &self.call_guard
    }

    /// The run that the request belongs to.
    pub fn run(&self) -> Option<&Arc<OpenRun>> {
        self.run.as_ref()
    }

    /// Set if the answer may have to wait for people.
    pub fn pausing(&self) -> Option<&Pausing> {
        self.pausing.as_ref()
    }

    /// Blocked calls are told as an error, with a status while that can still be.
    pub fn tells_as_error(&self) -> bool {
        self.delivery.as_error
    }

    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Once it is answered, a long stream does not keep its request in memory.
    pub fn let_body_go(&mut self) {
        self.body = Bytes::new();
    }

    /// Makes the ids of an answer of our own.
    pub fn reply_seed(&self) -> u128 {
        self.reply_seed
    }

    /// Whether the client asked for a stream.
    pub fn is_stream(&self) -> bool {
        self.stream
    }

    /// The id under which the answer's headers and the record name what was decided.
    pub fn decision(&self) -> String {
        let fresh = self.request_id.trim_start_matches("req_");
        format!("dec_{fresh}")
    }

    pub fn hides_usage(&self) -> bool {
        self.hide_usage
    }

    /// What the answer's header says of tools that were taken out.
    pub fn take_stripped(&mut self) -> Option<HeaderValue> {
        self.stripped.take()
    }

    pub fn lowered_cap(&self) -> Option<u64> {
        self.lowered_cap
    }

    /// From here on a client that leaves is charged for what went in. `read`: when the whole
    /// request had been.
    pub fn mark_sent(&mut self, read: Instant) {
        let now = Instant::now();
        self.sent = true;
        self.sent_at = Some(now);
        self.metrics().added(now - read);
        self.mark_attempt();
    }

    pub(super) fn mark_attempt(&self) {
        if let Some(trace) = &self.trace {
            let wish = Wish::Answer(self.api, &self.target.model);
            trace.sent(&self.target.provider, wish);
        }
    }

    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// The head of the provider's answer is there.
    pub fn mark_answered(&self, status: StatusCode) {
        if let Some(trace) = &self.trace {
            trace.reached(status.as_u16());
        }
        if let Some(sent) = self.sent_at {
            let provider = &self.target.provider.name;
            self.metrics().upstream(provider, sent.elapsed());
        }
    }

    /// The first piece of a stream leaves.
    pub fn mark_first_piece(&self) {
        if let Some(sent) = self.sent_at {
            let provider = &self.target.provider.name;
            self.metrics().first_piece(provider, sent.elapsed());
        }
        if let Some(trace) = &self.trace {
            trace.first_piece();
        }
    }

    pub fn metrics(&self) -> &Metrics {
        self.books.metrics()
    }

    /// Whether what leaves must be covered first.
    pub fn grows(&self) -> bool {
        let reservation = self.reservation.as_ref();
        reservation.is_some_and(|held| held.covered().is_some())
    }

    /// Estimates never count what no limit was asked for.
    pub(super) fn covered(&self) -> u64 {
        let covered = self.reservation.as_ref().and_then(Reservation::covered);
        covered.unwrap_or(u64::MAX)
    }

    /// Ready once `output` tokens of the answer are covered.
    ///
    /// # Errors
    /// The limit that leaves no more.
    pub fn poll_cover(&mut self, cx: &mut Context<'_>, output: u64) -> Poll<Result<(), Refusal>> {
        let now_ms = self.clock.now_ms();
        match &mut self.reservation {
            Some(held) => held.poll_cover(cx, output, now_ms),
            None => Poll::Ready(Ok(())),
        }
    }

    /// The words of a refusal in the middle of an answer.
    pub fn tell(&self, rejection: &Rejection) -> Told {
        let fresh = self.request_id.trim_start_matches("req_");
        rejection.tell(Source {
            decision: &format!("dec_{fresh}"),
            policy: self.subject.policy.as_deref(),
        })
    }

    /// Into the ledger, and into the trace.
    pub(super) fn record(&self, event: Event) {
        if let Some(trace) = &self.trace {
            trace.observe(&event);
        }
        self.books.record(Some(Arc::clone(&self.request_id)), event);
    }

    /// Beside the settlement, so that the ledger names the limit.
    pub fn record_refused(&self, rejection: &Rejection, told: &Told) {
        let refused = Refused {
            subject: self.subject.clone(),
            code: told.code,
            status: told.status.as_u16(),
            rule: rejection.rule(),
            limits: rejection.limits(),
            source: None,
            duration_ms: self.clock.now_ms() - self.started_ms,
        };
        let event = Event::RequestRefused(Box::new(refused));
        self.record(event);
    }

    /// Nothing was sent, and nothing will be: everything goes back.
    pub fn withdraw(&mut self) {
        self.settled = true;
        if let Some(reservation) = self.reservation.take() {
            reservation.release(self.clock.now_ms());
        }
    }
}
