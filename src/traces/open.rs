//! A request while it runs: notes of what the ledger is told, and of a few times beside.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method};
use tokio::time::Instant;

use super::{
    context::{Context, SpanId, TRACEPARENT, TRACESTATE, TraceId, parent},
    notes::{Attempt, Notes},
    queue::Queue,
    span::Attribute,
};
use crate::{
    config::{Provider, Telemetry},
    engine::{call::Api, names::clean_name, record::Event},
};

/// A request that is followed. Cheap to clone; when the last is gone, the request is over.
#[derive(Clone)]
pub struct Trace(Arc<Open>);

struct Open {
    queue: Arc<Queue>,
    began: Instant,
    /// All but its notes and its end.
    so_far: Finished,
    notes: Mutex<Notes>,
}

/// How a request begins.
pub struct Began<'r> {
    /// `req_` and 32 hexadecimal digits.
    pub request_id: &'r Arc<str>,
    pub at_ms: i64,
    pub method: &'r Method,
    pub headers: &'r HeaderMap,
}

/// What a provider is asked for.
pub enum Wish<'r> {
    /// An answer of this model.
    Answer(Api, &'r Arc<str>),
    /// Something that it keeps.
    Kept,
}

/// All that is known of a request once it is over.
#[derive(Debug, Default)]
pub(super) struct Finished {
    pub request_id: Arc<str>,
    pub trace: TraceId,
    pub span: SpanId,
    /// The client's span.
    pub parent: Option<SpanId>,
    /// Milliseconds since 1970.
    pub began_ms: i64,
    pub method: &'static str,
    pub notes: Notes,
    /// Since it began.
    pub ended: Duration,
}

impl Trace {
    /// `None`: nobody is told of this request. The client says so in its `traceparent`; without
    /// one, chance does.
    pub fn begin(
        queue: &Arc<Queue>,
        telemetry: Option<&Telemetry>,
        began: &Began<'_>,
    ) -> Option<Self> {
        let telemetry = telemetry?;
        let own = own_ids(began.request_id)?;
        let parent = parent(began.headers);
        let sampled = match &parent {
            Some(parent) => parent.sampled,
            None => is_drawn(own.span, telemetry.sample_percent),
        };
        sampled.then(|| {
            Self(Arc::new(Open {
                queue: Arc::clone(queue),
                began: Instant::now(),
                so_far: Finished {
                    request_id: Arc::clone(began.request_id),
                    trace: parent.map_or(own.trace, |parent| parent.trace),
                    span: own.span,
                    parent: parent.map(|parent| parent.span),
                    began_ms: began.at_ms,
                    method: known(began.method),
                    ..Finished::default()
                },
                notes: Mutex::default(),
            }))
        })
    }

    /// What of our API is asked for, without what varies.
    pub fn route(&self, pattern: &'static str) {
        self.lock().route = Some(pattern);
    }

    /// Notes what goes to the ledger.
    pub fn observe(&self, event: &Event) {
        let at = self.0.began.elapsed();
        self.lock().observe(at, event);
    }

    /// The client is told that and why it gets no answer.
    pub fn refused(&self, code: &'static str) {
        self.lock().code = Some(code);
    }

    /// The head of the client's answer is there.
    pub fn answered(&self, status: u16) {
        self.lock().status = status;
    }

    /// The first piece of a stream leaves.
    pub fn first_piece(&self) {
        self.lock().first_piece = Some(self.0.began.elapsed());
    }

    /// An attempt at a provider begins.
    pub fn sent(&self, provider: &Arc<Provider>, wish: Wish<'_>) {
        let attempt = Attempt {
            provider: Arc::clone(provider),
            asked: match wish {
                Wish::Answer(api, model) => Some((api, Arc::clone(model))),
                Wish::Kept => None,
            },
            sent: self.0.began.elapsed(),
            ended: None,
            status: 0,
            failure: None,
            used: None,
        };
        self.lock().attempts.push(attempt);
    }

    /// The head of a provider's answer is there.
    pub fn reached(&self, status: u16) {
        if let Some(attempt) = self.lock().attempts.last_mut() {
            attempt.status = status;
        }
    }

