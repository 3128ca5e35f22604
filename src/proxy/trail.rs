//! What is known of a request while it is answered: who asks, by which rules, in which run. It
//! ends up in the record of a refusal and in the answer's headers.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, Response, request::Parts};

use super::{Proxy, live::Live, relay::Body, runs::InRun};
use crate::{
    books::{Books, Purse, RateView},
    engine::{
        budget::Unit,
        policy::{Key, Policy},
        record::{Event, Subject},
    },
    traces::{Began, Trace},
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const DECISION: HeaderName = HeaderName::from_static("x-tallygate-decision");

/// What is known of a request for its record, filled in as it goes on.
pub struct Trail {
    pub id: Arc<str>,
    pub peer: IpAddr,
    pub decision: String,
    pub started_ms: i64,
    pub subject: Subject,
    pub purse: Option<Arc<Purse>>,
    /// Set if it is told of as a trace.
    pub trace: Option<Trace>,
}

impl Trail {
    pub fn new(proxy: &Proxy, live: &Live, head: &Parts, peer: IpAddr) -> Self {
        let (fresh, now_ms) = (proxy.clock.fresh_timed_id(), proxy.clock.now_ms());
        let id = format!("req_{fresh}").into();
        let began = Began {
            request_id: &id,
            at_ms: now_ms,
            method: &head.method,
            headers: &head.headers,
        };
        Self {
            trace: Trace::begin(&proxy.traces, live.config.telemetry.as_deref(), &began),
            id,
            peer,
            decision: format!("dec_{fresh}"),
            started_ms: now_ms,
            subject: Subject::default(),
            purse: None,
        }
    }

    pub fn record(&self, books: &Books, event: Event) {
        if let Some(trace) = &self.trace {
            trace.observe(&event);
        }
        books.record(Some(Arc::clone(&self.id)), event);
    }

    pub fn of(&mut self, key: &Key, live: &Live) {
        self.subject.key = Some(Arc::clone(&key.name));
        self.subject.tenant = Some(Arc::clone(&key.tenant));
        self.purse = live.purse(key).cloned();
    }

    /// The version that the run began with is the one that counts.
    pub fn in_run(&mut self, run: Option<&InRun>, policy: &Policy) {
        if let Some(run) = run {
            self.subject.policy = Some(Arc::clone(&policy.label));
            self.subject.run = run.id();
            self.subject.step = run.step();
        }
    }

    /// The answer is there, or its head: marks it with what clients may know.
    pub fn answered(&self, response: &mut Response<Body>, now_ms: i64) {
        if let Some(trace) = &self.trace {
            trace.answered(response.status().as_u16());
        }
        let headers = response.headers_mut();
        for (name, text) in [(REQUEST_ID, &*self.id), (DECISION, self.decision.as_str())] {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        }
        let views = self.purse.iter().flat_map(|purse| purse.rate_views(now_ms));
        views.for_each(|view| mark_rate(headers, view));
    }
}

/// OpenAI's own headers; resets are durations such as `1m30s` or `600ms`.
fn mark_rate(headers: &mut HeaderMap, view: RateView) {
    let [limit, remaining, reset] = match view.unit {
        Unit::Requests => [
            HeaderName::from_static("x-ratelimit-limit-requests"),
            HeaderName::from_static("x-ratelimit-remaining-requests"),
            HeaderName::from_static("x-ratelimit-reset-requests"),
        ],
        Unit::Tokens | Unit::Cost => [
            HeaderName::from_static("x-ratelimit-limit-tokens"),
            HeaderName::from_static("x-ratelimit-remaining-tokens"),
            HeaderName::from_static("x-ratelimit-reset-tokens"),
        ],
    };
    headers.insert(limit, HeaderValue::from(view.limit));
    headers.insert(remaining, HeaderValue::from(view.remaining));
    if let Ok(value) = HeaderValue::try_from(duration_text(view.reset_ms)) {
        headers.insert(reset, value);
    }
}

fn duration_text(ms: i64) -> String {
    match (ms / 60_000, ms % 60_000) {
        (0, ms) if ms < 1000 => format!("{ms}ms"),
        (0, ms) => format!("{}s", ms.div_euclid(1000) + i64::from(ms % 1000 > 0)),
        (minutes, ms) => format!(
            "{minutes}m{}s",
            ms.div_euclid(1000) + i64::from(ms % 1000 > 0)
        ),
    }
}
