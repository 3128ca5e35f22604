//! What happened: records of the ledger, found and paged, and the whole path of one request.

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
};
use serde_json::{Value, json};

use super::{Shared, fault::Fault, query::Query};
use crate::store::{
    StoreError,
    reader::{Found, Reader, SLACK_MS, Stretch, Wanted, first_at, narrowed},
};

/// On a page, unless the client says otherwise.
const PAGE: i64 = 50;
/// One statement looks at so many records.
const CHUNK: i64 = 10_000;
/// One answer does; then it says where to go on.
const MOST_SCANNED: i64 = 200_000;
/// One search for a request does.
const LONGEST_SEARCH: i64 = 2_000_000;
/// Records of one request; more were made by nobody.
const MOST_OF_ONE: i64 = 2000;

/// `GET /admin/v1/activity`.
pub(super) async fn page(
    State(console): State<Shared>,
    query: Query,
) -> Result<Json<Value>, Fault> {
    let wanted = Wanted {
        kinds: query.words("kind"),
        request_id: query.text("request_id"),
        key: query.text("key"),
        tenant: query.text("tenant"),
        run: query.text("run"),
        in_a_run: false,
        model: query.text("model"),
        code: query.text("code"),
        from_ms: query.instant_ms("from"),
        to_ms: query.instant_ms("to"),
    };
    let limit = query.number("limit").unwrap_or(PAGE);
    let (after, before) = (query.number("after"), query.number("before"));
    let mut reading = console.reader().await?;
    let reader = reading.store();
    let newest = reader.last_seq().await?;
    let within = Stretch {
        after: after.unwrap_or(0).min(newest),
        up_to: before.map_or(newest, |before| (before - 1).clamp(0, newest)),
    };
    let within = narrowed(reader, within, wanted.from_ms, wanted.to_ms).await?;
    let (found, next) = search(reader, &wanted, within, limit).await?;
    let records: Vec<Value> = found.iter().map(record).collect();
    Ok(Json(
        json!({ "records": records, "next": next, "newest": newest }),
    ))
}

/// A page, newest first, and the number before which the next one goes on.
async fn search(
    reader: &mut dyn Reader,
    wanted: &Wanted,
    within: Stretch,
    limit: i64,
) -> Result<(Vec<Found>, Option<i64>), StoreError> {
    let mut found = Vec::new();
    let mut up_to = within.up_to;
    let floor = within.after.max(within.up_to.saturating_sub(MOST_SCANNED));
    while up_to > floor {
        let chunk = Stretch {
            after: floor.max(up_to - CHUNK),
            up_to,
        };
        let room = limit - count(&found);
        found.extend(reader.find(wanted, chunk, room).await?);
        if count(&found) >= limit {
            let next = found.last().map(|found| found.seq);
            return Ok((found, next.filter(|seq| *seq > within.after + 1)));
        }
        up_to = chunk.after;
    }
    let next = (up_to > within.after).then_some(up_to + 1);
    Ok((found, next))
}

fn count(found: &[Found]) -> i64 {
    i64::try_from(found.len()).unwrap_or(i64::MAX)
}

fn record(found: &Found) -> Value {
    let mut value: Value = serde_json::from_str(&found.body).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        members.insert("seq".into(), found.seq.into());
    }
    value
}

/// `GET /admin/v1/requests/{id}`.
pub(super) async fn request(
    State(console): State<Shared>,
    path: Result<Path<String>, PathRejection>,
    query: Query,
) -> Result<Json<Value>, Fault> {
    let Path(id) = path.map_err(|error| Fault::Invalid(error.body_text()))?;
    let near = query.number("near");
    let wanted = Wanted {
        request_id: Some(id.clone()),
        ..Wanted::default()
    };
    let mut reading = console.reader().await?;
    let reader = reading.store();
    let newest = reader.last_seq().await?;
    let begin = beginning(reader, &id, near, newest).await?;
    let within = Stretch {
        after: begin - 1,
        up_to: newest.min(begin.saturating_add(LONGEST_SEARCH)),
    };
    let records = all_of(reader, &wanted, within).await?;
    if records.is_empty() {
        return Err(Fault::NotFound(format!(
            "The ledger knows no request {id:?}."
        )));
    }
    Ok(Json(json!({ "request_id": id, "records": records })))
}

/// Where its first record cannot be before.
async fn beginning(
    reader: &mut dyn Reader,
    id: &str,
    near: Option<i64>,
    newest: i64,
) -> Result<i64, StoreError> {
    let all = Stretch {
        after: 0,
        up_to: newest,
    };
    let near = match near {
        Some(near) => reader.time_at(near.min(newest)).await?,
        None => None,
    };
    // A request lasts hours at most.
    let made_ms = time_of(id).or(near.map(|at| at - 24 * 60 * 60 * 1000));
    match made_ms {
        Some(made_ms) => first_at(reader, all, made_ms - SLACK_MS).await,
        None => Ok((newest - LONGEST_SEARCH).max(1)),
    }
}

/// Ids begin with the time at which they were made.
fn time_of(id: &str) -> Option<i64> {
    let digits = id
        .strip_prefix("req_")
        .filter(|digits| digits.len() == 32)?;
    i64::from_str_radix(digits.get(..12)?, 16).ok()
}

/// Oldest first.
async fn all_of(
    reader: &mut dyn Reader,
    wanted: &Wanted,
    within: Stretch,
) -> Result<Vec<Value>, StoreError> {
    let mut records = Vec::new();
    let mut after = within.after;
    while after < within.up_to {
        let chunk = Stretch {
            after,
            up_to: within.up_to.min(after + CHUNK),
        };
        let mut found = reader.find(wanted, chunk, MOST_OF_ONE).await?;
        found.reverse();
        records.extend(found.iter().map(record));
        after = chunk.up_to;
    }
    records.truncate(usize::try_from(MOST_OF_ONE).unwrap_or(usize::MAX));
    Ok(records)
}
