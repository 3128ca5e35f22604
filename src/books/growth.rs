//! Elastic enforcement: a reservation that begins small and grows while an answer streams. What
//! is covered was taken from every limit before; what cannot be covered must not leave.

use std::{
    future::Future,
    pin::Pin,
    sync::MutexGuard,
    task::{Context, Poll, ready},
};

use super::{
    Refusal,
    account::State,
    purse::{Attempt, no_room},
    reservation::{Held, Reservation},
};
use crate::engine::budget::{Unit, largest};

/// What is covered at first, and what is taken at least when more is needed. Tokens.
pub const STEP: u64 = 256;
/// A long answer takes this part of its length at once, so that it seldom has to.
const PART: u64 = 4;

type Asking = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send + Sync>>;

pub struct Growth {
    covered: u64,
    /// The answer cannot be longer.
    most: u64,
    /// From this length on more is taken: ahead of need.
    again_at: u64,
    /// The slice has run out.
    asking: Option<Asking>,
}

impl Growth {
    pub fn new(covered: u64, most: Option<u64>) -> Self {
        Self {
            covered,
            most: most.unwrap_or(u64::MAX),
            again_at: covered / 2,
            asking: None,
        }
    }

    pub fn covered(&self) -> u64 {
        self.covered
    }

    pub fn poll_cover(
        &mut self,
        cx: &mut Context<'_>,
        reservation: &mut Reservation,
        output: u64,
        now_ms: i64,
    ) -> Poll<Result<(), Refusal>> {
        while output > self.again_at {
            if let Some(asking) = &mut self.asking {
                let answer = ready!(asking.as_mut().poll(cx));
                self.asking = None;
                answer?;
            }
            let ahead = STEP.max(output / PART);
            let wish = output.saturating_add(ahead).min(self.most.max(output));
            match reservation.grow(self.covered.max(output), wish.max(self.covered), now_ms) {
                Ok(covered) => {
                    self.covered = covered;
                    self.again_at = output + (covered - output) / 2;
                    break;
                }
                Err(Attempt::Refused(refusal)) => return Poll::Ready(Err(refusal)),
                Err(Attempt::Ask(short)) => {
                    let books = reservation.books.clone();
                    self.asking = Some(Box::pin(async move { books.ask(short).await }));
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Reservation {
    /// Covers at least `least` tokens of output and up to `wish`, from memory alone; all limits
    /// or none. What is wished beyond that is asked for, to be there before it is needed.
    fn grow(&mut self, least: u64, wish: u64, now_ms: i64) -> Result<u64, Attempt> {
        let accounts: Vec<_> = self.held.iter().map(Held::shared).collect();
        let mut states: Vec<_> = accounts.iter().map(|account| account.lock()).collect();
        let alone = self.books.is_alone();
        let mut short = Vec::new();
        for (held, state) in self.held.iter().zip(&mut states) {
            let more = held.more(&self.need, wish);
            if alone {
                state.help_itself(more, now_ms);
            }
            let missing = more.saturating_sub(state.headroom(now_ms));
            if missing > 0 && !alone && !state.exhausted(now_ms) {
                short.push((held.shared(), missing));
            }
        }
        let fitting = largest(least, wish, |cap| self.fits(&mut states, cap, now_ms));
        let Some(cap) = fitting else {
            return Err(if short.is_empty() {
                Attempt::Refused(self.refusal(&mut states, alone, least, now_ms))
            } else {
                Attempt::Ask(short)
            });
        };
        self.take(&mut states, cap, now_ms);
        drop(states);
        for (account, missing) in short {
            let known = std::mem::replace(&mut account.lock().asked, true);
            if !known {
                self.books.ask_ahead(&account, missing);
            }
        }
        Ok(cap)
    }

    fn fits(&self, states: &mut [MutexGuard<'_, State>], cap: u64, now_ms: i64) -> bool {
        let mut both = self.held.iter().zip(states);
        both.all(|(held, state)| held.more(&self.need, cap) <= state.headroom(now_ms))
    }

    fn take(&mut self, states: &mut [MutexGuard<'_, State>], cap: u64, now_ms: i64) {
        for (held, state) in self.held.iter_mut().zip(states) {
            let more = held.more(&self.need, cap);
            if more > 0 {
                let booked = self.books.take(&held.shared(), state, more, now_ms);
                held.add(booked, more);
            }
        }
        self.cost = self.need.amount(Unit::Cost, cap);
        self.tokens = self.need.amount(Unit::Tokens, cap);
    }

    fn refusal(
        &self,
        states: &mut [MutexGuard<'_, State>],
        alone: bool,
        cap: u64,
        now_ms: i64,
    ) -> Refusal {
        for (held, state) in self.held.iter().zip(states) {
            let more = held.more(&self.need, cap);
            if more > state.headroom(now_ms) {
                return no_room(state, alone, more, now_ms);
            }
        }
        Refusal::Unavailable
    }
}
