//! A stream on its way: pieces in, judged, out. `clocks` has what time does to it, `paused` the
//! wait for people.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use tokio::time::{Instant, Sleep};

use super::{Body, KEEP_ALIVE, KEPT, failed::answered, keep, mark_stream, paused::Pause};
use crate::{
    engine::{chat::StreamRules, record::Outcome},
    proxy::{
        admit::{Permit, Remembered},
        answer::StreamedAnswer,
        elastic::Elastic,
        rejection::{Rejection, UpstreamFault},
        upstream::{Reply, ReplyBody},
    },
    store::approvals::Parked,
};

/// One event of a stream. Bytes.
const LARGEST_EVENT: usize = 16 << 20;
/// Calls of one stream, with what waits beside them. Bytes.
const MOST_WITHHELD: usize = 16 << 20;

/// So much is written together at most.
const LARGEST_WRITE: usize = 64 << 10;

/// So often the source is looked at again before a piece is written: its connection is a task of
/// its own that hands over one piece a turn. The HTTP library asks twice in one turn, so that the
/// second look of ours is the first that can find more.
const LOOKS: u8 = 2;

/// A stream on its way.
pub struct Relay {
    pub(super) permit: Permit,
    pub(super) source: ReplyBody,
    pub(super) answer: StreamedAnswer,
    /// Where the reservation grows with the answer.
    pub(super) elastic: Option<Elastic>,
    /// Where calls may have to wait for people.
    pub(super) pause: Option<Box<Pause>>,
    /// What may leave.
    pub(super) ready: Vec<Bytes>,
    /// Calls among it that a crash must not forget are being written down; nothing leaves before.
    writing: Option<Remembered>,
    /// A limit cut the answer before anything had left.
    pub(super) refused: Option<Rejection>,
    pub(super) idle: Duration,
    pub(super) begun: Instant,
    pub(super) last_piece: Instant,
    pub(super) last_sent: Instant,
    pub(super) withheld_since: Option<Instant>,
    pub(super) alarm: Pin<Box<Sleep>>,
    /// Something has left.
    pub(super) delivered: bool,
    /// It counts as an open stream.
    counted: bool,
    /// How often in a row nothing more was there.
    pub(super) looks: u8,
    pub(super) outcome: Outcome,
}

pub(super) async fn respond(permit: Permit, reply: Reply) -> Result<Response<Body>, Rejection> {
    let relay = Relay::new(permit, reply.body);
    relay.answer(&reply.headers).await
}

/// A parked stream, from its beginning.
pub(super) async fn resume(permit: Permit, parked: Parked) -> Result<Response<Body>, Rejection> {
    let mut relay = Relay::new(permit, ReplyBody::Over);
    let hold = relay
        .take_parked(parked)
        .ok_or(Rejection::GuardUnavailable)?;
    if relay.answer.paused().is_empty() {
        hold.claim().await?;
    }
    relay.answer(&HeaderMap::new()).await
}

impl Relay {
    fn new(permit: Permit, source: ReplyBody) -> Self {
        let idle = permit.provider().idle_timeout;
        let rules = StreamRules {
            hide_usage: permit.hides_usage(),
            largest_event: LARGEST_EVENT,
            most_withheld: MOST_WITHHELD,
            calls: permit.call_rules(),
        };
        let now = Instant::now();
        Self {
            source,
            answer: StreamedAnswer::new(permit.api(), rules),
            elastic: permit.grows().then(Elastic::default),
            pause: Pause::of(&permit),
            ready: Vec::new(),
            writing: None,
            refused: None,
            idle,
            begun: now,
            last_piece: now,
            last_sent: now,
            withheld_since: None,
            alarm: Box::pin(tokio::time::sleep(idle.min(KEEP_ALIVE))),
            delivered: false,
            counted: false,
            looks: 0,
            outcome: Outcome::Completed,
            permit,
        }
    }

