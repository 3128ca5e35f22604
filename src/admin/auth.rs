//! Who asks, and whether they may: an operator's token, or the session that was opened with one.
//! Tokens are compared as SHA-256 digests only.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Extension, Json,
    extract::{ConnectInfo, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    Shared,
    fault::Fault,
    routes::{Access, Gate},
    sessions::LONGEST_MS,
};
use crate::config::{Operator, Role};

const COOKIE: &str = "tallygate_session";
/// Sent by the console's own page. Another site's page could send it only after asking us, which
/// we do not answer.
pub(super) const CONSOLE: &str = "x-tallygate-console";
/// A login is a few bytes.
const LARGEST_LOGIN: usize = 4096;

/// Lets a request through to its handler, with the operator who asks, or answers it here.
pub(super) async fn pass(
    State(gate): State<Arc<Gate>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Access::To(needed) = gate.access {
        let headers = request.headers();
        match admit(&gate.console, request.method(), headers, peer, needed) {
            Ok(operator) => {
                request.extensions_mut().insert(operator);
            }
            Err(fault) => return fault.into_response(),
        }
    }
    request.extensions_mut().insert(gate.query);
    next.run(request).await
}

fn admit(
    console: &Shared,
    method: &Method,
    headers: &HeaderMap,
    peer: SocketAddr,
    needed: Role,
) -> Result<Arc<Operator>, Fault> {
    let operator = authenticate(console, method, headers, peer)?;
    if operator.role < needed {
        return Err(Fault::WrongRole {
            has: operator.role,
            needs: needed,
        });
    }
    Ok(operator)
}

fn authenticate(
    console: &Shared,
    method: &Method,
    headers: &HeaderMap,
    peer: SocketAddr,
) -> Result<Arc<Operator>, Fault> {
    let config = console.status.config();
    if config.operators.is_empty() {
        return Err(Fault::NoOperators);
    }
    let digest = if headers.contains_key(header::AUTHORIZATION) {
        let token = bearer(headers).ok_or(Fault::WrongToken)?;
        Sha256::digest(token).into()
    } else {
        let id = cookie(headers).ok_or(Fault::NoToken)?;
        let now_ms = console.status.clock().now_ms();
        // An old cookie is no attempt at guessing.
        let token = console
            .sessions
            .token_of(id, now_ms)
            .ok_or(Fault::NoToken)?;
        if !method.is_safe() {
            check_own_page(headers)?;
        }
        token
    };
    known(console, digest, peer)
}

/// What a long answer was asked for with, to be looked at again while it lasts.
pub(super) enum Credential {
    Token([u8; 32]),
    Session(String),
}

impl Credential {
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        if headers.contains_key(header::AUTHORIZATION) {
            return bearer(headers).map(|token| Self::Token(Sha256::digest(token).into()));
        }
        cookie(headers).map(|id| Self::Session(id.to_owned()))
    }

    /// Whether it still is an operator's.
    pub fn holds(&self, console: &Shared) -> bool {
        let now_ms = console.status.clock().now_ms();
        let digest = match self {
            Self::Token(digest) => Some(*digest),
            Self::Session(id) => console.sessions.peek(id, now_ms),
        };
        let config = console.status.config();
        digest.is_some_and(|digest| config.operators.contains_key(&digest))
    }
}

fn known(console: &Shared, digest: [u8; 32], peer: SocketAddr) -> Result<Arc<Operator>, Fault> {
    let config = console.status.config();
    let operator = config.operators.get(&digest);
    operator.cloned().ok_or_else(|| {
        tracing::warn!(address = %peer.ip(), "a wrong operator token");
        match console.failures.count(peer.ip()) {
            Ok(()) => Fault::WrongToken,
            Err(wait) => Fault::Guessing(wait),
        }
    })
}

/// Beside `SameSite=Strict`: what changes something by cookie comes from our own page alone.
fn check_own_page(headers: &HeaderMap) -> Result<(), Fault> {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let own = matches!(site, None | Some(b"same-origin" | b"none"));
    if own && headers.contains_key(CONSOLE) {
        Ok(())
    } else {
        Err(Fault::CrossSite)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(header::COOKIE).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == COOKIE)
        .map(|(_, id)| id)
}

/// `POST /admin/v1/session`: a token in, a cookie out.
pub(super) async fn sign_in(
    State(console): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Result<Response, Fault> {
    let (head, body) = request.into_parts();
    check_own_page(&head.headers)?;
    if console.status.config().operators.is_empty() {
        return Err(Fault::NoOperators);
    }
    let body = axum::body::to_bytes(body, LARGEST_LOGIN)
        .await
        .map_err(|_| Fault::Invalid("The body is too large.".to_owned()))?;
    let token = token_in(&body)?;
    let digest = Sha256::digest(token.trim().as_bytes()).into();
    let operator = known(&console, digest, peer)?;
    let clock = console.status.clock();
    let id = clock.fresh_secret();
    console.sessions.open(&id, digest, clock.now_ms());
    tracing::info!(operator = %operator.name, address = %peer.ip(), "signed in");
    let cookie = set_cookie(&id, LONGEST_MS / 1000, is_https(&head.headers));
    Ok(([(header::SET_COOKIE, cookie)], Json(told(&operator))).into_response())
}

fn token_in(body: &[u8]) -> Result<String, Fault> {
    let wrong = || Fault::Invalid("The body must be {\"token\": \"…\"}.".to_owned());
    let value: Value = serde_json::from_slice(body).map_err(|_| wrong())?;
    let members = value.as_object().filter(|members| members.len() == 1);
    let token = members.and_then(|members| members.get("token")?.as_str());
    token.map(str::to_owned).ok_or_else(wrong)
}

/// `GET /admin/v1/session`: who am I?
pub(super) async fn who(Extension(operator): Extension<Arc<Operator>>) -> Json<Value> {
    Json(told(&operator))
}

/// `DELETE /admin/v1/session`.
pub(super) async fn sign_out(State(console): State<Shared>, headers: HeaderMap) -> Response {
    if let Some(id) = cookie(&headers) {
        console.sessions.close(id);
    }
    let gone = set_cookie("", 0, is_https(&headers));
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, gone)]).into_response()
}

fn told(operator: &Operator) -> Value {
    json!({ "operator": operator.name, "role": operator.role.name() })
}

fn set_cookie(id: &str, seconds: i64, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!("{COOKIE}={id}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// A proxy with TLS stands before us. Who lies about it harms their own cookie alone.
fn is_https(headers: &HeaderMap) -> bool {
    let proto = headers.get("x-forwarded-proto");
    proto.is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"))
}
