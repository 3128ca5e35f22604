use super::*;
use crate::engine::policy::Calendar;

const NOON_MS: i64 = 1_796_040_000_000;

fn state(window: Window, limit: u64) -> State {
    state_in(window, limit, Calendar::utc())
}

fn state_in(window: Window, limit: u64, calendar: Calendar) -> State {
    let account = Account::new(LimitSpec {
        account: "key/k/tokens".into(),
        name: "tokens",
        subject: "key \"k\"".into(),
        unit: Unit::Tokens,
        window,
        limit,
        calendar,
        observe: false,
    });
    account.state.into_inner().unwrap()
}

fn granted(amount: u64) -> GrantReply {
    GrantReply {
        granted: amount,
        ..GrantReply::default()
    }
}

/// Asks for `amount` and is given it.
fn fill(state: &mut State, amount: u64, now_ms: i64) {
    let question = state.question(amount, now_ms);
    state.answer(&question, granted(amount), now_ms);
}

fn changes(state: &mut State, now_ms: i64) -> Vec<(i64, i64, u64, u64)> {
    let mut entries = Vec::new();
    state.take_changes(now_ms, &mut entries);
    entries
        .into_iter()
        .map(|entry| {
            let spent = entry.spent.iter().map(|(_, amount)| amount).sum();
            (entry.period, spent, entry.lease, entry.reserved)
        })
        .collect()
}

