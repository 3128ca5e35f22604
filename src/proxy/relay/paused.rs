//! A stream whose calls wait for people: what came is parked, the client is kept company, and the
//! judge goes on with what was decided.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::{KEEP_ALIVE, collect::LARGEST_BODY, stream::Relay};
use crate::{
    books::Refusal,
    engine::{chain::Ruling, record::Outcome},
    proxy::{
        admit::Permit,
        held::{Hold, Permitted},
        upstream::ReplyBody,
    },
    store::approvals::Parked,
};

/// What a stream needs in case its calls have to wait.
pub(super) struct Pause {
    waiter: Arc<Permitted>,
    /// The answer as it came, to be parked. `None`: too much to keep.
    came: Option<BytesMut>,
    /// Of an answer that was parked before.
    parked: Option<String>,
    waiting: Option<Waiting>,
}

type Waiting = Pin<Box<dyn Future<Output = Result<Arc<[Ruling]>, Refusal>> + Send>>;

impl Pause {
    /// `None`: no call of this answer may wait.
    pub fn of(permit: &Permit) -> Option<Box<Self>> {
        let without_headers = permit.tells_as_error() || !permit.is_stream();
        let waiter = Permitted::of(permit, without_headers)?;
        Some(Box::new(Self {
            waiter: Arc::new(waiter),
            came: Some(BytesMut::new()),
            parked: None,
            waiting: None,
        }))
    }

    fn begin(&mut self, paused: Vec<crate::engine::chain::Paused>) -> Waiting {
        let waiter = Arc::clone(&self.waiter);
        let came = self.came.take();
        let parked = self.parked.take();
        Box::pin(async move {
            let hold = match (parked, came) {
                (Some(parked), _) => Hold::join(&waiter, &parked),
                (None, Some(came)) => Hold::open(&waiter, paused, came.freeze(), true).await?,
                (None, None) => return Ok(Arc::from([])),
            };
            hold.rulings().await
        })
    }
}

impl Relay {
    /// Takes a parked answer in, as far as it goes without people.
    pub(super) fn take_parked(&mut self, parked: Parked) -> Option<Hold> {
        let pause = self.pause.as_mut()?;
        let hold = Hold::join(&pause.waiter, &parked.id);
        pause.parked = Some(parked.id);
        self.answer.feed(parked.answer.into(), &mut self.ready);
        self.answer.end(false, &mut self.ready);
        Some(hold)
    }

    pub(super) fn is_paused(&self) -> bool {
        !self.answer.paused().is_empty()
    }

    pub(super) fn keep_for_parking(&mut self, piece: &Bytes) {
        if let Some(pause) = &mut self.pause
            && let Some(came) = &mut pause.came
        {
            came.extend_from_slice(piece);
            if came.len() > LARGEST_BODY {
                pause.came = None;
            }
        }
    }

    /// Ready when something may leave, or when people have decided.
    pub(super) fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pause) = &mut self.pause else {
            self.fail_pause();
            return Poll::Ready(());
        };
        let Some(waiting) = &mut pause.waiting else {
            let paused = self.answer.paused().to_vec();
            pause.waiting = Some(pause.begin(paused));
            self.settle_paused();
            return Poll::Ready(());
        };
        if let Poll::Ready(rulings) = waiting.as_mut().poll(cx) {
            let judge = Arc::new(pause.waiter.guard_now());
            match rulings {
                Ok(rulings) => self.answer.rule(judge, rulings, &mut self.ready),
                Err(_) => self.fail_pause(),
            }
            return Poll::Ready(());
        }
        std::task::ready!(self.alarm.as_mut().poll(cx));
        self.alarm.as_mut().reset(Instant::now() + KEEP_ALIVE);
        self.answer.keep_alive(&mut self.ready);
        Poll::Ready(())
    }

    /// The provider has said all it had to say: it is paid for now, whatever people decide.
    fn settle_paused(&mut self) {
        self.source = ReplyBody::Over;
        self.permit
            .complete(self.answer.tally(), Outcome::Completed);
        self.alarm.as_mut().reset(Instant::now() + KEEP_ALIVE);
        if !self.permit.tells_as_error() {
            self.answer.speak(&mut self.ready);
            self.answer.keep_alive(&mut self.ready);
        }
    }

    fn fail_pause(&mut self) {
        let words = "Tallygate cannot ask a person about this call right now.";
        self.answer
            .stop("guard_unavailable", words, &mut self.ready);
    }
}
