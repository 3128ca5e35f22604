//! The ledger as a whole: how far it goes, whether its chain holds, and what it holds, as lines.

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
use crate::store::{
    Break, Chain, StoreError,
    export::{Export, Form, Selection},
    reader::Reader,
};

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
            Err(Broken::At(at)) => (
                json!({ "checked": chain.seq, "holds": false, "broken_at": at.seq(), "message": at.to_string() }),
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
    At(Break),
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
    let selection = Selection {
        kinds: query.words("kind"),
        key: query.text("key"),
        from_ms: query.instant_ms("from"),
        to_ms: query.instant_ms("to"),
    };
    let (form, kind, file) = match query.text("format").as_deref() {
        Some("csv") => (Form::Csv, "text/csv; charset=utf-8", "tallygate-ledger.csv"),
        _ => (Form::Jsonl, "application/jsonl", "tallygate-ledger.jsonl"),
    };
    let after = query.number("after").unwrap_or(0);
    let (mut response, sink, mut reader) = begin(&console).await?;
    let export = Export::begin(&mut *reader, selection, form, after).await?;
    let disposition = HeaderValue::try_from(format!("attachment; filename=\"{file}\""));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.extend(disposition.map(|value| (header::CONTENT_DISPOSITION, value)));
    tokio::spawn(async move {
        let _ = copy(reader, export, form, &sink).await;
    });
    Ok(response)
}

async fn copy(
    mut reader: Box<dyn Reader>,
    mut export: Export,
    form: Form,
    sink: &Sink,
) -> Result<(), stream::Left> {
    loop {
        match export.next(&mut *reader).await {
            Ok(None) => return Ok(()),
            Ok(Some(text)) if text.is_empty() => {}
            Ok(Some(text)) => sink.send(text).await?,
            Err(error) => {
                // Nobody takes it for the end.
                tracing::error!(%error, "an export broke off");
                let line = match form {
                    Form::Jsonl => {
                        json!({ "kind": "export_failed", "message": error.to_string() }).to_string()
                    }
                    Form::Csv => "export_failed".to_owned(),
                };
                return sink.send(format!("{line}\n")).await;
            }
        }
    }
}

async fn begin(console: &Shared) -> Result<(Response, Sink, Box<dyn Reader>), Fault> {
    let streams = std::sync::Arc::clone(&console.streams);
    let permit = streams.try_acquire_owned().map_err(|_| Fault::Busy)?;
    let reader = console.status.reader().await?;
    let (response, sink) = stream::lines(permit);
    Ok((response, sink, reader))
}
