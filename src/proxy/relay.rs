//! From a provider's answer to the client's: streams as they come, whole bodies in one piece,
//! errors in one shape. Settles the permit at the end, however that comes.
//!
//! Bytes that nothing changes leave unchanged. Pieces that are there together are written
//! together; one that arrives alone leaves at once.

mod reshaped;

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::{Body as HttpBody, Frame};
use serde_json::Value;
use tokio::time::{Instant, Sleep};

use super::{
    admit::Permit,
    answer::{self, StreamedAnswer},
    elastic::Elastic,
    rejection::{Rejection, UpstreamFault},
    upstream::{Reply, ReplyBody},
};
use crate::config::Provider;
use crate::engine::{
    call::Api,
    chat::{self, Answer, StreamRules, Tally, shaped},
    record::Outcome,
};

/// A larger whole answer cannot be held to be judged. Bytes.
const LARGEST_BODY: usize = 64 << 20;
/// A larger error body is cut; nobody reads it. Bytes.
const LARGEST_ERROR: usize = 1 << 20;
/// One event of a stream. Bytes.
const LARGEST_EVENT: usize = 16 << 20;
/// Calls of one stream, with what waits beside them. Bytes.
const MOST_WITHHELD: usize = 16 << 20;
/// Calls that are not whole by then never will be.
const LONGEST_WITHHELD: Duration = Duration::from_mins(10);
/// A client that hears nothing for longer may take the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// So long an answer may keep its status open, since clients wait longer for headers.
const STATUS_WITHIN: Duration = Duration::from_secs(50);

/// So much is written together at most.
const LARGEST_WRITE: usize = 64 << 10;

/// So often the source is looked at again before a piece is written: its connection is a task of
/// its own that hands over one piece a turn. The HTTP library asks twice in one turn, so that the
/// second look of ours is the first that can find more.
const LOOKS: u8 = 2;

/// Headers of a provider's answer that pass on.
const KEPT: &[&str] = &["openai-processing-ms", "openai-version"];
const KEPT_OF_ERRORS: &[&str] = &["retry-after", "retry-after-ms", "x-should-retry"];

/// A body for the client. It cannot fail: what breaks is told inside it.
pub enum Body {
    Whole(Option<Bytes>),
    Stream(Box<Relay>),
}

impl Body {
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }
}

/// A stream on its way.
pub struct Relay {
    permit: Permit,
    source: ReplyBody,
    answer: StreamedAnswer,
    /// Where the reservation grows with the answer.
    elastic: Option<Elastic>,
    /// What may leave.
    ready: Vec<Bytes>,
    /// A limit cut the answer before anything had left.
    refused: Option<Rejection>,
    idle: Duration,
    begun: Instant,
    last_piece: Instant,
    last_sent: Instant,
    withheld_since: Option<Instant>,
    alarm: Pin<Box<Sleep>>,
    /// Something has left.
    delivered: bool,
    /// How often in a row nothing more was there.
    looks: u8,
    outcome: Outcome,
}

/// Turns an answer into the client's response.
///
/// # Errors
/// When nothing was sent to the client yet and the answer cannot be passed on.
pub async fn respond(mut permit: Permit, reply: Reply) -> Result<Response<Body>, Rejection> {
    // The HTTP library takes away the codings that it reads.
    if reply.headers.contains_key(header::CONTENT_ENCODING) {
        permit.close(&Tally::default(), Outcome::UpstreamFailed, 502);
        let provider = permit.provider().name.to_string();
        return Err(UpstreamFault::Broken { provider }.into());
    }
    if !reply.status.is_success() {
        return Err(refuse(&mut permit, reply).await);
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
        stream(permit, reply).await
    } else {
        whole(permit, reply).await
    }
}

const STREAM: &[u8] = b"text/event-stream";

