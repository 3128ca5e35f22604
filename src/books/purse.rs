//! All limits that one key must satisfy: what fits all of them is reserved, all or nothing.

use std::{
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    Books, Refusal, Shortfall,
    account::{Account, State, View},
    need::Need,
    reservation::{Held, Reservation},
};
use crate::engine::budget::{LimitNote, Unit, Window, largest};

/// The accounts of one key, in the order in which they are checked and locked.
pub struct Purse {
    pub accounts: Vec<Arc<Account>>,
    parallel: Vec<Crowd>,
}

/// A limit of open requests, as the configuration names it.
#[derive(Clone)]
struct Crowd {
    open: Arc<Parallel>,
    name: &'static str,
    subject: &'static str,
    observe: bool,
}

/// How many requests may be open at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct AtOnce {
    /// 0: any number.
    pub limit: u64,
    /// Only counts.
    pub observe: bool,
}

/// Requests of one key that are open at this moment.
#[derive(Default)]
pub struct Parallel {
    open: AtomicU64,
    limit: AtomicU64,
}

/// A per-minute limit as clients are told it.
#[derive(Debug, Clone, Copy)]
pub struct RateView {
    pub unit: Unit,
    pub limit: u64,
    pub remaining: u64,
    pub reset_ms: i64,
}

impl Crowd {
    fn full(&self, limit: u64, open: u64) -> Shortfall {
        Shortfall {
            name: self.name,
            subject: self.subject.into(),
            limit,
            reserved: open,
            needed: 1,
            window: Window::Minute,
            retry_after: Some(Duration::from_secs(1)),
            ..Shortfall::default()
        }
    }
}

impl Purse {
    pub(super) fn new(
        accounts: Vec<Arc<Account>>,
        parallel: Arc<Parallel>,
        at_once: AtOnce,
    ) -> Self {
        parallel.limit.store(at_once.limit, Ordering::Relaxed);
        let crowd = Crowd {
            open: parallel,
            name: "parallel_requests",
            subject: "this key",
            observe: at_once.observe,
        };
        Self {
            accounts,
            parallel: vec![crowd],
        }
    }

    /// The limits of a run, and then those of this key: a request must satisfy all of them.
    pub fn with_run(&self, run: &Self) -> Self {
        let crowd = |crowd: &Crowd| Crowd {
            name: "run.max_parallel_units",
            subject: "this run",
            ..crowd.clone()
        };
        let accounts = run.accounts.iter().chain(&self.accounts);
        let own = self.parallel.iter().cloned();
        Self {
            accounts: accounts.cloned().collect(),
            parallel: run.parallel.iter().map(crowd).chain(own).collect(),
        }
    }

    /// `true` if some limit counts tokens or money, so that every answer needs a cap.
    pub fn needs_cap(&self) -> bool {
        self.limits(|unit| unit != Unit::Requests)
    }

    /// `true` if some limit counts money, so that a model without a price cannot be used.
    pub fn limits_cost(&self) -> bool {
        self.limits(|unit| unit == Unit::Cost)
    }

    /// `true` if money is counted, by a limit or by an account that only counts.
    pub fn counts_cost(&self) -> bool {
        let mut accounts = self.accounts.iter();
        accounts.any(|account| account.lock().unit() == Unit::Cost)
    }

    /// Accounts that only count limit nothing.
    fn limits(&self, of: impl Fn(Unit) -> bool) -> bool {
        self.accounts.iter().any(|account| {
            let state = account.lock();
            !state.spec.observe && of(state.unit())
        })
    }

    /// Reserves in memory if all limits have room in their leases; all or nothing. The
    /// refusals it knows by itself are those that the store gave a moment ago.
    ///
    /// # Errors
    /// `Refusal`, naming the first limit without room, or that the store does not answer.
    pub async fn reserve(
        &self,
        books: &Books,
        need: &Need,
        now_ms: i64,
    ) -> Result<Reservation, Refusal> {
        let (slot, crowded) = self.enter()?;
        // Each turn either ends or has been given something by the store since the last one;
        // the bound is for a store that gives and others that take without end.
        for _ in 0..MOST_TURNS {
            if !books.may_go_on() {
                return Err(Refusal::Unavailable);
            }
            match self.attempt(books, need, now_ms, slot.clone()) {
                Ok(mut reservation) => {
                    reservation.would_refuse.extend(crowded);
                    return Ok(reservation);
                }
                Err(Attempt::Refused(refusal)) => return Err(refusal),
                Err(Attempt::Ask(short)) => books.ask(short).await?,
            }
        }
        Err(Refusal::Unavailable)
    }

