//! Who is calling: the key's digest against the configuration. Nothing of the request but its
//! credential and its source address counts.

use std::{net::IpAddr, num::NonZeroU32, time::Duration};

use dashmap::DashMap;
use governor::{Quota, RateLimiter, clock::DefaultClock, state::keyed::DashMapStateStore};
use http::{HeaderMap, header};
use sha2::{Digest, Sha256};

use super::rejection::{KeyFault, Rejection};
use crate::{
    config::Config,
    engine::{policy::Key, record::Summary},
};

/// A failed key costs one; so many may fail at once from one address, then one a second.
const FAILURE_BURST: NonZeroU32 = NonZeroU32::new(20).unwrap();
const FAILURES_PER_SECOND: NonZeroU32 = NonZeroU32::new(1).unwrap();
/// Azure clients send the key in this header.
const API_KEY: &str = "api-key";

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
    fn count(&self, address: IpAddr) -> Result<(), Duration> {
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

/// The key that this request was made with.
///
/// # Errors
/// `InvalidKey`, or `KeyGuessing` when too many unknown keys came from `address`.
pub fn authenticate<'a>(
    config: &'a Config,
    failures: &Failures,
    headers: &HeaderMap,
    address: IpAddr,
    now_ms: i64,
) -> Result<&'a std::sync::Arc<Key>, Rejection> {
    let found = credential(headers)
        .ok_or(KeyFault::Missing)
        .and_then(|text| look_up(config, text, address, now_ms));
    found.map_err(|fault| match failures.count(address) {
        Ok(()) => Rejection::InvalidKey(fault),
        Err(retry_after) => Rejection::KeyGuessing { retry_after },
    })
}

fn credential(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        return scheme
            .eq_ignore_ascii_case(b"bearer ")
            .then(|| key.trim_ascii());
    }
    headers
        .get(API_KEY)
        .map(|value| value.as_bytes().trim_ascii())
}

/// Keys are compared as SHA-256 digests only: how long that takes says nothing about how much
/// of a guessed key was right.
fn look_up<'a>(
    config: &'a Config,
    text: &[u8],
    address: IpAddr,
    now_ms: i64,
) -> Result<&'a std::sync::Arc<Key>, KeyFault> {
    let digest: [u8; 32] = Sha256::digest(text).into();
    let key = config.keys.get(&digest).ok_or(KeyFault::Unknown)?;
    if key.disabled {
        return Err(KeyFault::Disabled);
    }
    if key
        .expires
        .is_some_and(|expires| expires.as_millisecond() <= now_ms)
    {
        return Err(KeyFault::Expired);
    }
    let address = address.to_canonical();
    let near = key.allow_from.is_empty() || key.allow_from.iter().any(|net| net.contains(&address));
    if near {
        Ok(key)
    } else {
        Err(KeyFault::Network)
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
