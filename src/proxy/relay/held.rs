//! A whole answer that waits for people: the client hears a line feed now and then, which JSON
//! does not mind, and then the answer.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::time::{Instant, Sleep};

use super::KEEP_ALIVE;

/// What comes at the end of the wait.
pub(super) type Coming = Pin<Box<dyn Future<Output = Bytes> + Send>>;

/// A body that is not there yet.
pub struct Held {
    coming: Coming,
    alive: &'static [u8],
    alarm: Pin<Box<Sleep>>,
    over: bool,
}

impl Held {
    /// `alive` is what a client that waits may hear: nothing that changes the answer.
    pub(super) fn new(coming: Coming, alive: &'static [u8]) -> Self {
        Self {
            coming,
            alive,
            alarm: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
            over: false,
        }
    }

    pub(super) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(answer) = self.coming.as_mut().poll(cx) {
            self.over = true;
            return Poll::Ready(Some(answer));
        }
        std::task::ready!(self.alarm.as_mut().poll(cx));
        self.alarm.as_mut().reset(Instant::now() + KEEP_ALIVE);
        Poll::Ready(Some(Bytes::from_static(self.alive)))
    }
}
