//! Long answers, as JSON Lines or events, made as they are read: a client that is slow slows the reading
//! down, one that leaves ends it.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::Response,
};
use http_body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Pieces that wait to be sent.
const WAITING: usize = 2;

struct Lines(mpsc::Receiver<Bytes>);

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(cx)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// Where the work hands its lines to.
pub(super) struct Sink {
    to: mpsc::Sender<Bytes>,
    /// Held while the stream runs.
    _permit: OwnedSemaphorePermit,
}

/// The client has left.
pub(super) struct Left;

impl Sink {
    pub async fn send(&self, lines: impl Into<Bytes>) -> Result<(), Left> {
        self.to.send(lines.into()).await.map_err(|_| Left)
    }

    /// Resolves when the client has left.
    pub async fn left(&self) {
        self.to.closed().await;
    }
}

/// The answer, and where its lines go.
pub(super) fn lines(permit: OwnedSemaphorePermit) -> (Response, Sink) {
    open(permit, "application/jsonl")
}

/// The same for server-sent events.
pub(super) fn events(permit: OwnedSemaphorePermit) -> (Response, Sink) {
    open(permit, "text/event-stream")
}

fn open(permit: OwnedSemaphorePermit, kind: &'static str) -> (Response, Sink) {
    let (to, from) = mpsc::channel(WAITING);
    let mut response = Response::new(Body::new(Lines(from)));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let sink = Sink {
        to,
        _permit: permit,
    };
    (response, sink)
}
