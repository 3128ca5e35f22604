//! From a provider's answer to the client's: streams as they come (`stream`), whole bodies in one
//! piece (`whole`), errors in one shape (`failed`). Settles the permit at the end, however that
//! comes.
//!
//! Bytes that nothing changes leave unchanged. Pieces that are there together are written
//! together; one that arrives alone leaves at once.

mod clocks;
mod collect;
mod failed;
mod held;
mod paused;
mod reshaped;
mod stream;
mod whole;

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body::{Body as HttpBody, Frame};

pub use self::whole::plain_body;
use self::{held::Held, stream::Relay};
use super::{
    admit::Permit,
    rejection::{Rejection, UpstreamFault},
    upstream::Reply,
};
use crate::{
    engine::{chat::Tally, record::Outcome},
    store::approvals::Parked,
};

/// A client that hears nothing for longer may take the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Headers of a provider's answer that pass on.
const KEPT: &[&str] = &["openai-processing-ms", "openai-version"];

/// A body for the client. It cannot fail: what breaks is told inside it.
pub enum Body {
    Whole(Option<Bytes>),
    Stream(Box<Relay>),
    /// People have to decide first.
    Held(Box<Held>),
}

impl Body {
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }
}

/// Turns an answer into the client's response.
///
/// # Errors
/// When nothing was sent to the client yet and the answer cannot be passed on.
pub async fn respond(mut permit: Permit, reply: Reply) -> Result<Response<Body>, Rejection> {
    // The HTTP library takes away the codings that it reads.
    if reply.headers.contains_key(header::CONTENT_ENCODING) {
        let provider = permit.provider().name.to_string();
        let broken = UpstreamFault::Broken { provider }.into();
        return Err(permit.refuse(&Tally::default(), Outcome::UpstreamFailed, broken));
    }
    if !reply.status.is_success() {
        return Err(failed::refuse(&mut permit, reply).await);
    }
    let kind = reply
        .headers
        .get(header::CONTENT_TYPE)
        .map(HeaderValue::as_bytes)
        .unwrap_or_default();
    let streams = kind
        .get(..STREAM.len())
        .is_some_and(|kind| kind.eq_ignore_ascii_case(STREAM));
    if streams {
        stream::respond(permit, reply).await
    } else {
        whole::respond(permit, reply).await
    }
}

/// The answer that was parked for a conversation, to whoever comes back for it.
///
/// # Errors
/// It cannot be had, or what people decided is told as an error.
pub async fn resume(permit: Permit, parked: Parked) -> Result<Response<Body>, Rejection> {
    if parked.streamed {
        stream::resume(permit, parked).await
    } else {
        whole::resume(permit, parked).await
    }
}

const STREAM: &[u8] = b"text/event-stream";

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(relay) => relay
                .poll_bytes(cx)
                .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
            Self::Held(held) => held
                .poll_bytes(cx)
                .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Whole(bytes) => {
                let size = bytes.as_ref().map_or(0, Bytes::len);
                http_body::SizeHint::with_exact(size as u64)
            }
            Self::Stream(_) | Self::Held(_) => http_body::SizeHint::default(),
        }
    }
}

fn mark_json(headers: &mut HeaderMap) {
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
}

fn mark_stream(headers: &mut HeaderMap) {
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(NO_BUFFERING, HeaderValue::from_static("no"));
}

/// Tells nginx to pass pieces on as they come.
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

fn keep(from: &HeaderMap, to: &mut HeaderMap, names: &[&'static str]) {
    for name in names {
        if let Some(value) = from.get(*name) {
            to.insert(HeaderName::from_static(name), value.clone());
        }
    }
}
