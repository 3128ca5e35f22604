//! What is held for one request, from its admission to its settlement.

use std::{
    sync::{Arc, MutexGuard},
    task::{Context, Poll},
};

use super::{
    Books, Refusal, Shortfall,
    account::{Account, State},
    growth::Growth,
    need::Need,
    purse::OpenSlot,
};
use crate::engine::budget::{LimitNote, Unit};

/// What a request used in the end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Actual {
    pub tokens: u64,
    pub cost: u64,
}

/// Must be settled; dropped unsettled it is charged in full, since nobody can say then what was
/// used.
pub struct Reservation {
    pub(super) books: Books,
    pub(super) held: Vec<Held>,
    pub(super) need: Need,
    /// The cap that fits all limits, if any limit needs one.
    pub output_cap: Option<u64>,
    pub cost: u64,
    pub tokens: u64,
    /// The limits that only count, and that it passed.
    pub would_refuse: Vec<Shortfall>,
    /// How its limits stood before and after it was made; taken out for the record.
    pub notes: Vec<LimitNote>,
    growth: Option<Growth>,
    open: Option<OpenSlot>,
    now_ms: i64,
}

/// What one account holds for the request. What was taken later settles where it was taken,
/// which may be another day.
pub(super) struct Held {
    pub account: Arc<Account>,
    pub unit: Unit,
    first: Part,
    later: Vec<Part>,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    /// The period or bucket.
    booked: i64,
    amount: u64,
}

impl Held {
    pub fn new(account: &Arc<Account>, unit: Unit, booked: i64, amount: u64) -> Self {
        Self {
            account: Arc::clone(account),
            unit,
            first: Part { booked, amount },
            later: Vec::new(),
        }
    }

    pub fn amount(&self) -> u64 {
        let later: u64 = self.later.iter().map(|part| part.amount).sum();
        self.first.amount + later
    }

    pub fn shared(&self) -> Arc<Account> {
        Arc::clone(&self.account)
    }

    /// What is missing for an answer of `cap` tokens.
    pub fn more(&self, need: &Need, cap: u64) -> u64 {
        need.amount(self.unit, cap).saturating_sub(self.amount())
    }

    pub fn add(&mut self, booked: i64, amount: u64) {
        let last = self.later.last_mut().unwrap_or(&mut self.first);
        if last.booked == booked {
            last.amount += amount;
        } else {
            self.later.push(Part { booked, amount });
        }
    }

    /// Fills the parts in the order in which they were taken; what is more than all of them
    /// counts for the last.
    fn settle(&self, state: &mut MutexGuard<'_, State>, mut used: u64, now_ms: i64) -> LimitNote {
        let before = state.standing_of(self.first.booked, now_ms);
        let mut parts = std::iter::once(&self.first).chain(&self.later).peekable();
        while let Some(part) = parts.next() {
            let here = match parts.peek() {
                Some(_) => used.min(part.amount),
                None => used,
            };
            used -= here;
            state.settle(part.booked, part.amount, here, now_ms);
        }
        let after = state.standing_of(self.first.booked, now_ms);
        state.note(before, after)
    }
}

impl Reservation {
    pub(super) fn new(
        books: &Books,
        (held, notes): (Vec<Held>, Vec<LimitNote>),
        need: &Need,
        cap: u64,
        open: OpenSlot,
        now_ms: i64,
    ) -> Self {
        Self {
            books: books.clone(),
            held,
            output_cap: need.output_cap.map(|_| cap),
            cost: need.amount(Unit::Cost, cap),
            tokens: need.amount(Unit::Tokens, cap),
            need: need.clone(),
            would_refuse: Vec::new(),
            notes,
            growth: None,
            open: Some(open),
            now_ms,
        }
    }

    /// What was reserved for the input. Tokens.
    pub fn input_tokens(&self) -> u64 {
        self.need.input_tokens
    }

    /// From here on the reservation grows with the answer, to at most `most` tokens of it.
    pub fn let_grow(&mut self, most: Option<u64>) {
        let covered = self.output_cap.unwrap_or(0);
        self.growth = Some(Growth::new(covered, most));
    }

    /// Elastic: so much output is covered. `None`: the whole of it was from the beginning.
    pub fn covered(&self) -> Option<u64> {
        self.growth.as_ref().map(Growth::covered)
    }

    /// Ready once `output` tokens are covered. Memory alone, unless the slice has run out: then
    /// the store is asked.
    ///
    /// # Errors
    /// The limit that leaves no more.
    pub fn poll_cover(
        &mut self,
        cx: &mut Context<'_>,
        output: u64,
        now_ms: i64,
    ) -> Poll<Result<(), Refusal>> {
        let Some(mut growth) = self.growth.take() else {
            return Poll::Ready(Ok(()));
        };
        let covered = growth.poll_cover(cx, self, output, now_ms);
        self.growth = Some(growth);
        covered
    }

    /// Replaces what was held by what was used. Tells how the limits stood before and after.
    pub fn settle(mut self, actual: Actual, now_ms: i64) -> Vec<LimitNote> {
        self.close(now_ms, |held| match held.unit {
            Unit::Requests => held.amount(),
            Unit::Tokens => actual.tokens,
            Unit::Cost => actual.cost,
        })
    }

    /// Nothing was sent: everything goes back, and nothing counts.
    pub fn release(mut self, now_ms: i64) {
        self.close(now_ms, |_| 0);
    }

    fn close(&mut self, now_ms: i64, used: impl Fn(&Held) -> u64) -> Vec<LimitNote> {
        let mut notes = Vec::with_capacity(self.held.len());
        for held in std::mem::take(&mut self.held) {
            let mut state = held.account.lock();
            notes.push(held.settle(&mut state, used(&held), now_ms));
            self.books.note(&held.account, &mut state);
        }
        self.open = None;
        notes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.close(self.now_ms, Held::amount);
    }
}
