//! One account as this process sees it: its lease, what is not written down yet, and what the
//! store last said.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    engine::budget::{
        Lease, LimitNote, LimitSpec, MINUTE_MS, Period, Sliding, Unit, Window, bucket,
    },
    store::{BookEntry, GrantReply, GrantRequest},
};

/// Slices of a busy account grow up to this part of its limit.
const LARGEST_SLICE: u64 = 16;
/// Without a reservation for this long an account's headroom goes back to the store.
const IDLE_MS: i64 = 500;
/// Two questions to the store within this time: slices should be larger.
const BUSY_MS: i64 = 1_000;
/// How long "there is no more" is believed: other processes give back too.
const BELIEVE_MS: i64 = 100;
/// How often an account that only counts asks how it stands: others may use it too.
const LOOK_EVERY_MS: i64 = 1_000;

pub struct Account {
    pub id: Arc<str>,
    state: Mutex<State>,
}

pub struct State {
    pub spec: LimitSpec,
    /// The current period and, while something of them is open, earlier ones.
    slots: Vec<Slot>,
    /// How much to ask for ahead of need.
    ahead: u64,
    pub asked: bool,
    pub dirty: bool,
    last_asked_ms: i64,
    last_used_ms: i64,
    /// When the store said that it had no more.
    exhausted: Option<i64>,
    /// Sliding windows: what still counts, as far as this process knows.
    counted: Sliding,
    /// Sliding windows: something was taken that the store did not give.
    helped: bool,
}

struct Slot {
    period: Period,
    lease: Lease,
    /// Changes of what was spent that the store does not know yet.
    unwritten: BTreeMap<i64, i64>,
    changed: bool,
    /// What stands in the store as spent, as far as was told and written since.
    told: Option<u64>,
}

/// What all have used of an account, and what this process has reserved beside that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    pub used: u64,
    pub reserved: u64,
}

/// How an account stands, for a refusal or a header.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub used: u64,
    pub reserved: u64,
    pub resets_at_ms: Option<i64>,
    /// Sliding windows: when `needed` would fit.
    pub fits_at_ms: Option<i64>,
}

impl Account {
    pub fn new(spec: LimitSpec) -> Self {
        Self {
            id: Arc::clone(&spec.account),
            state: Mutex::new(State {
                spec,
                slots: Vec::new(),
                ahead: 0,
                asked: false,
                dirty: false,
                last_asked_ms: i64::MIN,
                last_used_ms: i64::MIN,
                exhausted: None,
                counted: Sliding::default(),
                helped: false,
            }),
        }
    }

