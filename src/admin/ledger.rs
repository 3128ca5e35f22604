//! The ledger as a whole: how far it goes, whether its chain holds, all of it as JSON Lines.

use axum::{
    Json,
    extract::State,
    http::{HeaderValue, header},
    response::Response,
};
use serde_json::{Value, json};

use super::{
    Shared,
    fault::Fault,
    query::Query,
    stream::{self, Sink},
};
use crate::store::{Chain, StoreError, reader::Reader};

/// Lines that are in memory at once.
const PAGE: i64 = 1000;

/// `GET /admin/v1/ledger`.
pub(super) async fn summary(State(console): State<Shared>) -> Result<Json<Value>, Fault> {
    let mut reading = console.reader().await?;
    let reader = reading.store();
    let records = reader.last_seq().await?;
    let last = reader.lines_after((records - 1).max(0), 1).await?;
    let first_at = reader.time_at(1).await?;
    let last_at = reader.time_at(records).await?;
    let head = last.last().map(|line| hex::encode(line.digest));
    Ok(Json(
        json!({ "records": records, "head": head, "first_at": first_at, "last_at": last_at }),
    ))
}

/// `GET /admin/v1/ledger/verify`: a line now and then, and a last one with `holds`.
pub(super) async fn verify(State(console): State<Shared>) -> Result<Response, Fault> {
    let (response, sink, reader) = begin(&console).await?;
    tokio::spawn(async move {
        // Who has left wants no answer.
        let _ = follow(reader, &sink).await;
    });
    Ok(response)
}

async fn follow(mut reader: Box<dyn Reader>, sink: &Sink) -> Result<(), stream::Left> {
    let mut chain = Chain::default();
    loop {
        let next = chained(&mut *reader, &mut chain).await;
        let (line, last) = match next {
            Ok(Some(of)) => (json!({ "checked": chain.seq, "of": of }), false),
            Ok(None) => (
                json!({ "checked": chain.seq, "holds": true, "head": hex::encode(chain.digest) }),
                true,
            ),
            Err(Broken::At(seq)) => (
                json!({ "checked": chain.seq, "holds": false, "broken_at": seq }),
                true,
            ),
            Err(Broken::Store(error)) => (
                json!({ "checked": chain.seq, "error": error.to_string() }),
                true,
            ),
        };
        sink.send(format!("{line}\n")).await?;
        if last {
            return Ok(());
        }
    }
}

enum Broken {
    At(i64),
    Store(StoreError),
}

impl From<StoreError> for Broken {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Follows a page of the chain: how many records there are, or `None` at the end.
async fn chained(reader: &mut dyn Reader, chain: &mut Chain) -> Result<Option<i64>, Broken> {
    let lines = reader.lines_after(chain.seq, PAGE).await?;
    if lines.is_empty() {
        return Ok(None);
    }
    for line in &lines {
        chain.follow(line).map_err(Broken::At)?;
    }
    Ok(Some(reader.last_seq().await?))
}

/// `GET /admin/v1/ledger/export`.
pub(super) async fn export(State(console): State<Shared>, query: Query) -> Result<Response, Fault> {
    let after = query.number("after").unwrap_or(0);
    let (mut response, sink, reader) = begin(&console).await?;
    response.headers_mut().insert(
        header::CONTENT_DISPOSITION,
        HeaderValue::from_static("attachment; filename=\"tallygate-ledger.jsonl\""),
    );
    tokio::spawn(async move {
        let _ = copy(reader, after, &sink).await;
    });
    Ok(response)
}

async fn copy(
    mut reader: Box<dyn Reader>,
    mut after: i64,
    sink: &Sink,
) -> Result<(), stream::Left> {
    loop {
        let lines = match reader.lines_after(after, PAGE).await {
            Ok(lines) => lines,
            Err(error) => {
                // The number of the next record is missing then: nobody takes it for the end.
                tracing::error!(%error, "an export broke off");
                let line = json!({ "kind": "export_failed", "message": error.to_string() });
                return sink.send(format!("{line}\n")).await;
            }
        };
        let Some(last) = lines.last() else {
            return Ok(());
        };
        after = last.seq;
        let text: String = lines
            .iter()
            .flat_map(|line| [line.to_json().to_string(), "\n".to_owned()])
            .collect();
        sink.send(text).await?;
    }
}

async fn begin(console: &Shared) -> Result<(Response, Sink, Box<dyn Reader>), Fault> {
    let streams = std::sync::Arc::clone(&console.streams);
    let permit = streams.try_acquire_owned().map_err(|_| Fault::Busy)?;
    let reader = console.status.reader().await?;
    let (response, sink) = stream::lines(permit);
    Ok((response, sink, reader))
}
