//! Who fails to name a secret, by address: client keys at the data plane, operators' tokens at
//! the control plane. Each has a `Failures` of its own.

use std::{net::IpAddr, num::NonZeroU32, time::Duration};

use dashmap::DashMap;
use governor::{Quota, RateLimiter, clock::DefaultClock, state::keyed::DashMapStateStore};

use crate::engine::record::Summary;

/// A failed key costs one; so many may fail at once from one address, then one a second.
const FAILURE_BURST: NonZeroU32 = NonZeroU32::new(20).unwrap();
const FAILURES_PER_SECOND: NonZeroU32 = NonZeroU32::new(1).unwrap();

/// So many addresses are told apart until the next summary; the others are counted together.
const MOST_SOURCES: usize = 10_000;

/// Slows down who tries keys. Requests with a good key never touch it, so that a bad
/// neighbour behind the same address cannot lock anybody out.
pub struct Failures {
    by_address: RateLimiter<IpAddr, DashMapStateStore<IpAddr>, DefaultClock>,
    clock: DefaultClock,
    /// Refusals that were not recorded one by one, since the last summary.
    summed: DashMap<Option<IpAddr>, u64>,
}

impl Default for Failures {
    fn default() -> Self {
        let quota = Quota::per_second(FAILURES_PER_SECOND).allow_burst(FAILURE_BURST);
        Self {
            by_address: RateLimiter::dashmap(quota),
            clock: DefaultClock::default(),
            summed: DashMap::new(),
        }
    }
}

/// Who is told apart: an IPv4 address, or the network of an IPv6 host, which has more addresses
/// than anybody could count.
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = v6.to_bits() & (u128::MAX << 64);
            IpAddr::V6(std::net::Ipv6Addr::from_bits(network))
        }
        v4 => v4,
    }
}

impl Failures {
    /// Counts one failure. `Err` says how long this address should wait.
    pub fn count(&self, address: IpAddr) -> Result<(), Duration> {
        use governor::clock::Clock as _;
        self.by_address
            .check_key(&source(address))
            .map_err(|until| until.wait_time_from(self.clock.now()))
    }

    /// Counts a refusal instead of recording it: a record for each would let anybody fill the
    /// ledger.
    pub fn sum(&self, address: IpAddr) {
        let known = Some(source(address));
        let room = self.summed.len() < MOST_SOURCES || self.summed.contains_key(&known);
        *self.summed.entry(known.filter(|_| room)).or_default() += 1;
    }

    /// What was counted since this was asked last, one summary for each source.
    pub fn summaries(&self) -> Vec<Summary> {
        let sources: Vec<_> = self.summed.iter().map(|entry| *entry.key()).collect();
        sources
            .into_iter()
            .filter_map(|source| self.summed.remove(&source))
            .map(|(source, count)| Summary {
                code: "invalid_api_key",
                source,
                count,
            })
            .collect()
    }

    /// Forgets addresses that have been quiet long enough, so that memory stays bounded.
    pub fn forget_quiet(&self) {
        self.by_address.retain_recent();
        self.by_address.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_summed_by_source_and_the_sources_are_bounded() {
        let failures = Failures::default();
        let address = |number: usize| IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
        for number in 0..MOST_SOURCES + 50 {
            failures.sum(address(number));
        }
        failures.sum(address(7));
        let summaries = failures.summaries();
        assert_eq!(summaries.len(), MOST_SOURCES + 1);
        let of = |source| {
            let found = summaries.iter().find(|summary| summary.source == source);
            found.unwrap().count
        };
        assert_eq!(
            (of(Some(address(7))), of(Some(address(8))), of(None)),
            (2, 1, 50)
        );
        assert_eq!(failures.summaries(), []);
    }

    #[test]
    fn who_changes_the_address_within_a_network_is_one_source() {
        let failures = Failures::default();
        let address = |host: u64| format!("2001:db8:1:2::{host:x}").parse().unwrap();
        let refused = (0..40).filter(|host| failures.count(address(*host)).is_err());
        assert!(refused.count() >= 15);
        assert!(failures.count("2001:db8:1:3::1".parse().unwrap()).is_ok());
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(source(mapped), IpAddr::from([10, 0, 0, 1]));
    }
}