async fn whole(mut permit: Permit, mut reply: Reply) -> Result<Response<Body>, Rejection> {
    let provider = permit.provider().name.to_string();
    let idle = permit.provider().idle_timeout;
    let body = match collect(&mut reply.body, LARGEST_BODY, idle).await {
        Ok(body) => body,
        Err(fault) => {
            permit.close(&Tally::default(), Outcome::UpstreamFailed, 502);
            return Err(fault.of(provider, idle).into());
        }
    };
    let Some((answer, own)) = answer::whole(permit.api(), &body, permit.call_rules()) else {
        permit.close(&Tally::default(), Outcome::UpstreamFailed, 502);
        return Err(UpstreamFault::Broken { provider }.into());
    };
    let Answer {
        body,
        tally,
        judged,
    } = answer;
    judged.iter().for_each(|one| permit.record_call(one));
    if matches!(body, chat::Body::Send(_)) {
        permit.own(own, &tally);
    }
    let body = match body {
        chat::Body::Send(body) => body,
        chat::Body::Error(error) => {
            permit.close(&tally, Outcome::UpstreamError, 502);
            return Err(answered(StatusCode::BAD_GATEWAY, error, HeaderMap::new()));
        }
        chat::Body::Refused(blocks) => {
            permit.close(&tally, Outcome::Completed, 403);
            return Err(Rejection::CallsBlocked { blocks });
        }
    };
    permit.close(&tally, Outcome::Completed, 200);
    let reshape = permit.api() == Api::Chat && permit.is_stream();
    let streamed = reshape.then(|| reshaped::streamed(&body, permit.hides_usage()));
    let mut response = streamed.flatten().unwrap_or_else(|| {
        let mut response = Response::new(Body::whole(body));
        mark_json(response.headers_mut());
        response
    });
    keep(&reply.headers, response.headers_mut(), KEPT);
    Ok(response)
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

async fn stream(permit: Permit, reply: Reply) -> Result<Response<Body>, Rejection> {
    let idle = permit.provider().idle_timeout;
    let rules = StreamRules {
        hide_usage: permit.hides_usage(),
        largest_event: LARGEST_EVENT,
        most_withheld: MOST_WITHHELD,
        calls: permit.call_rules(),
    };
    let api = permit.api();
    let elastic = permit.grows().then(Elastic::default);
    let now = Instant::now();
    let mut relay = Relay {
        permit,
        source: reply.body,
        answer: StreamedAnswer::new(api, rules),
        elastic,
        ready: Vec::new(),
        refused: None,
        idle,
        begun: now,
        last_piece: now,
        last_sent: now,
        withheld_since: None,
        alarm: Box::pin(tokio::time::sleep(idle.min(KEEP_ALIVE))),
        delivered: false,
        looks: 0,
        outcome: Outcome::Completed,
    };
    if api == Api::Chat && !relay.permit.is_stream() {
        return relay.into_body(&reply.headers).await;
    }
    // While nothing has left, a failure can still be told with a status.
    std::future::poll_fn(|cx| relay.poll_first(cx)).await;
    if let Some(rejection) = relay.refused.take() {
        return Err(rejection);
    }
    if relay.ready.is_empty() && !relay.answer.has_sent() {
        return Err(relay.give_up());
    }
    let mut response = Response::new(Body::Stream(Box::new(relay)));
    let headers = response.headers_mut();
    keep(&reply.headers, headers, KEPT);
    mark_stream(headers);
    Ok(response)
}

/// Tells nginx to pass pieces on as they come.
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

impl Relay {
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.ready.is_empty() && !self.is_over() {
            std::task::ready!(self.poll_source(cx));
        }
        Poll::Ready(())
    }

    fn is_over(&self) -> bool {
        self.answer.is_over() && !self.elastic.as_ref().is_some_and(Elastic::holds)
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        std::task::ready!(self.poll_input(cx));
        for judged in self.answer.take_judged() {
            self.permit.record_call(&judged);
        }
        let own = self.answer.take_own_ids();
        self.permit.own(own, self.answer.tally());
        Poll::Ready(())
    }

    /// Takes one piece in, or the end, or the alarm.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.elastic.as_ref().is_some_and(Elastic::holds) {
            return self.poll_elastic(cx);
        }
        match self.source.poll_piece(cx) {
            Poll::Ready(Some(Ok(piece))) => {
                self.last_piece = Instant::now();
                self.looks = 0;
                if let Some(elastic) = &mut self.elastic {
                    elastic.push(piece);
                    return self.poll_elastic(cx);
                }
                self.answer.feed(piece, &mut self.ready);
                self.mind_the_wait(self.last_piece);
            }
            Poll::Ready(end) => {
                let cut = end.is_some();
                self.answer.end(cut, &mut self.ready);
            }
            Poll::Pending => return self.poll_alarm(cx),
        }
        Poll::Ready(())
    }

    fn poll_elastic(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(elastic) = &mut self.elastic else {
            return Poll::Ready(());
        };
        let read = elastic.poll_read(cx, &mut self.permit, &mut self.answer, &mut self.ready);
        if let Err(refusal) = std::task::ready!(read) {
            self.cut(refusal.into());
        }
        self.mind_the_wait(self.last_piece);
        Poll::Ready(())
    }

    /// Ends the answer at a limit: what has left stays, the reason follows, the provider is left.
    fn cut(&mut self, rejection: Rejection) {
        let told = self.permit.tell(&rejection);
        self.outcome = Outcome::Cut;
        self.permit.close(self.answer.tally(), Outcome::Cut, 200);
        self.source = ReplyBody::Over;
        let nothing_left = self.ready.is_empty() && !self.delivered;
        self.answer.cut(&told.body, &mut self.ready);
        if nothing_left {
            self.ready.clear();
            self.refused = Some(rejection);
        } else {
            self.permit.record_refused(&rejection, &told);
        }
    }

    /// One timer for the whole stream: it is set again only when it goes off too early.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            std::task::ready!(self.alarm.as_mut().poll(cx));
            let now = Instant::now();
            let due = self.last_piece + self.idle;
            if due <= now {
                self.outcome = Outcome::UpstreamFailed;
                let words = format!("The provider sent nothing for {:?}.", self.idle);
                self.answer
                    .stop("upstream_timeout", &words, &mut self.ready);
                return Poll::Ready(());
            }
            self.alarm.as_mut().reset(due.min(now + KEEP_ALIVE));
            self.mind_the_wait(now);
            if !self.ready.is_empty() || self.answer.is_over() {
                return Poll::Ready(());
            }
        }
    }

    /// While something is withheld, the client hears of it now and then, and not for ever.
    fn mind_the_wait(&mut self, now: Instant) {
        if !self.ready.is_empty() {
            self.last_sent = now;
        }
        if !self.answer.has_sent() && now >= self.begun + STATUS_WITHIN {
            self.answer.speak(&mut self.ready);
        }
        if !self.answer.is_withholding() {
            self.withheld_since = None;
            return;
        }
        let since = *self.withheld_since.get_or_insert(now);
        if now >= since + LONGEST_WITHHELD {
            let words = "The provider did not finish a tool call in time.";
            self.answer.stop("malformed_output", words, &mut self.ready);
        } else if now >= self.last_sent + KEEP_ALIVE {
            self.last_sent = now;
            self.answer.keep_alive(&mut self.ready);
        }
    }

    /// The stream failed before anything of it was sent.
    fn give_up(&mut self) -> Rejection {
        let tally = self.answer.tally().clone();
        let blocks = self.answer.refused();
        if !blocks.is_empty() {
            self.permit.close(&tally, Outcome::Completed, 403);
            return Rejection::CallsBlocked {
                blocks: blocks.to_vec(),
            };
        }
        self.permit.close(&tally, Outcome::UpstreamError, 502);
        let provider = self.permit.provider().name.to_string();
        match tally.error {
            Some(error) if self.outcome == Outcome::UpstreamFailed => {
                let _ = error;
                UpstreamFault::Timeout {
                    provider,
                    after: self.idle,
                }
                .into()
            }
            Some(error) => answered(StatusCode::BAD_GATEWAY, error, HeaderMap::new()),
            None => UpstreamFault::Broken { provider }.into(),
        }
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let size: usize = self.ready.iter().map(Bytes::len).sum();
            if self.is_over() || size >= LARGEST_WRITE {
                if size == 0 {
                    self.settle();
                    return Poll::Ready(None);
                }
                return Poll::Ready(Some(self.take()));
            }
            match self.poll_source(cx) {
                Poll::Ready(()) => {}
                Poll::Pending if size == 0 => return Poll::Pending,
                // The connection's own task may hold more that has already arrived.
                Poll::Pending if self.looks < LOOKS => {
                    self.looks += 1;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending => return Poll::Ready(Some(self.take())),
            }
        }
    }

    fn take(&mut self) -> Bytes {
        self.looks = 0;
        self.delivered = true;
        if self.ready.len() == 1 {
            return self.ready.pop().unwrap_or_default();
        }
        let size = self.ready.iter().map(Bytes::len).sum();
        let mut all = BytesMut::with_capacity(size);
        self.ready
            .drain(..)
            .for_each(|piece| all.extend_from_slice(&piece));
        all.freeze()
    }

    fn settle(&mut self) {
        let tally = self.answer.tally();
        let outcome = match (self.outcome, &tally.error) {
            (Outcome::Completed, Some(_)) => Outcome::UpstreamFailed,
            (outcome, _) => outcome,
        };
        self.permit.close(tally, outcome, 200);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let outcome = if self.answer.is_over() {
            self.outcome
        } else {
            Outcome::ClientGone
        };
        self.permit.close(self.answer.tally(), outcome, 200);
    }
}

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
            Self::Stream(_) => http_body::SizeHint::default(),
        }
    }
}

