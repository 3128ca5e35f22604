//! A process's slice of an account, and how the store cuts one.

/// What one process holds of one account in one period. All amounts in the account's unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Written down by the store as taken.
    pub granted: u64,
    /// Held by requests that are not settled.
    pub reserved: u64,
    /// Used, and not yet written to the store as spent.
    pub settled: u64,
}

impl Lease {
    /// What may still be reserved without asking the store.
    pub fn headroom(&self) -> u64 {
        self.granted
            .saturating_sub(self.reserved.saturating_add(self.settled))
    }

    /// Takes `amount` out of the headroom; `false` and no change if it does not fit.
    #[must_use]
    pub fn reserve(&mut self, amount: u64) -> bool {
        let fits = amount <= self.headroom();
        if fits {
            self.reserved += amount;
        }
        fits
    }

    /// Takes `amount` whether it was granted or not: of a limit that only counts.
    pub fn overdraw(&mut self, amount: u64) {
        self.reserved = self.reserved.saturating_add(amount);
        let held = self.reserved.saturating_add(self.settled);
        self.granted = self.granted.max(held);
    }

    /// Replaces a reservation by what was really used, which may be more: a provider that
    /// ignored its cap is booked all the same.
    pub fn settle(&mut self, reserved: u64, used: u64) {
        self.reserved = self.reserved.saturating_sub(reserved);
        self.settled = self.settled.saturating_add(used);
    }

    /// Hands over what was settled, to be written as spent, and shrinks the lease by it.
    /// INVARIANT: the lease goes on covering what is reserved, after an overdraft too.
    pub fn take_settled(&mut self) -> u64 {
        let settled = std::mem::take(&mut self.settled);
        self.granted = self.granted.saturating_sub(settled).max(self.reserved);
        settled
    }

    /// Gives up all headroom and returns how much that was.
    pub fn give_back(&mut self) -> u64 {
        let idle = self.headroom();
        self.granted -= idle;
        idle
    }
}

/// The largest in `floor..=wanted` for which `fits` holds, which is monotone.
pub fn largest(floor: u64, wanted: u64, mut fits: impl FnMut(u64) -> bool) -> Option<u64> {
    if fits(wanted) {
        return Some(wanted);
    }
    if !fits(floor) {
        return None;
    }
    let (mut good, mut bad) = (floor, wanted);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) {
            good = middle
        } else {
            bad = middle
        }
    }
    Some(good)
}

/// How much more a process may lease: what its waiting requests need if it is there, and of
/// what is left beyond that up to `ahead`, but never more than a quarter, so that slices shrink
/// as the limit nears.
pub fn grant(limit: u64, spent: u64, leased: u64, needed: u64, ahead: u64) -> u64 {
    let left = limit.saturating_sub(spent.saturating_add(leased));
    let needed = needed.min(left);
    needed + ahead.min((left - needed) / 4)
}
