//! What callers say afterwards of their own runs: recorded, and answered with a hint where one is
//! due.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use serde_json::json;

use super::{Proxy, Trail, rejection::Rejection, relay::Body};
use crate::engine::{
    policy::Key,
    record::{EscalationNote, Event, RunReport},
    run::{Effect, Report, Run},
};

/// Longer reports say nothing more. Bytes.
pub const LONGEST: u64 = 4096;

/// # Errors
/// `RunNotFound` for a run of another key just as for one that never was; `InvalidRequest`.
pub async fn take(
    proxy: &Proxy,
    trail: &mut Trail,
    (key, run): (&Key, &str),
    body: &Bytes,
) -> Result<Response<Body>, Rejection> {
    let report = Report::read(body).map_err(|message| Rejection::InvalidRequest {
        message,
        param: None,
    })?;
    let id: Arc<str> = run.into();
    let known = proxy.books.known_run((&key.name, &id)).await?;
    let open = known.ok_or_else(|| Rejection::RunNotFound { id: run.to_owned() })?;
    trail.subject.run = Some(Arc::clone(&open.id));
    trail.subject.policy = Some(open.state_now(|run| run.policy.as_str().into()));
    let escalation = format!("esc_{}", trail.id.trim_start_matches("req_"));
    let escalated = open.state_now(|run: &mut Run| run.report(report, &escalation));
    proxy.books.note_run(&open);
    let record = |event| trail.record(&proxy.books, event);
    let subject = || trail.subject.clone();
    record(Event::RunReported(Box::new(RunReport {
        subject: subject(),
        report,
    })));
    let mut hint = None;
    for (escalation, outcome) in escalated {
        if outcome == Effect::Pending {
            hint = Some(json!({"id": escalation.id, "reason": escalation.reason,
                "action": escalation.action}));
        }
        record(Event::Escalation(Box::new(EscalationNote {
            subject: subject(),
            escalation: escalation.id,
            reason: escalation.reason,
            action: escalation.action,
            outcome,
        })));
    }
    let told = json!({"object": "tallygate.run.outcome", "run": &*open.id,
        "outcome": report.outcome, "escalation": hint});
    let mut response = Response::new(Body::whole(told.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}
