//! The control plane: for operators, on its own address. In this version: liveness and
//! readiness.

use std::{future::Future, sync::Arc};

use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What the control plane can see of the running process. `app` fills it in.
pub trait Status: Send + Sync + 'static {
    /// Why new requests would be refused right now; empty when all is well.
    fn unready(&self) -> Vec<String>;
    /// What is in force and what was rejected, for people.
    fn describe(&self) -> Value;
}

/// Serves until `stop` resolves.
pub async fn serve(
    listener: TcpListener,
    status: Arc<dyn Status>,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    let routes = Router::new()
        .route(
            "/healthz",
            get(|| async { Json(json!({ "status": "ok" })) }),
        )
        .route("/readyz", get(readyz))
        .with_state(status);
    if let Err(error) = axum::serve(listener, routes)
        .with_graceful_shutdown(stop)
        .await
    {
        tracing::error!(%error, "the control plane stopped");
    }
}

async fn readyz(State(status): State<Arc<dyn Status>>) -> (StatusCode, Json<Value>) {
    let unready = status.unready();
    let mut body = status.describe();
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
