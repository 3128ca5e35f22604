use super::*;

const TWO: Attempts = Attempts { made: 1, routes: 2 };

fn rules(max_retries: Option<u32>) -> RetryRules {
    RetryRules {
        max_retries,
        ..RetryRules::default()
    }
}

#[test]
fn a_single_route_is_tried_once_unless_retries_are_asked_for() {
    let one = Attempts { made: 1, routes: 1 };
    assert_eq!(rules(None).next(Failure::NotReached, one, None), None);
    let next = rules(Some(2)).next(Failure::NotReached, one, None);
    assert_eq!(
        next,
        Some(Next {
            route: 0,
            after_ms: 1_000
        })
    );
    let twice = Attempts { made: 2, routes: 1 };
    let next = rules(Some(2)).next(Failure::Answered(503), twice, None);
    assert_eq!(
        next,
        Some(Next {
            route: 0,
            after_ms: 2_000
        })
    );
    let thrice = Attempts { made: 3, routes: 1 };
    assert_eq!(
        rules(Some(2)).next(Failure::Answered(503), thrice, None),
        None
    );
}

#[test]
fn each_route_is_tried_once_before_any_is_tried_again() {
    let at_once = |route| Some(Next { route, after_ms: 0 });
    let next = |made| {
        let at = Attempts { made, routes: 3 };
        rules(Some(3)).next(Failure::Answered(500), at, None)
    };
    assert_eq!(next(1), at_once(1));
    assert_eq!(next(2), at_once(2));
    assert_eq!(
        next(3),
        Some(Next {
            route: 0,
            after_ms: 1_000
        })
    );
    assert_eq!(next(4), None);
}

#[test]
fn what_may_have_been_worked_on_is_not_sent_again_unless_that_is_wanted() {
    for failure in [
        Failure::Unknown,
        Failure::Answered(504),
        Failure::Answered(408),
    ] {
        assert_eq!(rules(Some(5)).next(failure, TWO, None), None, "{failure:?}");
        let wanted = RetryRules {
            after_timeout: true,
            ..rules(Some(5))
        };
        assert!(wanted.next(failure, TWO, None).is_some(), "{failure:?}");
    }
}

#[test]
fn a_refused_credential_is_not_offered_to_the_same_provider_again() {
    let refused = Failure::Answered(401);
    assert!(rules(None).next(refused, TWO, None).is_some());
    let again = Attempts { made: 2, routes: 2 };
    assert_eq!(rules(Some(5)).next(refused, again, None), None);
}

#[test]
fn a_provider_that_asks_for_patience_gets_it_within_reason() {
    let one = Attempts { made: 1, routes: 1 };
    let limited = Failure::Answered(429);
    let next = rules(Some(1)).next(limited, one, Some(3_000));
    assert_eq!(
        next,
        Some(Next {
            route: 0,
            after_ms: 3_000
        })
    );
    assert_eq!(rules(Some(1)).next(limited, one, Some(60_000)), None);
    let elsewhere = rules(None).next(limited, TWO, Some(60_000));
    assert_eq!(
        elsewhere,
        Some(Next {
            route: 1,
            after_ms: 0
        })
    );
}

#[test]
fn statuses_that_speak_of_the_request_are_answers() {
    for status in [200, 400, 403, 404, 409, 413, 422] {
        assert_eq!(Failure::of_status(status), None, "{status}");
    }
    for status in [401, 408, 429, 500, 502, 503, 504, 529] {
        assert!(Failure::of_status(status).is_some(), "{status}");
    }
}

#[test]
fn only_attempts_that_may_have_cost_are_reserved_for() {
    assert_eq!(rules(Some(4)).paid_attempts(2), 1);
    let paid = RetryRules {
        after_timeout: true,
        ..rules(Some(4))
    };
    assert_eq!(paid.paid_attempts(2), 5);
}

fn breaker() -> Breaker {
    Breaker::new(BreakerRules {
        min_requests: 4,
        slow_ms: Some(500),
        ..BreakerRules::default()
    })
}

#[test]
fn a_breaker_opens_exactly_at_its_rate_and_not_before_its_least_number() {
    let mut one = breaker();
    for at in 0..3 {
        assert_eq!(one.note(Verdict::Failed, at), None);
    }
    assert!(one.admits(3));
    assert_eq!(one.note(Verdict::Failed, 3), Some(Change::Opened));
    assert!(!one.admits(4));

    let mut half = breaker();
    half.note(Verdict::Answered(1), 0);
    half.note(Verdict::Answered(1), 0);
    half.note(Verdict::Answered(1), 0);
    assert_eq!(half.note(Verdict::Failed, 0), None);
    assert_eq!(half.note(Verdict::Failed, 0), None, "2 of 5");
    assert_eq!(
        half.note(Verdict::Failed, 0),
        Some(Change::Opened),
        "3 of 6"
    );
}

#[test]
fn slow_answers_count_as_failures_and_old_ones_are_forgotten() {
    let mut one = breaker();
    for _ in 0..3 {
        one.note(Verdict::Answered(501), 0);
    }
    assert_eq!(one.note(Verdict::Answered(500), 40_000), None);
    for _ in 0..3 {
        assert!(one.is_closed());
        one.note(Verdict::Answered(501), 40_000);
    }
    assert!(!one.is_closed());
}

#[test]
fn one_request_finds_out_whether_it_is_over() {
    let mut one = breaker();
    trip(&mut one);
    assert!(!one.admits(14_999));
    assert!(one.admits(15_000));
    assert!(!one.admits(15_001), "the others wait");
    assert_eq!(one.note(Verdict::Failed, 15_100), Some(Change::Opened));
    assert!(!one.admits(30_099));
    assert!(one.admits(30_100));
    assert_eq!(one.note(Verdict::Answered(1), 30_200), Some(Change::Closed));
    assert!(one.admits(30_201) && one.admits(30_201));
}

#[test]
fn a_request_that_never_tells_does_not_keep_it_open_for_ever() {
    let mut one = breaker();
    trip(&mut one);
    assert!(one.admits(15_000));
    assert_eq!(one.note(Verdict::Nothing, 15_001), None);
    assert!(!one.admits(29_999));
    assert!(one.admits(30_000));
}

fn trip(breaker: &mut Breaker) {
    let changes = (0..4).map(|_| breaker.note(Verdict::Failed, 0));
    assert_eq!(changes.last().flatten(), Some(Change::Opened));
}

#[test]
fn waits_are_spread_and_never_end_before_the_provider_wants() {
    let next = |after_ms| Next { route: 0, after_ms };
    let all: Vec<u64> = (0..501)
        .map(|draw| next(1_000).spread_ms(None, draw))
        .collect();
    assert_eq!(
        (all.iter().min(), all.iter().max()),
        (Some(&500), Some(&1_000))
    );
    assert_eq!(
        all.iter().collect::<std::collections::BTreeSet<_>>().len(),
        501
    );
    let asked: Vec<u64> = (0..10_000)
        .map(|draw| next(2_000).spread_ms(Some(2_000), draw))
        .collect();
    assert_eq!(
        (asked.iter().min(), asked.iter().max()),
        (Some(&2_000), Some(&2_500))
    );
    assert_eq!(next(0).spread_ms(None, u64::MAX), 0);
}
