//! Accounts as they would stand: the arithmetic of leases, with one lease over a whole limit.

use std::collections::{BTreeMap, HashMap};

use crate::engine::budget::{Lease, LimitSpec, MINUTE_MS, Period, Sliding, Unit, Window, bucket};

/// What a key used in some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    pub requests: u64,
    pub tokens: u64,
    /// Nano-dollars.
    pub cost: u64,
}

impl Used {
    pub fn of(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Requests => self.requests,
            Unit::Tokens => self.tokens,
            Unit::Cost => self.cost,
        }
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            tokens: self.tokens.saturating_add(other.tokens),
            cost: self.cost.saturating_add(other.cost),
        }
    }
}

#[derive(Debug)]
pub(super) struct Account {
    pub spec: LimitSpec,
    period: Period,
    lease: Lease,
    minute: Sliding,
}

/// What a request holds of an account.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// The period or bucket.
    booked: i64,
    amount: u64,
}

impl Part {
    pub fn amount(self) -> u64 {
        self.amount
    }
}

impl Account {
    /// As it stands at `at_ms`, when `used` was used of its period.
    pub fn new(spec: LimitSpec, used: u64, at_ms: i64) -> Self {
        Self {
            period: spec.window.period(at_ms, &spec.calendar),
            lease: Lease {
                granted: spec.limit,
                settled: used,
                ..Lease::default()
            },
            minute: Sliding::default(),
            spec,
        }
    }

    pub fn left(&mut self, now_ms: i64) -> u64 {
        if self.is_sliding() {
            return self.spec.limit.saturating_sub(self.minute.used(now_ms));
        }
        self.turn(now_ms);
        self.lease.headroom()
    }

    /// Takes `amount`, which fits.
    pub fn hold(&mut self, amount: u64, now_ms: i64) -> Part {
        let booked = if self.is_sliding() {
            let bucket = bucket(now_ms, self.spec.bucket_ms());
            self.minute.add(bucket, signed(amount));
            bucket
        } else {
            self.turn(now_ms);
            self.lease.reserved += amount;
            self.period.start_ms
        };
        Part { booked, amount }
    }

    /// Replaces what was held by what was used. A period that is over keeps what it had.
    pub fn settle(&mut self, part: Part, used: u64, now_ms: i64) {
        if self.is_sliding() {
            if part.booked > now_ms - MINUTE_MS {
                self.minute
                    .add(part.booked, signed(used) - signed(part.amount));
            }
        } else if part.booked == self.period.start_ms {
            self.lease.settle(part.amount, used);
        }
    }

    /// Counts what nobody held.
    pub fn book(&mut self, used: u64, now_ms: i64) {
        let part = self.hold(0, now_ms);
        self.settle(part, used, now_ms);
    }

    fn is_sliding(&self) -> bool {
        self.spec.window == Window::Minute
    }

    /// Records may come a moment out of their order: a period never goes back.
    fn turn(&mut self, now_ms: i64) {
        if self.period.end_ms.is_some_and(|end| now_ms >= end) {
            self.period = self.spec.window.period(now_ms, &self.spec.calendar);
            self.lease = Lease {
                granted: self.spec.limit,
                ..Lease::default()
            };
        }
    }
}

/// The accounts of keys, tenants and all, each once.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    all: Vec<Account>,
    places: HashMap<Box<str>, usize>,
    /// What each key had used, by the start of the period.
    carried: BTreeMap<i64, HashMap<Box<str>, Used>>,
}

impl Accounts {
    pub fn carry(&mut self, start_ms: i64, key: &str, used: Used) {
        let keys = self.carried.entry(start_ms).or_default();
        let known = keys.entry(key.into()).or_default();
        *known = known.plus(used);
    }

    /// Places of the accounts with these limits; `counts` tells the keys whose use is in each.
    pub fn places(
        &mut self,
        specs: Vec<LimitSpec>,
        from_ms: i64,
        counts: impl Fn(&LimitSpec, &str) -> bool,
    ) -> Vec<usize> {
        let mut places = Vec::with_capacity(specs.len());
        for spec in specs {
            let place = match self.places.get(&*spec.account) {
                Some(place) => *place,
                None => {
                    let name: Box<str> = (&*spec.account).into();
                    let used = self.used_before(&spec, from_ms, &counts);
                    self.all.push(Account::new(spec, used, from_ms));
                    self.places.insert(name, self.all.len() - 1);
                    self.all.len() - 1
                }
            };
            places.push(place);
        }
        places
    }

    pub fn unit(&self, place: usize) -> Option<Unit> {
        self.all.get(place).map(|account| account.spec.unit)
    }

    pub fn at(&mut self, place: usize) -> Option<&mut Account> {
        self.all.get_mut(place)
    }

    fn used_before(
        &self,
        spec: &LimitSpec,
        from_ms: i64,
        counts: impl Fn(&LimitSpec, &str) -> bool,
    ) -> u64 {
        let start_ms = spec.window.period(from_ms, &spec.calendar).start_ms;
        let keys = self.carried.get(&start_ms).into_iter().flatten();
        keys.filter(|(key, _)| spec.window != Window::Minute && counts(spec, key))
            .map(|(_, used)| used.of(spec.unit))
            .fold(0, u64::saturating_add)
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
