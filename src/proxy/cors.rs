//! Browsers: preflights are answered here, without a key and without counting; answers to
//! allowed origins say what a page may read.

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

const EXPOSED: &str = "retry-after, retry-after-ms, x-should-retry, x-request-id, \
                       x-tallygate-decision, x-tallygate-output-cap, \
                       x-tallygate-tools-stripped, \
                       x-ratelimit-limit-requests, x-ratelimit-remaining-requests, \
                       x-ratelimit-reset-requests, x-ratelimit-limit-tokens, \
                       x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens";
const METHODS: &str = "GET, POST, DELETE, OPTIONS";
const MAX_AGE_SECONDS: &str = "600";
const REQUEST_METHOD: HeaderName = header::ACCESS_CONTROL_REQUEST_METHOD;

/// The request's origin, if the configuration lets it in.
pub fn origin(allowed: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let listed = allowed
        .iter()
        .any(|one| one == "*" || one.as_bytes() == origin.as_bytes());
    listed.then(|| origin.clone())
}

pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(REQUEST_METHOD)
}

/// The headers of a preflight's 204.
pub fn preflight(origin: HeaderValue, asked: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    allow(&mut headers, origin);
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static(METHODS),
    );
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static(MAX_AGE_SECONDS),
    );
    if let Some(wanted) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    headers
}

/// Lets `origin` read this answer.
pub fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(EXPOSED),
    );
}