    /// Counts an open request, and tells which limits that only count it is too many for.
    fn enter(&self) -> Result<(OpenSlot, Vec<Shortfall>), Refusal> {
        let mut left = Vec::with_capacity(self.parallel.len());
        let mut crowded = Vec::new();
        for crowd in &self.parallel {
            let limit = crowd.open.limit.load(Ordering::Relaxed);
            let open = crowd.open.open.fetch_add(1, Ordering::AcqRel);
            left.push(Leave(Arc::clone(&crowd.open)));
            if limit > 0 && open >= limit {
                let full = crowd.full(limit, open);
                if !crowd.observe {
                    return Err(Refusal::Short(Box::new(full)));
                }
                crowded.push(full);
            }
        }
        Ok((OpenSlot(left.into()), crowded))
    }

    fn attempt(
        &self,
        books: &Books,
        need: &Need,
        now_ms: i64,
        slot: OpenSlot,
    ) -> Result<Reservation, Attempt> {
        let mut states: Vec<_> = self.accounts.iter().map(|account| account.lock()).collect();
        if !books.is_alone() {
            let unknown = self.unknown(&mut states, now_ms);
            if !unknown.is_empty() {
                return Err(Attempt::Ask(unknown));
            }
        }
        let wanted = need.output_cap.unwrap_or(0);
        let cap = if fits(&mut states, need, wanted, now_ms) {
            wanted
        } else {
            self.make_do(&mut states, books.is_alone(), need, now_ms)?
        };
        let would_refuse = would_refuse(&mut states, need, now_ms);
        let taken = self.take(books, &mut states, need, cap, now_ms);
        drop(states);
        let mut reservation = Reservation::new(books, taken, need, cap, slot, now_ms);
        reservation.would_refuse = would_refuse;
        Ok(reservation)
    }

