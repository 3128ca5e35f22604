//! Elastic enforcement at the relay: text leaves event by event, each covered by the growing
//! reservation before it leaves.
//!
//! What an answer uses is only known at its end, so it is counted as it comes: a token for four
//! bytes, and at least one for each event with text. At the end what the provider reports is
//! booked, which is more only where it counts what it does not send, or where text is denser.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use memchr::memmem;

use super::{admit::Permit, answer::StreamedAnswer};
use crate::{
    books::Refusal,
    engine::{chat::Tally, tokens},
};

#[derive(Default)]
pub struct Elastic {
    /// Arrived, and not yet read.
    unread: Bytes,
    /// Read, and not yet covered.
    uncovered: Vec<Bytes>,
    /// Events with text.
    pieces: u64,
}

impl Elastic {
    pub fn push(&mut self, piece: Bytes) {
        debug_assert!(
            self.unread.is_empty(),
            "nothing is taken in before the last was read"
        );
        self.unread = piece;
    }

    /// Whether something is here that has not gone on.
    pub fn holds(&self) -> bool {
        !self.unread.is_empty() || !self.uncovered.is_empty()
    }

    /// Hands on what has arrived as far as it is covered.
    ///
    /// # Errors
    /// The limit that leaves no more. What was not covered is gone then.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        permit: &mut Permit,
        chat: &mut StreamedAnswer,
        ready: &mut Vec<Bytes>,
    ) -> Poll<Result<(), Refusal>> {
        while self.holds() {
            if self.uncovered.is_empty() {
                let before = chat.tally().written;
                let event = self.next_event();
                chat.feed(event, &mut self.uncovered);
                self.pieces += u64::from(chat.tally().written > before);
            }
            let covered = ready!(permit.poll_cover(cx, self.output(chat.tally())));
            if let Err(refusal) = covered {
                *self = Self::default();
                return Poll::Ready(Err(refusal));
            }
            ready.append(&mut self.uncovered);
        }
        Poll::Ready(Ok(()))
    }

    fn output(&self, tally: &Tally) -> u64 {
        tokens::estimate(tally.written).max(self.pieces)
    }

    /// Up to the next empty line, or all there is.
    fn next_event(&mut self) -> Bytes {
        let end = memmem::find(&self.unread, b"\n\n").map_or(self.unread.len(), |at| at + 2);
        self.unread.split_to(end)
    }
}
