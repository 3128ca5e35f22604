//! Calls that wait for a person: who may see them, who may see what they would do, who decides.

use std::sync::Arc;

use axum::{
    Extension, Json,
    body::Bytes,
    extract::{Path, State},
};
use serde_json::{Value, json};

use super::{Shared, fault::Fault, query::Query};
use crate::{
    approval::{Wish, verdict},
    config::Operator,
    store::approvals::{Approval, Listing, Recorded, Status},
};

/// `?status=` of the list.
pub(super) const STATUSES: &[&str] = &["pending", "all"];
/// More are not listed at once.
const MOST: u32 = 200;
/// Longer reasons are read by nobody. Characters.
const LONGEST_REASON: usize = 500;

/// `GET /admin/v1/approvals`.
pub(super) async fn list(
    State(console): State<Shared>,
    query: Query,
) -> Result<Json<Value>, Fault> {
    let all = query.text("status").is_some_and(|status| status == "all");
    let listing = Listing {
        status: (!all).then_some(Status::Pending),
        most: MOST,
    };
    let found = console.reader().await?.store().approvals(listing).await?;
    let now_ms = console.status.clock().now_ms();
    let shown = |approval: &&Approval| all || approval.expires_at_ms > now_ms;
    let approvals: Vec<Value> = found.iter().filter(shown).map(told).collect();
    Ok(Json(json!({ "approvals": approvals, "now": now_ms })))
}

/// `GET /admin/v1/approvals/{id}`: with what the call would do, while it waits.
pub(super) async fn one(
    State(console): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Fault> {
    let approval = find(&console, &id).await?;
    let mut told = told(&approval);
    if let Some(members) = told.as_object_mut() {
        members.insert("arguments".into(), approval.arguments.into());
    }
    Ok(Json(told))
}

/// `POST /admin/v1/approvals/{id}`.
pub(super) async fn decide(
    State(console): State<Shared>,
    Extension(operator): Extension<Arc<Operator>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, Fault> {
    let (wish, reason) = decision(&body)?;
    let approval = find(&console, &id).await?;
    let now_ms = console.status.clock().now_ms();
    let config = console.status.config();
    let said = (&*operator.name, &*reason);
    let verdict = verdict(&config, &approval, wish, said, now_ms);
    let why = verdict.reason.clone();
    tracing::info!(operator = %operator.name, approval = id, verdict = verdict.status.name(), "decided");
    match console.status.decide(verdict).await? {
        Recorded::Unknown => Err(unknown(&id)),
        Recorded::Late(known) => Err(Fault::Conflict(late(&known))),
        Recorded::Done(known) if known.status == Status::Void => Err(Fault::Conflict(format!(
            "It is void: {why}. It lets nothing through."
        ))),
        Recorded::Done(known) => Ok(Json(told(&known))),
    }
}

async fn find(console: &Shared, id: &str) -> Result<Approval, Fault> {
    let found = console.reader().await?.store().approval(id).await?;
    found.ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> Fault {
    Fault::NotFound(format!("There is no approval {id:?}."))
}

fn late(known: &Approval) -> String {
    let by = known.decision.as_ref().map(|decision| &*decision.by);
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    let status = known.status.name();
    format!("It was {status}{by} before; nothing was changed.")
}

fn decision(body: &[u8]) -> Result<(Wish, String), Fault> {
    let wrong = || {
        let form = "The body must be {\"decision\": \"approve\" | \"reject\", \"reason\": \"…\"}.";
        Fault::Invalid(form.to_owned())
    };
    let value: Value = serde_json::from_slice(body).map_err(|_| wrong())?;
    let members = value.as_object().ok_or_else(wrong)?;
    if members
        .keys()
        .any(|name| name != "decision" && name != "reason")
    {
        return Err(wrong());
    }
    let wish = match members.get("decision").and_then(Value::as_str) {
        Some("approve") => Wish::Approve,
        Some("reject") => Wish::Reject,
        _ => return Err(wrong()),
    };
    let reason = match members.get("reason") {
        None => "",
        Some(reason) => reason.as_str().ok_or_else(wrong)?,
    };
    if reason.chars().count() > LONGEST_REASON {
        let message = format!("The reason may have up to {LONGEST_REASON} characters.");
        return Err(Fault::Invalid(message));
    }
    Ok((wish, reason.to_owned()))
}

fn told(approval: &Approval) -> Value {
    let decision = approval.decision.as_ref();
    json!({
        "id": approval.id,
        "status": approval.status.name(),
        "key": approval.key,
        "tenant": approval.tenant,
        "run": approval.run,
        "policy": approval.policy,
        "tool": approval.tool,
        "rule": approval.rule,
        "arguments_sha256": approval.digest,
        "request_id": approval.request_id,
        "created_at": approval.created_at_ms,
        "expires_at": approval.expires_at_ms,
        "decided_at": decision.map(|decision| decision.at_ms),
        "decided_by": decision.map(|decision| &decision.by),
        "reason": decision.map(|decision| &decision.reason),
    })
}
