//! A provider's error: its status and words, in the one shape that clients read.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::{collect::collect, keep};
use crate::{
    config::Provider,
    engine::{
        chat::{Tally, shaped},
        record::Outcome,
    },
    proxy::{
        admit::Permit,
        rejection::{Rejection, UpstreamFault},
        upstream::Reply,
    },
};

/// A larger error body is cut; nobody reads it. Bytes.
const LARGEST_ERROR: usize = 1 << 20;
const KEPT: &[&str] = &["retry-after", "retry-after-ms", "x-should-retry"];

/// A provider's error status: kept, with its words, in the one shape.
pub(super) async fn refuse(permit: &mut Permit, reply: Reply) -> Rejection {
    let provider = Arc::clone(permit.provider());
    let told = error_answer(&provider, reply).await;
    permit.refuse(&Tally::default(), Outcome::UpstreamError, told)
}

pub(super) async fn error_answer(provider: &Provider, mut reply: Reply) -> Rejection {
    let idle = provider.idle_timeout;
    let provider = provider.name.to_string();
    let body = collect(&mut reply.body, LARGEST_ERROR, idle)
        .await
        .unwrap_or_default();
    if reply.status == StatusCode::UNAUTHORIZED {
        tracing::error!(provider, "the provider refuses our credential");
        return UpstreamFault::Credential { provider }.into();
    }
    if !reply.status.is_client_error() && !reply.status.is_server_error() {
        return UpstreamFault::Broken { provider }.into();
    }
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    let error = match value.get("error") {
        Some(error) => shaped(&error.to_string()),
        None => shaped(&Value::from(plain(&body)).to_string()),
    };
    let mut headers = HeaderMap::new();
    keep(&reply.headers, &mut headers, KEPT);
    answered(reply.status, error, headers)
}

/// The beginning of a body that is not JSON, as a message.
fn plain(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text: String = text
        .chars()
        .filter(|char| !char.is_control())
        .take(500)
        .collect();
    if text.trim().is_empty() {
        "The provider answered with an error.".to_owned()
    } else {
        text
    }
}

pub(super) fn answered(status: StatusCode, error: Value, headers: HeaderMap) -> Rejection {
    UpstreamFault::Answered {
        status,
        error,
        headers,
    }
    .into()
}