    /// The whole need does not fit: asks for more, or finds the largest cap that does fit.
    fn make_do(
        &self,
        states: &mut [MutexGuard<'_, State>],
        alone: bool,
        need: &Need,
        now_ms: i64,
    ) -> Result<u64, Attempt> {
        let wanted = need.output_cap.unwrap_or(0);
        if alone {
            for state in states.iter_mut() {
                let amount = need.amount(state.unit(), wanted);
                state.help_itself(amount, now_ms);
            }
        } else {
            let short = self.missing(states, need, wanted, now_ms);
            if !short.is_empty() {
                return Err(Attempt::Ask(short));
            }
        }
        largest(need.floor(), wanted, |cap| fits(states, need, cap, now_ms))
            .ok_or_else(|| Attempt::Refused(refusal(states, alone, need, now_ms)))
    }

    /// The accounts that only count and whose standing must be asked for once.
    fn unknown(
        &self,
        states: &mut [MutexGuard<'_, State>],
        now_ms: i64,
    ) -> Vec<(Arc<Account>, u64)> {
        let mut unknown = Vec::new();
        for (state, account) in states.iter_mut().zip(&self.accounts) {
            if state.is_unknown(now_ms) {
                unknown.push((Arc::clone(account), 0));
            }
        }
        unknown
    }

    /// What is missing of the whole need where the store may have more.
    fn missing(
        &self,
        states: &mut [MutexGuard<'_, State>],
        need: &Need,
        cap: u64,
        now_ms: i64,
    ) -> Vec<(Arc<Account>, u64)> {
        let short = states.iter_mut().zip(&self.accounts);
        short
            .filter_map(|(state, account)| {
                let amount = need.amount(state.unit(), cap);
                let missing = amount.checked_sub(state.headroom(now_ms))?;
                let ask = missing > 0 && !state.exhausted(now_ms);
                ask.then(|| (Arc::clone(account), missing))
            })
            .collect()
    }

    fn take(
        &self,
        books: &Books,
        states: &mut [MutexGuard<'_, State>],
        need: &Need,
        cap: u64,
        now_ms: i64,
    ) -> (Vec<Held>, Vec<LimitNote>) {
        let mut held = Vec::with_capacity(states.len());
        let mut notes = Vec::with_capacity(states.len());
        for (state, account) in states.iter_mut().zip(&self.accounts) {
            let unit = state.unit();
            let amount = need.amount(unit, cap);
            let before = state.standing(now_ms);
            let booked = books.take(account, state, amount, now_ms);
            let after = state.standing(now_ms);
            notes.push(state.note(before, after));
            held.push(Held::new(account, unit, booked, amount));
        }
        (held, notes)
    }

    /// The per-minute limits of this key, from memory alone.
    pub fn rate_views(&self, now_ms: i64) -> Vec<RateView> {
        let minute = |account: &Arc<Account>| {
            let mut state = account.lock();
            if !state.sliding() || state.spec.observe {
                return None;
            }
            let (unit, limit) = (state.unit(), state.spec.limit);
            let (used, reset_ms) = state.rate(now_ms);
            Some(RateView {
                unit,
                limit,
                remaining: limit.saturating_sub(used),
                reset_ms,
            })
        };
        self.accounts.iter().filter_map(minute).collect()
    }
}

const MOST_TURNS: usize = 1_000;

pub(super) enum Attempt {
    Refused(Refusal),
    /// (account, what is missing of the whole need).
    Ask(Vec<(Arc<Account>, u64)>),
}

/// Leaves the count of open requests when the last holder is gone.
#[derive(Clone)]
pub(super) struct OpenSlot(#[allow(dead_code, reason = "held for its drop")] Arc<[Leave]>);

struct Leave(Arc<Parallel>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

fn fits(states: &mut [MutexGuard<'_, State>], need: &Need, cap: u64, now_ms: i64) -> bool {
    states
        .iter_mut()
        .all(|state| need.amount(state.unit(), cap) <= state.headroom(now_ms))
}

/// The limits that only count and that even the smallest answer does not fit.
fn would_refuse(states: &mut [MutexGuard<'_, State>], need: &Need, now_ms: i64) -> Vec<Shortfall> {
    let floor = need.floor();
    let observed = states.iter_mut().filter(|state| state.spec.observe);
    let passed = observed.filter_map(|state| {
        let needed = need.amount(state.unit(), floor);
        let view = state.would_refuse(needed, now_ms)?;
        Some(shortfall(state, view, needed, now_ms))
    });
    passed.collect()
}

/// Names the first limit that even the smallest answer does not fit.
fn refusal(states: &mut [MutexGuard<'_, State>], alone: bool, need: &Need, now_ms: i64) -> Refusal {
    let floor = need.floor();
    for state in states {
        let needed = need.amount(state.unit(), floor);
        if needed <= state.headroom(now_ms) {
            continue;
        }
        return no_room(state, alone, needed, now_ms);
    }
    Refusal::Unavailable
}

/// Alone, we cannot know how a limit stands that is not counted here.
pub(super) fn no_room(state: &mut State, alone: bool, needed: u64, now_ms: i64) -> Refusal {
    if alone && !state.sliding() {
        return Refusal::Unavailable;
    }
    let view = state.view(needed, now_ms);
    Refusal::Short(Box::new(shortfall(state, view, needed, now_ms)))
}

fn shortfall(state: &State, view: View, needed: u64, now_ms: i64) -> Shortfall {
    let spec = &state.spec;
    let wait = view
        .fits_at_ms
        .map(|at| u64::try_from(at - now_ms).unwrap_or(0).max(1));
    Shortfall {
        name: spec.name,
        account: Arc::clone(&spec.account),
        subject: Arc::clone(&spec.subject),
        unit: spec.unit,
        window: spec.window,
        limit: spec.limit,
        used: view.used,
        reserved: view.reserved,
        needed,
        resets_at_ms: view.resets_at_ms,
        retry_after: wait.map(Duration::from_millis),
        zone: spec.calendar.zone.clone(),
    }
}