    /// The provider is told that its work belongs to the attempt's span.
    pub fn lead(&self, headers: &mut HeaderMap) {
        let Finished { trace, parent, .. } = self.0.so_far;
        let count = self.lock().attempts.len();
        let context = Context {
            trace,
            span: attempt_id(self.0.so_far.span, count),
            sampled: true,
        };
        if let Ok(value) = HeaderValue::try_from(context.to_string()) {
            headers.insert(TRACEPARENT, value);
        }
        // What it says belongs to a trace that we did not take over.
        if parent.is_none() {
            headers.remove(TRACESTATE);
        }
    }

    /// A call came to wait for a person.
    pub fn waits(&self, approval: &str, tool: &str) {
        let attributes = vec![
            ("tallygate.approval.id", approval.to_owned().into()),
            ("gen_ai.tool.name", clean_name(tool).into()),
        ];
        self.happened("tallygate.approval.opened", attributes);
    }

    /// The wait for it is over. `outcome`: `approved`, `rejected`, `expired`, `pending`, `used`.
    pub fn decided(&self, approval: &str, outcome: &'static str) {
        let attributes = vec![
            ("tallygate.approval.id", approval.to_owned().into()),
            ("tallygate.approval.outcome", outcome.into()),
        ];
        self.happened("tallygate.approval.decided", attributes);
    }

    fn happened(&self, name: &'static str, attributes: Vec<Attribute>) {
        let at = self.0.began.elapsed();
        self.lock().happened(at, name, attributes);
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.0.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let notes = self.notes.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.queue.put(Finished {
            notes: mem::take(notes),
            ended: self.began.elapsed(),
            ..mem::take(&mut self.so_far)
        });
    }
}

impl Finished {
    /// How many it becomes.
    pub fn spans(&self) -> u64 {
        self.notes.attempts.len() as u64 + 1
    }
}

struct OwnIds {
    trace: TraceId,
    span: SpanId,
}

/// The digits of the request's id: who has one finds the other.
fn own_ids(request_id: &str) -> Option<OwnIds> {
    let mut trace = TraceId::default();
    let digits = request_id.strip_prefix("req_")?;
    hex::decode_to_slice(digits, &mut trace).ok()?;
    let [.., a, b, c, d, e, f, g, h] = trace;
    let span = [a, b, c, d, e, f, g, h];
    Some(OwnIds { trace, span })
}

/// The span of the attempt with this number, counted from 1.
pub(super) fn attempt_id(request: SpanId, number: usize) -> SpanId {
    let own = u64::from_be_bytes(request).wrapping_add(number as u64);
    // No span has the id 0.
    own.max(1).to_be_bytes()
}

/// The digits are random: so many of a hundred requests are below the mark.
fn is_drawn(random: SpanId, percent: u8) -> bool {
    u128::from(u64::from_be_bytes(random)) * 100 < u128::from(percent) << 64
}

fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => OTHER,
    }
}

/// As the conventions call a method that they do not know.
pub(super) const OTHER: &str = "_OTHER";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_of_a_hundred_requests_are_drawn() {
        const STEP: u64 = u64::MAX / 1000;
        let places = (0..1000_u64).map(|place| (STEP * place + STEP / 2).to_be_bytes());
        let drawn = |percent| {
            places
                .clone()
                .filter(|random| is_drawn(*random, percent))
                .count()
        };
        assert_eq!((drawn(100), drawn(50), drawn(1)), (1000, 500, 10));
        assert!(is_drawn([u8::MAX; 8], 100));
    }

    #[test]
    fn ids_are_those_of_the_request_and_no_span_has_another_ones() {
        let own = own_ids("req_0123456789abcdef00000000000000ff").unwrap();
        assert_eq!(hex::encode(own.trace), "0123456789abcdef00000000000000ff");
        assert_eq!(hex::encode(attempt_id(own.span, 1)), "0000000000000100");
        assert_eq!(attempt_id([u8::MAX; 8], 1), 1_u64.to_be_bytes());
        assert!(own_ids("req_1").is_none() && own_ids("x").is_none());
    }
}
