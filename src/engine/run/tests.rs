use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn made(tool: &str, digest: &str) -> Made {
    Made {
        tool: tool.to_owned(),
        digest: digest.to_owned(),
    }
}

fn run() -> Run {
    Run::begin(0, "p@1")
}

/// Lets the calls through, one after the other.
fn let_through(run: &mut Run, calls: &[Made]) {
    let rules = RunRules::default();
    for call in calls {
        let key = format!("{} of {}", run.recent.len(), run.calls);
        run.take(&rules, call.clone(), &key).unwrap();
    }
}

#[test]
fn the_deadline_counts_from_the_first_request() {
    let rules = RunRules {
        max_runtime_ms: Some(1_000),
        ..RunRules::default()
    };
    let mut run = run();
    assert!(run.enter(&rules, "a", 999).is_ok());
    assert_eq!(
        run.enter(&rules, "a", 1_000).unwrap_err().code,
        "run_deadline_exceeded"
    );
    assert_eq!(
        (run.step(), run.ended.as_deref()),
        (1, Some("run_deadline_exceeded"))
    );
}

#[test]
fn the_last_call_that_fits_passes_and_the_next_does_not() {
    let rules = RunRules {
        max_tool_calls: Some(2),
        ..RunRules::default()
    };
    let mut run = run();
    assert_eq!(run.take(&rules, made("a", "1"), "a1"), Ok(Taken::Fresh));
    assert_eq!(run.take(&rules, made("a", "2"), "a2"), Ok(Taken::Fresh));
    assert_eq!(run.take(&rules, made("a", "1"), "a1"), Ok(Taken::Replay));
    let stop = run.take(&rules, made("a", "3"), "a3").unwrap_err();
    assert_eq!(stop.code, "run_tool_calls_exceeded");
    run.give_back(&made("a", "2"), "a2");
    assert_eq!(run.take(&rules, made("a", "3"), "a3"), Ok(Taken::Fresh));
}

#[test]
fn order_is_known_from_our_record_and_from_the_history() {
    let order = OrderRules {
        after: vec!["fetch".into()],
        max_calls: Some(1),
        never_after_untrusted: true,
    };
    let check = |run: &Run, past: &Past, tainted| {
        let checked = run.check_order(past, &order, tainted, "submit");
        checked.err().map(|stop| stop.rule)
    };
    let (mut run, nothing) = (run(), Past::default());
    assert_eq!(check(&run, &nothing, false), Some("contract.after"));
    let told = Past {
        tools: vec!["fetch".to_owned()],
        ..Past::default()
    };
    assert_eq!(check(&run, &told, false), None);
    let_through(&mut run, &[made("fetch", "1")]);
    assert_eq!(check(&run, &nothing, false), None);
    assert_eq!(
        check(&run, &nothing, true),
        Some("contract.never_after_untrusted")
    );
    let_through(&mut run, &[made("submit", "1")]);
    assert_eq!(
        check(&run, &nothing, false),
        Some("contract.max_calls_per_run")
    );
}

#[test]
fn the_same_call_may_be_made_so_often_and_no_more() {
    let rules = LoopRules {
        same_call: Some(3),
        ..LoopRules::default()
    };
    let call = made("search", "q");
    let mut run = run();
    for _ in 0..3 {
        assert!(run.check_loops(&Past::default(), &rules, &call).is_ok());
        let_through(&mut run, std::slice::from_ref(&call));
    }
    let stop = run
        .check_loops(&Past::default(), &rules, &call)
        .unwrap_err();
    assert_eq!((stop.code, stop.rule), ("loop_detected", "loops.same_call"));
    // Known from the history alone, too.
    let past = Past {
        recent: vec![call.clone(); 3],
        ..Past::default()
    };
    assert!(
        super::Run::default()
            .check_loops(&past, &rules, &call)
            .is_err()
    );
    // A new user message forgives.
    run.enter(&RunRules::default(), "new", 0).unwrap();
    assert!(run.check_loops(&Past::default(), &rules, &call).is_ok());
}