fn ms(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

#[test]
fn headroom_that_nobody_uses_goes_back_after_half_a_second_and_no_earlier() {
    let mut state = state(Window::Total, 100);
    fill(&mut state, 30, NOON_MS);
    state.reserve(10, NOON_MS);
    assert_eq!(changes(&mut state, NOON_MS + IDLE_MS - 1), [(0, 0, 30, 10)]);
    assert!(!state.at_rest());
    assert_eq!(changes(&mut state, NOON_MS + IDLE_MS), [(0, 0, 10, 10)]);
    assert_eq!(state.headroom(NOON_MS + IDLE_MS), 0);
    state.settle(0, 10, 4, NOON_MS + IDLE_MS);
    assert_eq!(
        changes(&mut state, NOON_MS + IDLE_MS),
        [(0, 4, 0, 0)],
        "six went back"
    );
    assert!(state.at_rest());
}

#[test]
fn an_account_that_waits_for_the_store_gives_nothing_back() {
    let mut state = state(Window::Total, 100);
    fill(&mut state, 30, NOON_MS);
    state.asked = true;
    assert_eq!(changes(&mut state, NOON_MS + 10 * IDLE_MS), [(0, 0, 30, 0)]);
    state.rest_now();
    assert_eq!(changes(&mut state, NOON_MS), [(0, 0, 0, 0)]);
}

#[test]
fn what_was_reserved_before_midnight_settles_into_its_day_and_the_slice_of_that_day_goes_back() {
    let before = ms("2026-11-30T23:59:59.999Z");
    let mut state = state(Window::Day, 100);
    fill(&mut state, 50, before);
    let day = state.reserve(20, before);
    assert_eq!(day, ms("2026-11-30T00:00:00Z"));
    let after = before + 1;
    assert_eq!(state.headroom(after), 0, "the new day has leased nothing");
    assert_eq!(changes(&mut state, after), [(day, 0, 20, 20)]);
    state.settle(day, 20, 5, after + 5_000);
    assert_eq!(changes(&mut state, after + 5_000), [(day, 5, 0, 0)]);
    assert!(state.at_rest());
}

#[test]
fn a_day_of_25_hours_is_one_day_and_one_of_23_ends_at_its_midnight() {
    let calendar = Calendar {
        zone: jiff::tz::TimeZone::get("Europe/Amsterdam").unwrap(),
        reset_at: jiff::civil::Time::midnight(),
    };
    for (first, last, next) in [
        (
            "2026-10-24T22:00:00Z",
            "2026-10-25T22:59:59.999Z",
            "2026-10-25T23:00:00Z",
        ),
        (
            "2026-03-28T23:00:00Z",
            "2026-03-29T21:59:59.999Z",
            "2026-03-29T22:00:00Z",
        ),
    ] {
        let mut state = state_in(Window::Day, 100, calendar.clone());
        fill(&mut state, 40, ms(first));
        assert_eq!(state.reserve(10, ms(first)), ms(first));
        assert_eq!(state.headroom(ms(last)), 30, "{last} is of the same day");
        assert_eq!(state.reserve(10, ms(last)), ms(first));
        assert_eq!(state.headroom(ms(next)), 0, "{next} is of the next");
        assert_eq!(state.question(1, ms(next)).period, ms(next));
    }
}

#[test]
fn there_is_no_more_is_believed_for_a_moment_and_not_after_a_settlement_or_a_new_limit() {
    let mut state = state(Window::Total, 100);
    fill(&mut state, 60, NOON_MS);
    let booked = state.reserve(60, NOON_MS);
    let question = state.question(50, NOON_MS);
    let short = GrantReply {
        granted: 40,
        leased: 60,
        ..GrantReply::default()
    };
    state.answer(&question, short.clone(), NOON_MS);
    assert!(state.exhausted(NOON_MS + BELIEVE_MS - 1));
    assert!(!state.exhausted(NOON_MS + BELIEVE_MS));
    state.settle(booked, 60, 1, NOON_MS);
    assert!(!state.exhausted(NOON_MS), "room was made here");

    state.answer(&question, short, NOON_MS);
    let spec = LimitSpec {
        limit: 500,
        ..state.spec.clone()
    };
    state.update(spec);
    assert!(!state.exhausted(NOON_MS), "the limit was raised");
}

#[test]
fn a_new_period_knows_nothing_of_the_old_ones_end() {
    let mut state = state(Window::Day, 100);
    let question = state.question(50, NOON_MS);
    state.answer(&question, granted(0), NOON_MS);
    assert!(state.exhausted(NOON_MS));
    let tomorrow = NOON_MS + 86_400_000;
    state.headroom(tomorrow);
    assert!(!state.exhausted(tomorrow));
}

#[test]
fn questions_grow_while_the_account_is_busy_up_to_a_part_of_the_limit() {
    let mut state = state(Window::Total, 1_600);
    assert_eq!(state.question(10, NOON_MS).ahead, 10);
    let mut now = NOON_MS;
    let mut aheads = Vec::new();
    for _ in 0..5 {
        now += BUSY_MS - 1;
        aheads.push(state.question(10, now).ahead);
    }
    assert_eq!(aheads, [20, 40, 80, 100, 100]);
    now += BUSY_MS;
    assert_eq!(state.question(10, now).ahead, 10, "it has become quiet");
}

#[test]
fn more_is_asked_for_before_it_is_needed_once_at_a_time() {
    let mut state = state(Window::Total, 10_000);
    state.question(100, NOON_MS);
    let question = state.question(100, NOON_MS + 1);
    assert_eq!(question.ahead, 200);
    state.answer(&question, granted(300), NOON_MS + 1);
    state.reserve(200, NOON_MS + 1);
    assert!(!state.wants_ahead(NOON_MS + 1), "half of it is still there");
    state.reserve(1, NOON_MS + 1);
    assert!(state.wants_ahead(NOON_MS + 1));
    assert!(!state.wants_ahead(NOON_MS + 1), "it has been asked for");
}

#[test]
fn near_the_limit_nothing_is_asked_for_ahead_of_need() {
    let mut state = state(Window::Total, 100);
    state.question(5, NOON_MS);
    let question = state.question(5, NOON_MS);
    state.answer(&question, granted(0), NOON_MS);
    assert!(!state.wants_ahead(NOON_MS + BELIEVE_MS));
}

#[test]
fn an_answer_to_an_old_question_fills_the_period_it_was_asked_for() {
    let mut state = state(Window::Day, 100);
    let yesterday = state.question(10, NOON_MS);
    let now = NOON_MS + 86_400_000;
    state.headroom(now);
    state.answer(&yesterday, granted(10), now);
    assert_eq!(state.headroom(now), 0);
    assert_eq!(
        changes(&mut state, now),
        [(yesterday.period, 0, 0, 0)],
        "and goes back from there"
    );
}

#[test]
fn a_minute_counts_admissions_from_their_instant_and_settlements_correct_them_while_they_count() {
    let mut state = state(Window::Minute, 100);
    fill(&mut state, 100, NOON_MS);
    let first = state.reserve(60, NOON_MS);
    let second = state.reserve(40, NOON_MS + 1_000);
    assert_eq!(state.rate(NOON_MS + 1_000).0, 100);
    state.settle(first, 60, 10, NOON_MS + 2_000);
    assert_eq!(state.rate(NOON_MS + 2_000).0, 50);
    assert_eq!(state.rate(first + MINUTE_MS - 1).0, 50);
    assert_eq!(state.rate(first + MINUTE_MS).0, 40);
    state.settle(second, 40, 0, second + MINUTE_MS);
    assert_eq!(state.rate(second + MINUTE_MS).0, 0);
    let written: i64 = changes(&mut state, second + MINUTE_MS)
        .iter()
        .map(|(_, spent, ..)| spent)
        .sum();
    assert_eq!(written, 50, "the late settlement changed nothing");
}

#[test]
fn a_minute_tells_when_the_next_one_fits() {
    let mut state = state(Window::Minute, 10);
    fill(&mut state, 10, NOON_MS);
    let first = state.reserve(4, NOON_MS);
    let second = state.reserve(6, NOON_MS + 10_000);
    let at = |state: &mut State, needed| state.view(needed, NOON_MS + 20_000).fits_at_ms;
    assert_eq!(at(&mut state, 4), Some(first + MINUTE_MS));
    assert_eq!(at(&mut state, 5), Some(second + MINUTE_MS));
    assert_eq!(at(&mut state, 11), None);
}