    /// Held for nanoseconds: no call that takes it does I/O or waits.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub fn sliding(&self) -> bool {
        self.spec.window == Window::Minute
    }

    pub fn unit(&self) -> Unit {
        self.spec.unit
    }

    /// A reload may move the limit; what was used stays.
    pub fn update(&mut self, spec: LimitSpec) {
        if spec.observe {
            self.ahead = 0;
        }
        self.spec = spec;
        self.exhausted = None;
    }

    /// The slot of the period that holds `now_ms`.
    fn slot(&mut self, now_ms: i64) -> &mut Slot {
        let current = |slot: &Slot| {
            slot.period.start_ms <= now_ms && slot.period.end_ms.is_none_or(|end| now_ms < end)
        };
        let at = self.slots.iter().position(current).unwrap_or_else(|| {
            let period = self.spec.window.period(now_ms, &self.spec.calendar);
            self.slots.push(Slot {
                period,
                lease: Lease::default(),
                unwritten: BTreeMap::new(),
                changed: false,
                told: None,
            });
            self.exhausted = None;
            self.slots.len() - 1
        });
        #[allow(clippy::indexing_slicing, reason = "found or pushed just above")]
        &mut self.slots[at]
    }

    pub fn headroom(&mut self, now_ms: i64) -> u64 {
        if self.spec.observe {
            return u64::MAX;
        }
        self.slot(now_ms).lease.headroom()
    }

    /// An account that only counts, of which nobody has told yet how it stands.
    pub fn is_unknown(&mut self, now_ms: i64) -> bool {
        self.spec.observe && self.slot(now_ms).told.is_none()
    }

    /// An account that only counts: whether it would have refused `needed`, and how it stands.
    pub fn would_refuse(&mut self, needed: u64, now_ms: i64) -> Option<View> {
        if !self.spec.observe {
            return None;
        }
        let view = self.view(needed, now_ms);
        let wanted = view
            .used
            .saturating_add(view.reserved)
            .saturating_add(needed);
        (wanted > self.spec.limit).then_some(view)
    }

    /// Takes `amount`, which must fit. Returns the period (fixed) or bucket (sliding) that a
    /// settlement must name.
    pub fn reserve(&mut self, amount: u64, now_ms: i64) -> i64 {
        self.last_used_ms = now_ms;
        let (sliding, width) = (self.sliding(), self.spec.bucket_ms());
        let observe = self.spec.observe;
        let slot = self.slot(now_ms);
        slot.changed = true;
        if observe {
            slot.lease.overdraw(amount);
        } else {
            let fits = slot.lease.reserve(amount);
            debug_assert!(fits, "callers check the headroom first");
        }
        if !sliding {
            return slot.period.start_ms;
        }
        // An admission counts from now on, whatever becomes of it.
        let bucket = bucket(now_ms, width);
        slot.lease.settle(amount, amount);
        *slot.unwritten.entry(bucket).or_default() += signed(amount);
        self.counted.add(bucket, signed(amount));
        bucket
    }

    /// Replaces a reservation of `booked` by what was used.
    pub fn settle(&mut self, booked: i64, reserved: u64, used: u64, now_ms: i64) {
        let sliding = self.sliding();
        let wanted = if sliding { 0 } else { booked };
        let Some(slot) = self
            .slots
            .iter_mut()
            .find(|slot| slot.period.start_ms == wanted)
        else {
            return;
        };
        slot.changed = true;
        self.exhausted = None;
        if sliding {
            // Corrects the entry while it still counts; afterwards there is nothing to correct.
            if booked > now_ms - MINUTE_MS {
                let change = signed(used) - signed(reserved);
                *slot.unwritten.entry(booked).or_default() += change;
                self.counted.add(booked, change);
            }
            return;
        }
        slot.lease.settle(reserved, used);
        *slot.unwritten.entry(booked).or_default() += signed(used);
    }

    /// Whether more should be asked for before it is needed; if so, the question is noted.
    pub fn wants_ahead(&mut self, now_ms: i64) -> bool {
        let low = if self.spec.observe {
            now_ms.saturating_sub(self.last_asked_ms) >= LOOK_EVERY_MS
        } else {
            self.headroom(now_ms) < self.ahead / 2
        };
        let ask = low && !self.asked && !self.exhausted(now_ms);
        self.asked |= ask;
        ask
    }

    /// The question to put to the store: for `needed` now, and for what may come.
    pub fn question(&mut self, needed: u64, now_ms: i64) -> GrantRequest {
        let most = (self.spec.limit / LARGEST_SLICE).max(1);
        let busy = now_ms.saturating_sub(self.last_asked_ms) < BUSY_MS;
        self.ahead = if busy {
            self.ahead.saturating_mul(2).max(needed)
        } else {
            needed
        }
        .min(most);
        self.last_asked_ms = now_ms;
        if needed > 0 {
            // Whoever waits for this slice must find it: an account that is asked for is no idle one.
            self.last_used_ms = now_ms;
        }
        let period = self.slot(now_ms).period.start_ms;
        GrantRequest {
            account: Arc::clone(&self.spec.account),
            period,
            sliding: self.sliding(),
            rows: self.sliding() && (self.counted.is_empty() || self.helped || self.spec.observe),
            limit: self.spec.limit,
            needed,
            ahead: self.ahead,
        }
    }

    /// Takes in what the store gave to `request`.
    pub fn answer(&mut self, request: &GrantRequest, reply: GrantReply, now_ms: i64) {
        self.asked = false;
        let short = reply.granted < request.needed;
        if reply.granted == 0 {
            // Near the limit nothing is given ahead of need; asking again would not help.
            self.ahead = 0;
        }
        if let Some(slot) = self
            .slots
            .iter_mut()
            .find(|slot| slot.period.start_ms == request.period)
        {
            slot.lease.granted += reply.granted;
            slot.told = Some(reply.spent);
            slot.changed = true;
            if request.rows || (request.sliding && short) {
                self.counted = Sliding::new(rows(&reply.live, &slot.unwritten));
            }
        }
        if self.helped {
            self.give_up_excess(now_ms);
            self.helped = !request.rows;
        }
        if short {
            self.exhausted = Some(now_ms);
        } else if request.needed > 0 {
            self.exhausted = None;
        }
    }

    /// While the store does not answer, a limit by the minute goes on by this process's own
    /// count: takes what is missing of `needed`, as far as the limit leaves it.
    pub fn help_itself(&mut self, needed: u64, now_ms: i64) {
        if !self.sliding() || self.spec.observe {
            return;
        }
        let (used, _) = self.rate(now_ms);
        let headroom = self.headroom(now_ms);
        let room = self.spec.limit.saturating_sub(used + headroom);
        let more = needed.saturating_sub(headroom).min(room);
        if more > 0 {
            let slot = self.slot(now_ms);
            slot.lease.granted += more;
            slot.changed = true;
            self.helped = true;
        }
    }

    /// The store may have given what was already taken without it.
    fn give_up_excess(&mut self, now_ms: i64) {
        let (used, _) = self.rate(now_ms);
        let headroom = self.headroom(now_ms);
        let room = self.spec.limit.saturating_sub(used);
        let slot = self.slot(now_ms);
        slot.lease.granted -= headroom.saturating_sub(room);
        slot.changed = true;
    }

    /// `true` while the store's "there is no more" is believed.
    pub fn exhausted(&self, now_ms: i64) -> bool {
        self.exhausted.is_some_and(|at| now_ms - at < BELIEVE_MS)
    }

    /// How the account stands as far as the store and we know.
    pub fn view(&mut self, needed: u64, now_ms: i64) -> View {
        if self.sliding() {
            let fits_at_ms = self.counted.fits_at(self.spec.limit, needed, now_ms);
            return View {
                used: self.counted.used(now_ms),
                reserved: 0,
                resets_at_ms: fits_at_ms,
                fits_at_ms,
            };
        }
        let slot = self.slot(now_ms);
        View {
            used: slot.used(),
            reserved: slot.lease.reserved,
            resets_at_ms: slot.period.end_ms,
            fits_at_ms: None,
        }
    }

    /// How it stands in the period that holds `now_ms`.
    pub fn standing(&mut self, now_ms: i64) -> Standing {
        if self.sliding() {
            return self.sliding_standing(now_ms);
        }
        self.slot(now_ms).standing()
    }

    /// The same in the period in which something was `booked`; all zero once that is forgotten.
    pub fn standing_of(&mut self, booked: i64, now_ms: i64) -> Standing {
        if self.sliding() {
            return self.sliding_standing(now_ms);
        }
        let of = |slot: &&Slot| slot.period.start_ms == booked;
        let slot = self.slots.iter().find(of);
        slot.map_or_else(Standing::default, Slot::standing)
    }

    /// What was admitted counts as used.
    fn sliding_standing(&mut self, now_ms: i64) -> Standing {
        Standing {
            used: self.rate(now_ms).0,
            reserved: 0,
        }
    }

    /// What the ledger is told of a change.
    pub fn note(&self, before: Standing, after: Standing) -> LimitNote {
        LimitNote {
            name: self.spec.name,
            account: Arc::clone(&self.spec.account),
            unit: self.unit().name(),
            limit: self.spec.limit,
            used: before.used,
            reserved: before.reserved,
            used_after: after.used,
            reserved_after: after.reserved,
            needed: None,
        }
    }

    /// What a sliding window counts now, and when it will count nothing any more.
    pub fn rate(&mut self, now_ms: i64) -> (u64, i64) {
        let used = self.counted.used(now_ms);
        let empty_at = self.counted.empty_at().unwrap_or(now_ms);
        (used, (empty_at - now_ms).max(0))
    }

    /// Counts as long unused, so that everything idle goes back with the next commit.
    pub fn rest_now(&mut self) {
        self.asked = false;
        self.last_used_ms = i64::MIN;
    }

    /// Everything that the store should know, taken out of the slots.
    pub fn take_changes(&mut self, now_ms: i64, entries: &mut Vec<BookEntry>) {
        self.dirty = false;
        let idle = now_ms.saturating_sub(self.last_used_ms) >= IDLE_MS;
        let account = Arc::clone(&self.spec.account);
        for slot in &mut self.slots {
            let over = slot.period.end_ms.is_some_and(|end| end <= now_ms);
            if !self.asked && (idle || over) && slot.lease.give_back() > 0 {
                slot.changed = true;
                self.ahead = 0;
                self.exhausted = None;
            }
            if !std::mem::take(&mut slot.changed) {
                continue;
            }
            slot.lease.take_settled();
            let spent: Vec<_> = std::mem::take(&mut slot.unwritten).into_iter().collect();
            let written: i64 = spent.iter().map(|(_, amount)| amount).sum();
            slot.told = slot.told.map(|told| told.saturating_add_signed(written));
            entries.push(BookEntry {
                account: Arc::clone(&account),
                spent,
                period: slot.period.start_ms,
                lease: slot.lease.granted,
                reserved: slot.lease.reserved,
            });
        }
        self.slots.retain(|slot| {
            slot.lease.granted > 0 || slot.period.end_ms.is_none_or(|end| end > now_ms)
        });
    }

    /// `true` once nothing is left that a later tick would have to give back.
    pub fn at_rest(&self) -> bool {
        !self.asked
            && self
                .slots
                .iter()
                .all(|slot| slot.lease.granted == 0 && !slot.changed)
    }
}

impl Slot {
    fn used(&self) -> u64 {
        let unwritten: i64 = self.unwritten.values().sum();
        self.told.unwrap_or(0).saturating_add_signed(unwritten)
    }

    fn standing(&self) -> Standing {
        Standing {
            used: self.used(),
            reserved: self.lease.reserved,
        }
    }
}

/// What the store counts, and what it does not know yet.
fn rows(live: &[(i64, u64)], unwritten: &BTreeMap<i64, i64>) -> BTreeMap<i64, i64> {
    let mut all: BTreeMap<i64, i64> = live
        .iter()
        .map(|(at, amount)| (*at, signed(*amount)))
        .collect();
    for (at, change) in unwritten {
        *all.entry(*at).or_default() += change;
    }
    all
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
