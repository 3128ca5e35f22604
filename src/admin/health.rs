//! Liveness and readiness, open to everybody: load balancers have no token.

use axum::{Json, extract::State, http::StatusCode};
use serde_json::{Value, json};

use super::Shared;

pub(super) async fn healthz() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

pub(super) async fn readyz(State(console): State<Shared>) -> (StatusCode, Json<Value>) {
    let unready = console.status.unready();
    let mut body = console.status.describe();
    let code = if unready.is_empty() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    if let Some(object) = body.as_object_mut() {
        let word = if unready.is_empty() {
            "ready"
        } else {
            "not ready"
        };
        object.insert("status".into(), word.into());
        object.insert("reasons".into(), unready.into());
    }
    (code, Json(body))
}
