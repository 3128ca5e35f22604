//! Reservations that grow with an answer.

use std::{
    future::poll_fn,
    task::{Context, Poll, Waker},
};

use super::*;

fn limits(tokens: u64) -> Vec<LimitSpec> {
    let budget = Budget {
        daily: amounts(10 * tokens, tokens, 1_000),
        total: amounts(20 * tokens, 4 * tokens, 1_000),
        ..Budget::none()
    };
    let rate = RateLimits {
        tokens_per_minute: std::num::NonZeroU64::new(3 * tokens),
        ..RateLimits::default()
    };
    LimitSpec::of_key("k", &rate, &budget)
}

async fn begin(place: &Place, books: &Books, purse: &Purse, input: u64) -> Reservation {
    let need = need(input, 16);
    let mut held = purse
        .reserve(books, &need, place.clock.now_ms())
        .await
        .unwrap();
    held.let_grow(None);
    held
}

async fn cover(place: &Place, held: &mut Reservation, output: u64) -> Result<(), Refusal> {
    poll_fn(|cx| held.poll_cover(cx, output, place.clock.now_ms())).await
}

fn used(input: u64, output: u64) -> Actual {
    Actual {
        tokens: input + output,
        cost: input + 4 * output,
    }
}

#[tokio::test]
async fn it_grows_to_the_limit_and_the_refusal_names_it() {
    let place = Place::new();
    let books = place.books().await;
    let limits = limits(1_000);
    let purse = books.purse(&"k".into(), &limits, AtOnce::default());
    let mut held = begin(&place, &books, &purse, 10).await;
    for output in 1..=990 {
        cover(&place, &mut held, output).await.unwrap();
    }
    let Err(Refusal::Short(short)) = cover(&place, &mut held, 991).await else {
        panic!("991 and 10 do not fit 1000");
    };
    assert_eq!((short.name, short.limit), ("daily_tokens", 1_000));
    assert_eq!((held.tokens, held.cost), (1_000, 10 + 4 * 990));
    held.settle(used(10, 990), place.clock.now_ms());
    books.close().await;
    for spec in &limits {
        let expected = match spec.unit {
            Unit::Cost => 3_970,
            Unit::Tokens => 1_000,
            Unit::Requests => 1,
        };
        assert_eq!(
            place.standing(spec).await,
            (expected, 0),
            "{}",
            spec.account
        );
    }
}

#[tokio::test]
async fn what_is_covered_asks_nobody() {
    let place = Place::new();
    let books = place.books().await;
    let purse = books.purse(&"k".into(), &limits(100_000), AtOnce::default());
    let mut held = begin(&place, &books, &purse, 10).await;
    let mut cx = Context::from_waker(Waker::noop());
    for output in 1..=16 {
        assert!(
            matches!(
                held.poll_cover(&mut cx, output, place.clock.now_ms()),
                Poll::Ready(Ok(()))
            ),
            "{output}"
        );
    }
}

#[tokio::test]
async fn growth_after_midnight_counts_for_the_new_day() {
    let place = Place::new();
    let books = place.books().await;
    let limits = limits(1_000);
    let day = limits
        .iter()
        .find(|spec| spec.name == "daily_tokens")
        .unwrap();
    let purse = books.purse(&"k".into(), &limits, AtOnce::default());
    let mut held = begin(&place, &books, &purse, 100).await;
    cover(&place, &mut held, 300).await.unwrap();
    let before = held.tokens;
    books.flushed().await.unwrap();
    let yesterday = day.window.period(place.clock.now_ms(), &day.calendar);
    place.clock.advance(86_400_000);
    cover(&place, &mut held, 1_000).await.unwrap();
    assert!(
        before < 1_000 && held.tokens > 1_000,
        "no day alone has room for it"
    );
    held.settle(used(100, 1_000), place.clock.now_ms());
    books.close().await;
    assert_eq!(place.standing(day).await, (1_100 - before, 0));
    let mut reader = Reader::open(&place.file()).await.unwrap();
    let old = reader
        .standing(&day.account, yesterday.start_ms, false, 0)
        .await
        .unwrap();
    assert_eq!((old.spent, old.leased), (before, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Several at once, each growing in steps of its own: none is covered beyond a limit, and in
    /// the end the store holds what was used.
    #[test]
    fn growing_reservations_neither_mint_nor_lose(
        steps in prop::collection::vec((0_usize..4, 1_u64..400, 0_i64..500), 1..50),
    ) {
        runtime().block_on(async {
            let place = Place::new();
            let books = place.books().await;
            let limits = limits(2_000);
            let purse = books.purse(&"k".into(), &limits, AtOnce::default());
            let mut open = Vec::new();
            for _ in 0..4 {
                open.push((begin(&place, &books, &purse, 5).await, 0));
            }
            for (at, more, ms) in steps {
                place.clock.advance(ms);
                let (held, output) = &mut open[at];
                if cover(&place, held, *output + more).await.is_ok() {
                    *output += more;
                }
                let taken: u64 = open.iter().map(|(held, _)| held.tokens).sum();
                assert!(taken <= 2_000, "{taken} covered");
                assert!(open.iter().all(|(held, output)| held.tokens >= 5 + output));
            }
            let outputs: u64 = open.iter().map(|(_, output)| output).sum();
            for (held, output) in open {
                held.settle(used(5, output), place.clock.now_ms());
            }
            books.close().await;
            for spec in &limits {
                let expected = match spec.unit {
                    Unit::Cost => 20 + 4 * outputs,
                    Unit::Tokens => 20 + outputs,
                    Unit::Requests => 4,
                };
                assert_eq!(place.standing(spec).await, (expected, 0), "{}", spec.account);
            }
        });
    }
}