enum Collecting {
    Broken,
    Stalled,
}

impl Collecting {
    fn of(self, provider: String, after: Duration) -> UpstreamFault {
        match self {
            Self::Broken => UpstreamFault::Broken { provider },
            Self::Stalled => UpstreamFault::Timeout { provider, after },
        }
    }
}

async fn collect(body: &mut ReplyBody, most: usize, idle: Duration) -> Result<Bytes, Collecting> {
    let mut whole = BytesMut::new();
    let mut first: Option<Bytes> = None;
    loop {
        let piece = tokio::time::timeout(idle, body.piece())
            .await
            .map_err(|_| Collecting::Stalled)?;
        let piece = match piece {
            None => break,
            Some(piece) => piece.map_err(|_| Collecting::Broken)?,
        };
        if first.is_none() && whole.is_empty() {
            first = Some(piece);
            continue;
        }
        if let Some(first) = first.take() {
            whole.extend_from_slice(&first);
        }
        whole.extend_from_slice(&piece);
        if whole.len() > most {
            return Err(Collecting::Broken);
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

/// A provider's error status: kept, with its words, in the one shape.
async fn refuse(permit: &mut Permit, reply: Reply) -> Rejection {
    let status = reply.status.as_u16();
    let provider = Arc::clone(permit.provider());
    let told = error_answer(&provider, reply).await;
    permit.close(&Tally::default(), Outcome::UpstreamError, status);
    told
}

async fn error_answer(provider: &Provider, mut reply: Reply) -> Rejection {
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
    keep(&reply.headers, &mut headers, KEPT_OF_ERRORS);
    answered(reply.status, error, headers)
}

/// The body of an answer that no permit was needed for.
///
/// # Errors
/// The provider's error, or that it broke off.
pub async fn plain_body(provider: &Provider, mut reply: Reply) -> Result<Bytes, Rejection> {
    if !reply.status.is_success() {
        return Err(error_answer(provider, reply).await);
    }
    let idle = provider.idle_timeout;
    let body = collect(&mut reply.body, LARGEST_BODY, idle).await;
    body.map_err(|fault| fault.of(provider.name.to_string(), idle).into())
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

fn answered(status: StatusCode, error: Value, headers: HeaderMap) -> Rejection {
    UpstreamFault::Answered {
        status,
        error,
        headers,
    }
    .into()
}

fn keep(from: &HeaderMap, to: &mut HeaderMap, names: &[&'static str]) {
    for name in names {
        if let Some(value) = from.get(*name) {
            to.insert(HeaderName::from_static(name), value.clone());
        }
    }
}
