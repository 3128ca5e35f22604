//! `/metrics`, for Prometheus. It tells the names of keys and models, and money: so it needs a
//! viewer's token (`authorization` in the scrape configuration).

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};

use super::Shared;
use crate::metrics::{Gauge, exposition};

pub(super) async fn metrics(State(console): State<Shared>) -> Response {
    let mut gauges = console.status.gauges();
    // A store that does not answer must not take the other figures along.
    gauges.extend(waiting(&console).await);
    let text = exposition(console.status.metrics(), env!("CARGO_PKG_VERSION"), &gauges);
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn waiting(console: &Shared) -> Option<Gauge> {
    let now_ms = console.status.clock().now_ms();
    let mut reading = console.reader().await.ok()?;
    let count = reading.store().waiting(now_ms).await.ok()?;
    Some(Gauge {
        name: "tallygate_approvals_waiting",
        help: "Calls that wait for a person",
        value: f64::from(u32::try_from(count).unwrap_or(u32::MAX)),
    })
}
