//! What time does to a stream: silence ends it, a client that waits hears of it, and no call waits
//! for ever.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;

use super::{KEEP_ALIVE, stream::Relay};
use crate::engine::record::Outcome;

/// Calls that are not whole by then never will be.
const LONGEST_WITHHELD: Duration = Duration::from_mins(10);
/// So long an answer may keep its status open, since clients wait longer for headers.
const STATUS_WITHIN: Duration = Duration::from_secs(50);

impl Relay {
    /// One timer for the whole stream: it is set again only when it goes off too early.
    pub(super) fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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
    pub(super) fn mind_the_wait(&mut self, now: Instant) {
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
}
