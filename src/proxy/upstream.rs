//! Sends an admitted request to its provider and tells how that went. One client for each
//! provider and worker, so that connections are reused without a shared pool.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body::Body as _;
use reqwest::{Client, redirect::Policy as Redirects};

use super::{admit::Permit, rejection::UpstreamFault};
use crate::{
    config::{ApiKey, Dialect, HttpVersion, Provider},
    engine::call::Api,
    provider::{openai, sandbox},
};

/// An idle connection is given up before most servers close it, so that a request seldom meets
/// one that is just being closed.
const POOL_IDLE: Duration = Duration::from_secs(30);
/// After a pause this long a pooled connection may have been closed unnoticed.
const QUIET: Duration = Duration::from_millis(50);

/// Client headers that pass to every provider. All others stay here unless the provider's
/// `forward_headers` names them.
const HARMLESS: &[&str] = &["traceparent", "tracestate", "idempotency-key"];

/// The clients of one worker.
#[derive(Default)]
pub struct Clients {
    open: Mutex<Vec<Entry>>,
}

struct Entry {
    provider: Arc<Provider>,
    client: Client,
    last_used_ms: i64,
}

/// A provider's answer: head read, body to come.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: ReplyBody,
}

/// The body of an answer, whoever gives it.
pub enum ReplyBody {
    Http(reqwest::Body),
    Sandbox(Box<sandbox::Playback>),
    /// Nothing more is wanted: the provider was left.
    Over,
}

/// The body broke off before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

impl Clients {
    /// Opens clients for all `providers` and forgets those of an earlier configuration.
    pub fn prepare(&self, providers: &[Arc<Provider>]) {
        let fresh: Vec<Entry> = providers
            .iter()
            .filter(|provider| provider.dialect != Dialect::Sandbox)
            .filter_map(|provider| match build(provider) {
                Ok(client) => Some(Entry {
                    provider: Arc::clone(provider),
                    client,
                    last_used_ms: 0,
                }),
                Err(error) => {
                    let cause = cause(&error);
                    tracing::error!(provider = %provider.name, cause, "no HTTP client");
                    None
                }
            })
            .collect();
        *self.lock() = fresh;
    }

