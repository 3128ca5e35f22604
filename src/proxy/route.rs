//! The one route table of the data plane, and which endpoints a key may use.

use http::Method;

use super::{rejection::Rejection, runs};
use crate::engine::{
    call::Api,
    policy::{Endpoint, Key},
};

/// What a request asks for.
pub enum Route<'a> {
    /// A question to a model.
    Ask(Api),
    Models,
    Model(&'a str),
    /// An answer that a provider keeps, to read or to delete.
    Stored(&'a str),
    /// How a run went.
    Outcome(&'a str),
}

impl Route<'_> {
    /// The path without what varies.
    pub fn pattern(&self) -> &'static str {
        match self {
            Self::Ask(Api::Chat) => "/v1/chat/completions",
            Self::Ask(Api::Responses) => "/v1/responses",
            Self::Models => "/v1/models",
            Self::Model(_) => "/v1/models/{model}",
            Self::Stored(_) => "/v1/responses/{id}",
            Self::Outcome(_) => "/v1/tallygate/runs/{run}/outcome",
        }
    }
}

/// The one route table. Paths are compared as they stand: no normal form that a provider might
/// see otherwise. Clients differ in whether `/v1` belongs to their base URL.
pub fn route<'a>(method: &Method, path: &'a str) -> Result<Route<'a>, Rejection> {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let (wanted, allow, route) = match path {
        "/chat/completions" => (Method::POST, "POST", Route::Ask(Api::Chat)),
        "/responses" => (Method::POST, "POST", Route::Ask(Api::Responses)),
        "/models" => (Method::GET, "GET", Route::Models),
        _ if let Some(run) = reported_run(path) => (Method::POST, "POST", Route::Outcome(run)),
        _ if let Some(id) = stored_id(path) => match *method {
            Method::GET | Method::DELETE => return Ok(Route::Stored(id)),
            _ => (Method::GET, "GET, DELETE", Route::Stored(id)),
        },
        _ => match path.strip_prefix("/models/").filter(|id| !id.is_empty()) {
            // Below a model there is nothing to post to, whatever it is called.
            Some(id) if id.contains('/') && *method != Method::GET => {
                return Err(Rejection::UnknownPath);
            }
            Some(id) => (Method::GET, "GET", Route::Model(id)),
            None => return Err(Rejection::UnknownPath),
        },
    };
    if *method == wanted {
        Ok(route)
    } else {
        Err(Rejection::WrongMethod { allow })
    }
}

/// The id of a stored answer: one plain segment, which means the same to every reader.
fn stored_id(path: &str) -> Option<&str> {
    let id = path.strip_prefix("/responses/")?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (!id.is_empty() && id.bytes().all(plain)).then_some(id)
}

fn reported_run(path: &str) -> Option<&str> {
    let run = path.strip_prefix("/tallygate/runs/")?;
    run.strip_suffix("/outcome")
        .filter(|run| runs::is_run_name(run))
}

/// # Errors
/// The key is held to other endpoints, or the query names a model.
pub fn check_endpoint(key: &Key, route: &Route<'_>, query: Option<&str>) -> Result<(), Rejection> {
    let (endpoint, name) = match route {
        Route::Ask(Api::Chat) => (Endpoint::Chat, "chat"),
        Route::Ask(Api::Responses) | Route::Stored(_) => (Endpoint::Responses, "responses"),
        Route::Models | Route::Model(_) => (Endpoint::Models, "models"),
        // Whoever may make a run may tell how it went.
        Route::Outcome(_) => return Ok(()),
    };
    if !key.endpoints.is_empty() && !key.endpoints.contains(&endpoint) {
        return Err(Rejection::EndpointNotAllowed { endpoint: name });
    }
    // The query never goes upstream; a model named there would be one nobody judged.
    let names_model = |query: &str| {
        url::form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "model")
    };
    if query.is_some_and(names_model) {
        return Err(Rejection::InvalidRequest {
            message: "The model is named in the request body, not in the query.".to_owned(),
            param: Some("model".to_owned()),
        });
    }
    Ok(())
}
