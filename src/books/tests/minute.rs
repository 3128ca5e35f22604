//! Limits by the minute, whatever the arrivals.

use std::num::NonZeroU64;

use super::*;
use crate::engine::budget::MINUTE_MS;

const REQUESTS: u64 = 6;
const TOKENS: u64 = 400;
/// "There is no more" is believed for 100 ms, and tokens are counted in buckets of 10 ms.
const STALE_MS: i64 = 110;

#[derive(Debug, Clone)]
struct Arrival {
    gap_ms: i64,
    input: u64,
    cap: u64,
    /// Of the reservation, in percent; `None`: it is still open at the end.
    used: Option<u64>,
}

/// Bursts, trickles, and gaps about as long as the window.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let gap = prop_oneof![
        3 => Just(0_i64),
        3 => 1_i64..50,
        3 => 50_i64..3_000,
        2 => 3_000_i64..25_000,
        1 => 59_990_i64..60_010,
    ];
    let one = (gap, 1_u64..60, 1_u64..120, prop::option::of(0_u64..=100));
    let arrival = one.prop_map(|(gap_ms, input, cap, used)| Arrival {
        gap_ms,
        input,
        cap,
        used,
    });
    prop::collection::vec(arrival, 1..60)
}

/// What was admitted when, and what of it counts.
#[derive(Default)]
struct Admitted(Vec<(i64, u64)>);

impl Admitted {
    fn since(&self, from_ms: i64) -> (u64, u64) {
        let live = self.0.iter().filter(|(at, _)| *at > from_ms);
        live.fold((0, 0), |(requests, tokens), (_, amount)| {
            (requests + 1, tokens + amount)
        })
    }
}

fn limits() -> Vec<LimitSpec> {
    let rate = RateLimits {
        requests_per_minute: NonZeroU64::new(REQUESTS),
        tokens_per_minute: NonZeroU64::new(TOKENS),
        ..RateLimits::default()
    };
    LimitSpec::of_key("k", &rate, &Budget::none())
}

async fn play(start_ms: i64, arrivals: &[Arrival]) {
    let place = Place::new();
    place.clock.set(NOON_MS + start_ms);
    let books = place.books().await;
    let purse = books.purse(&"k".into(), &limits(), AtOnce::default());
    let mut admitted = Admitted::default();
    let mut open = Vec::new();
    for arrival in arrivals {
        place.clock.advance(arrival.gap_ms);
        let now = place.clock.now_ms();
        let tokens = arrival.input + arrival.cap;
        let (requests_then, tokens_then) = admitted.since(now - MINUTE_MS - STALE_MS);
        let must = requests_then < REQUESTS && tokens_then + tokens <= TOKENS;
        match purse
            .reserve(&books, &need(arrival.input, arrival.cap), now)
            .await
        {
            Ok(reservation) => {
                admitted.0.push((now, tokens));
                if let Some(percent) = arrival.used {
                    let used = tokens * percent / 100;
                    reservation.settle(
                        Actual {
                            tokens: used,
                            cost: 0,
                        },
                        now,
                    );
                    admitted.0.last_mut().unwrap().1 = used;
                } else {
                    open.push(reservation);
                }
            }
            Err(refusal) => assert!(!must, "refused what fits: {arrival:?}, {refusal:?}"),
        }
        let (requests, tokens) = admitted.since(now - MINUTE_MS);
        assert!(requests <= REQUESTS, "{requests} requests up to {now}");
        assert!(tokens <= TOKENS, "{tokens} tokens up to {now}");
    }
    books.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_sixty_seconds_admit_more_than_the_limits_and_what_fits_is_admitted(
        start_ms in 0_i64..60_000, arrivals in arrivals(),
    ) {
        runtime().block_on(play(start_ms, &arrivals));
    }
}

/// The sixty seconds are counted over a restart too.
#[tokio::test]
async fn a_restart_within_the_minute_admits_no_more() {
    let place = Place::new();
    let mut admitted = 0;
    for _ in 0..4 {
        let books = place.books().await;
        let purse = books.purse(&"k".into(), &limits(), AtOnce::default());
        while let Ok(held) = purse
            .reserve(&books, &need(1, 1), place.clock.now_ms())
            .await
        {
            held.settle(Actual::default(), place.clock.now_ms());
            admitted += 1;
        }
        books.close().await;
        place.clock.advance(10_000);
    }
    assert_eq!(admitted, REQUESTS);
}