    /// The client for `provider`, and for how long it has not been used.
    pub fn client(&self, provider: &Arc<Provider>, now_ms: i64) -> Option<(Client, Duration)> {
        let mut open = self.lock();
        if !open
            .iter()
            .any(|entry| Arc::ptr_eq(&entry.provider, provider))
        {
            let client = build(provider).ok()?;
            open.push(Entry {
                provider: Arc::clone(provider),
                client,
                last_used_ms: now_ms,
            });
        }
        let entry = open
            .iter_mut()
            .find(|entry| Arc::ptr_eq(&entry.provider, provider))?;
        let quiet = u64::try_from(now_ms - entry.last_used_ms).unwrap_or(0);
        entry.last_used_ms = now_ms;
        Some((entry.client.clone(), Duration::from_millis(quiet)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn build(provider: &Provider) -> reqwest::Result<Client> {
    let client = Client::builder()
        .connect_timeout(provider.connect_timeout)
        .pool_idle_timeout(POOL_IDLE)
        .redirect(Redirects::none())
        .no_proxy();
    match provider.http {
        HttpVersion::Auto => client,
        HttpVersion::Http1 => client.http1_only(),
        HttpVersion::Http2 => client.http2_prior_knowledge(),
    }
    .build()
}

/// Sends once. What a provider answers, an error status too, is a `Reply`.
///
/// # Errors
/// The faults of an attempt that brought no answer.
pub async fn send(
    clients: &Clients,
    permit: &Permit,
    client_headers: &HeaderMap,
    now_ms: i64,
) -> Result<Reply, UpstreamFault> {
    let provider = permit.provider();
    if provider.dialect == Dialect::Sandbox {
        return Ok(sandbox_reply(permit, now_ms));
    }
    let unreachable = || UpstreamFault::Unreachable {
        provider: provider.name.to_string(),
    };
    let request = request(permit, client_headers).ok_or_else(unreachable)?;
    execute(clients, provider, request, now_ms).await
}

async fn execute(
    clients: &Clients,
    provider: &Arc<Provider>,
    request: reqwest::Request,
    now_ms: i64,
) -> Result<Reply, UpstreamFault> {
    let name = || provider.name.to_string();
    let unreachable = || UpstreamFault::Unreachable { provider: name() };
    let (client, quiet) = clients.client(provider, now_ms).ok_or_else(unreachable)?;
    if quiet > QUIET {
        // Lets the runtime see closed sockets before one of them is chosen.
        tokio::task::yield_now().await;
    }
    let patience = provider.first_byte_timeout;
    let answer = match tokio::time::timeout(patience, client.execute(request)).await {
        Err(_) => {
            return Err(UpstreamFault::Timeout {
                provider: name(),
                after: patience,
                connected: true,
            });
        }
        Ok(answer) => answer.map_err(|error| fault(&error, provider))?,
    };
    let (head, body) = http::Response::<reqwest::Body>::from(answer).into_parts();
    Ok(Reply {
        status: head.status,
        headers: head.headers,
        body: ReplyBody::Http(body),
    })
}

/// The error's own text may hold the URL and says little; the last of its sources is the cause.
fn cause(error: &reqwest::Error) -> String {
    std::iter::successors(std::error::Error::source(error), |error| error.source())
        .last()
        .map_or_else(String::new, ToString::to_string)
}

/// Who was asked, without whatever secrets its URL may hold: `api.example.com:443`.
fn host(provider: &Provider) -> String {
    let url = provider.base_url.as_ref();
    let told = url.and_then(|url| {
        let port = url.port_or_known_default()?;
        Some(format!("{}:{port}", url.host_str()?))
    });
    told.unwrap_or_default()
}

fn fault(error: &reqwest::Error, provider: &Provider) -> UpstreamFault {
    let cause = cause(error);
    let host = host(provider);
    tracing::warn!(side = "upstream", provider = %provider.name, host, cause, "request failed");
    let name = provider.name.to_string();
    if error.is_timeout() {
        UpstreamFault::Timeout {
            provider: name,
            after: provider.connect_timeout,
            connected: !error.is_connect(),
        }
    } else if error.is_connect() {
        UpstreamFault::Unreachable { provider: name }
    } else {
        UpstreamFault::Broken { provider: name }
    }
}

fn request(permit: &Permit, client_headers: &HeaderMap) -> Option<reqwest::Request> {
    let path = permit.api().path();
    let mut request = bare_request(permit.provider(), Method::POST, path, client_headers)?;
    if let Some(trace) = permit.trace() {
        trace.lead(request.headers_mut());
    }
    *request.body_mut() = Some(permit.body().clone().into());
    Some(request)
}

/// Asks for something that the provider keeps. `path` is below the base URL.
///
/// # Errors
/// The same.
pub async fn fetch(
    clients: &Clients,
    provider: &Arc<Provider>,
    (method, path): (Method, &str),
    client_headers: &HeaderMap,
    now_ms: i64,
) -> Result<Reply, UpstreamFault> {
    let unreachable = || UpstreamFault::Unreachable {
        provider: provider.name.to_string(),
    };
    let request = bare_request(provider, method, path, client_headers).ok_or_else(unreachable)?;
    execute(clients, provider, request, now_ms).await
}

/// A request with all but its body.
fn bare_request(
    provider: &Provider,
    method: Method,
    path: &str,
    client_headers: &HeaderMap,
) -> Option<reqwest::Request> {
    let url = openai::endpoint(provider.base_url.as_ref()?, path);
    let mut request = reqwest::Request::new(method, url);
    let headers = request.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    // What we cannot read we cannot judge: no coding is asked for.
    headers.insert(
        header::ACCEPT_ENCODING,
        HeaderValue::from_static("identity"),
    );
    let harmless = HARMLESS.iter().map(|name| HeaderName::from_static(name));
    for name in harmless.chain(provider.forward_headers.iter().cloned()) {
        for value in client_headers.get_all(&name) {
            headers.append(name.clone(), value.clone());
        }
    }
    if let Some(value) = credential(provider) {
        headers.insert(header::AUTHORIZATION, value);
    }
    Some(request)
}

/// Our own credential, if the provider has one. One that fits no header was refused when the
/// configuration was read.
pub fn credential(provider: &Provider) -> Option<HeaderValue> {
    let ApiKey::Found(secret) = &provider.api_key else {
        return None;
    };
    let mut value = HeaderValue::try_from(format!("Bearer {}", secret.reveal())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn sandbox_reply(permit: &Permit, now_ms: i64) -> Reply {
    let script = sandbox::answer(
        match permit.api() {
            Api::Chat => sandbox::Endpoint::Chat,
            Api::Responses => sandbox::Endpoint::Responses,
        },
        permit.body(),
        permit.reply_seed(),
        u64::try_from(now_ms / 1000).unwrap_or(0),
    );
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(script.content_type),
    );
    Reply {
        status: StatusCode::from_u16(script.status).unwrap_or(StatusCode::BAD_GATEWAY),
        headers,
        body: ReplyBody::Sandbox(Box::new(sandbox::Playback::new(script))),
    }
}

impl ReplyBody {
    /// The next piece of the body as it arrives; `None` at its proper end.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            let frame = match self {
                Self::Sandbox(playback) => {
                    return Pin::new(&mut **playback)
                        .poll_piece(cx)
                        .map(|piece| piece.map(|piece| piece.map_err(|_| Broken)));
                }
                Self::Over => return Poll::Ready(None),
                Self::Http(body) => std::task::ready!(Pin::new(body).poll_frame(cx)),
            };
            match frame {
                None => return Poll::Ready(None),
                Some(Err(_)) => return Poll::Ready(Some(Err(Broken))),
                // Trailers carry nothing that a client may have.
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        return Poll::Ready(Some(Ok(piece)));
                    }
                }
            }
        }
    }

    pub async fn piece(&mut self) -> Option<Result<Bytes, Broken>> {
        std::future::poll_fn(|cx| self.poll_piece(cx)).await
    }
}