    async fn answer(mut self, headers: &HeaderMap) -> Result<Response<Body>, Rejection> {
        if !self.permit.is_stream() {
            return self.into_body(headers).await;
        }
        // While nothing has left, a failure can still be told with a status.
        std::future::poll_fn(|cx| self.poll_first(cx)).await;
        if let Some(rejection) = self.refused.take() {
            return Err(rejection);
        }
        if self.ready.is_empty() && !self.answer.has_sent() {
            return Err(self.give_up());
        }
        self.permit.metrics().stream_opened();
        self.counted = true;
        let mut response = Response::new(Body::Stream(Box::new(self)));
        keep(headers, response.headers_mut(), KEPT);
        mark_stream(response.headers_mut());
        Ok(response)
    }

    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.ready.is_empty() && !self.is_over() {
            std::task::ready!(self.poll_source(cx));
        }
        Poll::Ready(())
    }

    fn is_over(&self) -> bool {
        self.answer.is_over() && !self.elastic.as_ref().is_some_and(Elastic::holds)
    }

    pub(super) fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_paused() {
            std::task::ready!(self.poll_pause(cx));
        } else {
            std::task::ready!(self.poll_input(cx));
        }
        for judged in self.answer.take_judged() {
            self.permit.record_call(&judged);
        }
        if let Some(written) = self.permit.remembered() {
            self.writing = Some(written);
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
                self.keep_for_parking(&piece);
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
        self.permit.complete(self.answer.tally(), Outcome::Cut);
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

    /// The stream failed before anything of it was sent.
    pub(super) fn give_up(&mut self) -> Rejection {
        let tally = self.answer.tally().clone();
        let blocks = self.answer.refused();
        if !blocks.is_empty() {
            let blocks = blocks.to_vec();
            let blocked = Rejection::CallsBlocked { blocks };
            return self.permit.refuse(&tally, Outcome::Completed, blocked);
        }
        let provider = self.permit.provider().name.to_string();
        let rejection = match &tally.error {
            Some(_) if self.outcome == Outcome::UpstreamFailed => UpstreamFault::Timeout {
                provider,
                after: self.idle,
                connected: true,
            }
            .into(),
            Some(error) => answered(StatusCode::BAD_GATEWAY, error.clone(), HeaderMap::new()),
            None => UpstreamFault::Broken { provider }.into(),
        };
        self.permit
            .refuse(&tally, Outcome::UpstreamError, rejection)
    }

    /// Ready once the calls in what may leave are on disk; without them, if that cannot be.
    fn poll_writing(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(writing) = &mut self.writing else {
            return Poll::Ready(());
        };
        let written = std::task::ready!(writing.as_mut().poll(cx));
        self.writing = None;
        if let Err(refusal) = written {
            self.ready.clear();
            self.source = ReplyBody::Over;
            let rejection = refusal.into();
            let told = self.permit.tell(&rejection);
            self.outcome = Outcome::Cut;
            self.permit.complete(self.answer.tally(), Outcome::Cut);
            self.answer.cut(&told.body, &mut self.ready);
            self.permit.record_refused(&rejection, &told);
        }
        Poll::Ready(())
    }

    pub(super) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            std::task::ready!(self.poll_writing(cx));
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
        if !std::mem::replace(&mut self.delivered, true) {
            self.permit.mark_first_piece();
        }
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

    pub(super) fn settle(&mut self) {
        let tally = self.answer.tally();
        let outcome = match (self.outcome, &tally.error) {
            (Outcome::Completed, Some(_)) => Outcome::UpstreamFailed,
            (outcome, _) => outcome,
        };
        self.permit.complete(tally, outcome);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.counted {
            self.permit.metrics().stream_closed();
        }
        let outcome = if self.answer.is_over() {
            self.outcome
        } else {
            Outcome::ClientGone
        };
        self.permit.complete(self.answer.tally(), outcome);
    }
}