#[test]
fn cycles_are_found_though_no_neighbours_are_equal() {
    let rules = LoopRules {
        cycle_rounds: Some(3),
        ..LoopRules::default()
    };
    let (a, b, c) = (made("a", ""), made("b", ""), made("c", ""));
    let after = |calls: &[&Made], next: &Made| {
        let mut run = run();
        let calls: Vec<Made> = calls.iter().map(|call| (*call).clone()).collect();
        let_through(&mut run, &calls);
        run.check_loops(&Past::default(), &rules, next).is_err()
    };
    assert!(after(&[&a, &b, &a, &b, &a, &b], &a));
    assert!(!after(&[&a, &b, &a, &b, &a, &b], &c));
    assert!(!after(&[&a, &b, &a, &b], &a));
    assert!(after(&[&c, &a, &b, &c, &a, &b, &c, &a, &b, &c], &a));
    assert!(!after(&[&a, &a, &a, &a, &a, &a], &a), "that is same_call's");
}

#[test]
fn the_same_answer_again_and_again_is_no_progress() {
    let rules = LoopRules {
        same_output: Some(3),
        ..LoopRules::default()
    };
    let past = |outputs: &[&str]| Past {
        outputs: outputs.iter().map(|one| (*one).to_owned()).collect(),
        ..Past::default()
    };
    let check = |outputs: &[&str]| run().check_loops(&past(outputs), &rules, &made("a", "1"));
    assert!(check(&["x", "x"]).is_ok());
    assert!(check(&["x", "x", "y", "x"]).is_ok());
    assert!(check(&["y", "x", "x", "x"]).is_err());
}

proptest! {
    /// Whatever is taken and given back in whatever order: no limit is passed, nothing is counted
    /// twice.
    #[test]
    fn no_order_of_taking_and_giving_back_passes_a_limit(
        steps in prop::collection::vec((0_usize..6, any::<bool>()), 0..60),
        most in 0_u64..5,
    ) {
        let rules = RunRules { max_tool_calls: Some(most), ..RunRules::default() };
        let mut run = run();
        let mut held: Vec<(Made, String, Taken)> = Vec::new();
        for (which, take) in steps {
            let (call, key) = (made("t", &which.to_string()), which.to_string());
            if take {
                if let Ok(taken) = run.take(&rules, call.clone(), &key) {
                    held.push((call, key, taken));
                }
            } else if let Some(at) = held.iter().position(|(_, k, taken)| *k == key && *taken == Taken::Replay)
                .or(held.iter().rposition(|(_, k, _)| *k == key))
            {
                let (call, key, _) = held.remove(at);
                run.give_back(&call, &key);
            }
            let fresh = held.iter().filter(|(_, _, taken)| *taken == Taken::Fresh).count() as u64;
            prop_assert_eq!(run.calls, fresh);
            prop_assert!(run.calls <= most);
        }
    }
}

fn looped(step: u64) -> Looped<'static> {
    Looped {
        step,
        routes: 3,
        id: "esc_1",
    }
}

fn effects(told: &[Escalated]) -> Vec<(Action, Effect)> {
    told.iter()
        .map(|(one, effect)| (one.action, *effect))
        .collect()
}

#[test]
fn a_loop_opens_the_breaker_and_a_trial_closes_it() {
    let (rules, mut run) = (RunRules::default(), run());
    run.enter(&rules, "a", 0).unwrap();
    let step = run.step();
    assert!(run.trip(OnOpen::Stop, looped(step)).is_empty());
    assert_eq!(run.breaker(), BreakerState::Open);
    assert_eq!(run.enter(&rules, "a", 0).unwrap_err().code, "circuit_open");
    // What was under way at the loop is no trial.
    assert_eq!(run.succeed(step), None);
    run.enter(&rules, "b", 0).unwrap();
    assert_eq!(run.breaker(), BreakerState::HalfOpen);
    run.succeed(step);
    assert_eq!(run.breaker(), BreakerState::HalfOpen);
    let trial = run.step();
    run.succeed(trial);
    assert_eq!(run.breaker(), BreakerState::Closed);
}

#[test]
fn a_fallback_goes_from_route_to_route_and_stops_after_the_last() {
    let mut run = run();
    let mut told = Vec::new();
    for passed_over in 1..=2 {
        let step = run.step();
        told.extend(run.trip(OnOpen::Fallback, looped(step)));
        // A second loop in the same answer counts once.
        assert!(run.trip(OnOpen::Fallback, looped(step)).is_empty());
        assert_eq!(run.passed_over(), passed_over);
        assert_eq!(run.breaker(), BreakerState::HalfOpen);
    }
    let step = run.step();
    told.extend(run.trip(OnOpen::Fallback, looped(step)));
    assert_eq!(run.breaker(), BreakerState::Open);
    let upgrade = Action::UpgradeModel;
    let (pending, failed) = ((upgrade, Effect::Pending), (upgrade, Effect::Failed));
    assert_eq!(effects(&told), [pending, failed, pending, failed]);
    run.enter(&RunRules::default(), "new", 0).unwrap();
    assert_eq!(
        (run.passed_over(), run.breaker()),
        (0, BreakerState::HalfOpen)
    );
}

