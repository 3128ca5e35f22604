//! Why a request to the control plane is not answered as asked, in one shape:
//! `{"error": {"code", "message"}}`.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::{config::Role, store::StoreError};

#[derive(Debug)]
pub(super) enum Fault {
    UnknownPath,
    WrongMethod,
    /// It was asked for by a name that is not ours.
    ForeignHost,
    /// No token and no session.
    NoToken,
    WrongToken,
    /// The configuration names no operators: nobody can have a token.
    NoOperators,
    /// Too many wrong tokens from one address.
    Guessing(Duration),
    WrongRole {
        has: Role,
        needs: Role,
    },
    /// A change that was asked for with a cookie, but not by the console's own page.
    CrossSite,
    Invalid(String),
    NotFound(String),
    /// Somebody was first.
    Conflict(String),
    /// More of this kind run at once than may.
    Busy,
    Store(StoreError),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Fault {
    fn told(&self) -> (StatusCode, &'static str, String) {
        match self {
            Self::UnknownPath => (
                StatusCode::NOT_FOUND,
                "not_found",
                "There is nothing at this path; /admin/v1/openapi.json lists what there is.".into(),
            ),
            Self::WrongMethod => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "This path does not answer to this method; see the Allow header.".into(),
            ),
            Self::ForeignHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "host_not_allowed",
                "The control plane answers to addresses, localhost and the names in console_url and admin_hosts of [server].".into(),
            ),
            Self::NoToken => (
                StatusCode::UNAUTHORIZED,
                "token_missing",
                "Sign in, or send an operator's token as `Authorization: Bearer`.".into(),
            ),
            Self::WrongToken => (
                StatusCode::UNAUTHORIZED,
                "token_invalid",
                "No operator has this token.".into(),
            ),
            Self::NoOperators => (
                StatusCode::UNAUTHORIZED,
                "no_operators",
                "The configuration names no [[operators]]; `tallygate keys new --operator --name NAME` makes a token and prints the lines to add.".into(),
            ),
            Self::Guessing(_) => (
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_failures",
                "Too many wrong tokens came from this address; wait a little.".into(),
            ),
            Self::WrongRole { has, needs } => (
                StatusCode::FORBIDDEN,
                "role_insufficient",
                format!("This needs the role {}; yours is {}.", needs.name(), has.name()),
            ),
            Self::CrossSite => (
                StatusCode::FORBIDDEN,
                "cross_site",
                "A change by cookie must come from the console itself (header X-Tallygate-Console).".into(),
            ),
            Self::Invalid(message) => (StatusCode::BAD_REQUEST, "invalid_request", message.clone()),
            Self::NotFound(message) => (StatusCode::NOT_FOUND, "not_found", message.clone()),
            Self::Conflict(message) => (StatusCode::CONFLICT, "conflict", message.clone()),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "Enough of these run already; try again when one has ended.".into(),
            ),
            Self::Store(error) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "store_unavailable",
                error.to_string(),
            ),
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let (status, code, message) = self.told();
        let body = json!({ "error": { "code": code, "message": message } });
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        if let Self::Guessing(wait) = self {
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            if let Ok(value) = HeaderValue::try_from(seconds.to_string()) {
                headers.insert(header::RETRY_AFTER, value);
            }
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
