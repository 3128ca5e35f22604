use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;

use super::*;

/// Two processes on one account, and what was really used upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct World {
    spent: u64,
    /// What the store has written down for each process.
    stored: [u64; 2],
    held: [Lease; 2],
    used_upstream: u64,
}

const LIMIT: u64 = 5;

/// All states that one more step of either process can lead to.
fn steps(world: &World) -> Vec<World> {
    let mut next = Vec::new();
    for at in 0..2 {
        let mut change = |f: &dyn Fn(&mut World) -> bool| {
            let mut changed = world.clone();
            if f(&mut changed) {
                next.push(changed);
            }
        };
        for (needed, ahead) in [(1, 0), (2, 0), (1, 4)] {
            change(&|w| {
                let leased = w.stored[0] + w.stored[1];
                let amount = grant(LIMIT, w.spent, leased, needed, ahead);
                w.stored[at] += amount;
                w.held[at].granted += amount;
                amount > 0
            });
        }
        for amount in [1, 2] {
            change(&|w| w.held[at].reserve(amount));
            for used in 0..=amount {
                change(&|w| {
                    let fits = w.held[at].reserved >= amount;
                    if fits {
                        w.held[at].settle(amount, used);
                        w.used_upstream += used;
                    }
                    fits
                });
            }
        }
        change(&|w| {
            w.spent += w.held[at].take_settled();
            w.stored[at] = w.held[at].granted;
            true
        });
        change(&|w| {
            let idle = w.held[at].give_back();
            w.stored[at] -= idle;
            idle > 0
        });
        // A crash: what was in flight may have been served in full; the lease becomes spent.
        change(&|w| {
            w.used_upstream += w.held[at].reserved;
            w.spent += w.stored[at];
            w.stored[at] = 0;
            w.held[at] = Lease::default();
            true
        });
    }
    next
}

#[test]
fn no_interleaving_of_two_processes_and_crashes_passes_the_limit() {
    let mut seen = HashSet::from([World::default()]);
    let mut open = VecDeque::from([World::default()]);
    while let Some(world) = open.pop_front() {
        let reserved = world.held[0].reserved + world.held[1].reserved;
        let taken = world.spent + world.stored[0] + world.stored[1];
        assert!(
            world.used_upstream + reserved <= LIMIT,
            "passed the limit: {world:?}"
        );
        assert!(taken <= LIMIT, "the store gave out too much: {world:?}");
        assert!(
            world.used_upstream + reserved <= taken,
            "lost what was used: {world:?}"
        );
        for next in steps(&world) {
            if seen.insert(next.clone()) {
                open.push_back(next);
            }
        }
    }
    assert!(
        seen.len() > 1_000,
        "the search was too small to mean anything: {}",
        seen.len()
    );
}

#[test]
fn a_settlement_above_its_reservation_is_booked_in_full_and_still_covers_the_others() {
    let mut lease = Lease {
        granted: 10,
        ..Lease::default()
    };
    assert!(lease.reserve(4) && lease.reserve(6));
    lease.settle(4, 9);
    assert_eq!(lease.headroom(), 0);
    assert_eq!(lease.take_settled(), 9);
    assert_eq!(
        lease,
        Lease {
            granted: 6,
            reserved: 6,
            settled: 0
        }
    );
}

#[test]
fn slices_shrink_as_the_limit_nears() {
    assert_eq!(grant(1000, 0, 0, 10, 900), 10 + 247);
    assert_eq!(grant(1000, 900, 80, 10, 900), 10 + 2);
    assert_eq!(grant(1000, 900, 95, 10, 900), 5);
    assert_eq!(grant(1000, 1200, 0, 1, 1), 0);
}

proptest! {
    #[test]
    fn reserve_settle_and_release_neither_mint_nor_lose(
        granted in 0_u64..1000, moves in prop::collection::vec((0_u64..200, 0_u64..200), 0..40),
    ) {
        let mut lease = Lease { granted, ..Lease::default() };
        let (mut spent, mut open) = (0, Vec::new());
        for (amount, used) in moves {
            if lease.reserve(amount) {
                open.push((amount, used.min(amount)));
            } else if let Some((amount, used)) = open.pop() {
                lease.settle(amount, used);
                spent += lease.take_settled();
            }
            prop_assert_eq!(lease.headroom() + lease.reserved + lease.settled + spent, granted);
        }
    }
}

fn ms(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

fn amsterdam(reset: &str) -> Calendar {
    Calendar {
        zone: jiff::tz::TimeZone::get("Europe/Amsterdam").unwrap(),
        reset_at: reset.parse().unwrap(),
    }
}

#[test]
fn a_budget_day_is_the_calendar_day_of_its_zone_also_with_23_and_25_hours() {
    for (now, start, hours) in [
        ("2026-11-30T22:30:00Z", "2026-11-29T23:00:00Z", 24),
        ("2026-11-30T23:00:00Z", "2026-11-30T23:00:00Z", 24),
        ("2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", 23),
        ("2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", 25),
    ] {
        let period = Window::Day.period(ms(now), &amsterdam("00:00"));
        assert_eq!(period.start_ms, ms(start), "{now}");
        assert_eq!(
            period.end_ms.unwrap() - period.start_ms,
            hours * 3_600_000,
            "{now}"
        );
    }
}

#[test]
fn a_reset_hour_moves_the_day_and_months_follow_it() {
    let calendar = amsterdam("06:00");
    let period = Window::Day.period(ms("2026-11-30T04:59:59Z"), &calendar);
    assert_eq!(period.end_ms, Some(ms("2026-11-30T05:00:00Z")));
    let month = Window::Month.period(ms("2026-12-01T04:00:00Z"), &calendar);
    assert_eq!(month.start_ms, ms("2026-11-01T05:00:00Z"));
    assert_eq!(month.end_ms, Some(ms("2026-12-01T05:00:00Z")));
}

#[test]
fn a_bucket_never_counts_as_earlier_than_its_admission() {
    for (now, width) in [(0, 1), (1, 10), (99, 10), (100, 10), (12_345, 100)] {
        let bucket = bucket(now, width);
        assert!(bucket >= now && bucket - now < width);
        assert!(bucket > live_after(now + MINUTE_MS - 1), "counts for 60 s");
        assert!(
            bucket <= live_after(now + MINUTE_MS + width),
            "and not much longer"
        );
    }
}