#[test]
fn what_helped_is_told_once_and_survives_being_written_down() {
    let mut run = run();
    let step = run.step();
    run.trip(OnOpen::Retry, looped(step));
    let text = serde_json::to_string(&run).unwrap();
    let mut run: Run = serde_json::from_str(&text).unwrap();
    let (step, later) = (run.step(), run.step());
    let helped = run.succeed(step).map(|one| effects(&[one]));
    assert_eq!(
        helped,
        Some(vec![(Action::AlternativeStrategy, Effect::Helped)])
    );
    assert_eq!(run.succeed(later), None);
    run.trip(OnOpen::Escalate, looped(later));
    assert_eq!(run.breaker(), BreakerState::Open);
    let ended = run.enter(&RunRules::default(), "new", 0).unwrap();
    let ended = ended.map(|one| effects(&[one]));
    assert_eq!(ended, Some(vec![(Action::HumanReview, Effect::NewInput)]));
}

#[test]
fn a_run_written_down_before_there_were_trials_is_read_with_its_open_breaker() {
    let mut text = serde_json::to_value(run()).unwrap();
    let members = text.as_object_mut().unwrap();
    for member in ["half_open", "passed_over", "escalation"] {
        members.remove(member);
    }
    members.insert("open".into(), true.into());
    let run: Run = serde_json::from_value(text).unwrap();
    assert_eq!(run.breaker(), BreakerState::Open);
}

/// A request of a run as it interleaves with others: asks about its call, has it counted, and
/// hands it out or gives it back.
struct Request {
    tool: &'static str,
    key: u8,
    delivers: bool,
    asked: bool,
    token: Option<Token>,
    over: bool,
}

proptest! {
    /// However the steps of parallel requests interleave, what their clients get never passes a
    /// limit, and no call is counted twice.
    #[test]
    fn no_interleaving_of_parallel_requests_passes_a_limit(
        wishes in prop::collection::vec((any::<bool>(), 0_u8..4, any::<bool>()), 1..8),
        turns in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        (most, most_once) in (0_u64..5, 1_u64..3),
    ) {
        let order = OrderRules { max_calls: Some(most_once), ..OrderRules::default() };
        let guard = RunGuard {
            rules: RunRules { max_tool_calls: Some(most), ..RunRules::default() },
            loops: LoopRules::default(),
            past: Past::default(),
            state: Arc::default(),
        };
        let mut requests: Vec<Request> = wishes.iter().map(|(once, key, delivers)| Request {
            tool: if *once { "once" } else { "free" },
            key: *key, delivers: *delivers, asked: false, token: None, over: false,
        }).collect();
        for turn in turns {
            let request = turn.get_mut(&mut requests);
            let rules = (request.tool == "once").then_some(&order);
            if request.over {
                continue;
            } else if !request.asked {
                request.asked = true;
                request.over = rules
                    .is_some_and(|rules| guard.check_order(rules, false, request.tool).is_err());
            } else if let Some(token) = &request.token {
                request.over = true;
                if !request.delivers {
                    guard.give_back(token);
                    request.token = None;
                }
            } else {
                let digest = request.key.to_string();
                let key = format!("{} {digest}", request.tool);
                match guard.take(rules, (made(request.tool, &digest), key), None) {
                    Ok(token) => request.token = Some(token),
                    Err(_) => request.over = true,
                }
            }
            let held: Vec<&Token> = requests.iter().filter_map(|one| one.token.as_ref()).collect();
            let mut keys: Vec<(&str, &str)> = held
                .iter()
                .map(|one| (one.made.tool.as_str(), one.key.as_str()))
                .collect();
            keys.sort_unstable();
            keys.dedup();
            // A call counts once, as long as any request holds it.
            prop_assert_eq!(guard.lock().calls, keys.len() as u64);
            prop_assert!(keys.len() as u64 <= most);
            let once = keys.iter().filter(|(tool, _)| *tool == "once").count() as u64;
            prop_assert!(once <= most_once);
        }
    }
}
