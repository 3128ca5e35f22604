//! Runs in the admin API: the last ones, one with its chain of records, groups side by side.

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
};
use serde_json::{Value, json};

use super::{
    super::{Shared, fault::Fault, query::Query},
    By, WantedRuns, compare, each_record, tallies,
    tally::{RunTally, Tallies},
};
use crate::store::reader::Stretch;

/// Runs on a page, unless the client says otherwise.
const PAGE: i64 = 50;
/// One answer looks at so many of the last records.
const MOST_SCANNED: i64 = 200_000;
/// Records of one run that are told: its last.
const MOST_OF_ONE: usize = 2000;

/// `GET /admin/v1/runs`.
pub(in super::super) async fn list(
    State(console): State<Shared>,
    query: Query,
) -> Result<Json<Value>, Fault> {
    let (found, within) = read(&console, &query).await?;
    let limit = query.number("limit").unwrap_or(PAGE);
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let runs: Vec<RunTally> = found.into_iter().take(most).collect();
    Ok(Json(json!({ "runs": runs, "after": within.after })))
}

/// `GET /admin/v1/comparison`.
pub(in super::super) async fn side_by_side(
    State(console): State<Shared>,
    query: Query,
) -> Result<Json<Value>, Fault> {
    let (found, within) = read(&console, &query).await?;
    let by = query.text("by").and_then(|name| By::of(&name));
    let groups = compare(&found, by.unwrap_or(By::Tag), &[]);
    Ok(Json(json!({ "groups": groups, "after": within.after })))
}

/// `GET /admin/v1/runs/{id}`.
pub(in super::super) async fn one(
    State(console): State<Shared>,
    path: Result<Path<String>, PathRejection>,
    query: Query,
) -> Result<Json<Value>, Fault> {
    let Path(id) = path.map_err(|error| Fault::Invalid(error.body_text()))?;
    let wanted = WantedRuns {
        key: query.text("key"),
        run: Some(id.clone()),
        from_ms: None,
    };
    let mut reading = console.reader().await?;
    let reader = reading.store();
    let within = last(reader.last_seq().await?);
    let (mut all, mut records) = (Tallies::default(), Vec::new());
    each_record(reader, &wanted, within, |seq, mut record| {
        all.see(&record);
        if let Some(members) = record.as_object_mut() {
            members.insert("seq".into(), seq.into());
        }
        records.push(record);
    })
    .await?;
    let runs = all.newest_first();
    if runs.is_empty() {
        return Err(Fault::NotFound(format!(
            "No run {id:?} is among the last {MOST_SCANNED} records."
        )));
    }
    let old = records.len().saturating_sub(MOST_OF_ONE);
    records.drain(..old);
    Ok(Json(json!({ "runs": runs, "records": records })))
}

async fn read(console: &Shared, query: &Query) -> Result<(Vec<RunTally>, Stretch), Fault> {
    let wanted = WantedRuns {
        key: query.text("key"),
        run: None,
        from_ms: query.instant_ms("from"),
    };
    let mut reading = console.reader().await?;
    let reader = reading.store();
    let within = last(reader.last_seq().await?);
    let mut runs = tallies(reader, &wanted, within).await?;
    if let Some(tag) = query.text("tag") {
        runs.retain(|run| run.tags.contains(&tag));
    }
    Ok((runs, within))
}

fn last(newest: i64) -> Stretch {
    Stretch {
        after: (newest - MOST_SCANNED).max(0),
        up_to: newest,
    }
}
