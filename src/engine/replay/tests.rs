use std::{collections::HashMap, num::NonZeroU64};

use serde_json::{Value, json};

use super::*;
use crate::engine::{
    chain::code,
    contract::{Approval, Contract, Output},
    failover::RetryRules,
    money::Money,
    policy::{InputRules, ModelRules, OnOffer, Pattern, RateLimits, Status, ToolRules},
    pricing::OperatorPrice,
    run::{LoopRules, MissingRun, OrderRules, RunRules},
};

/// Monday 30 November 2026, 12:00:00 UTC.
const NOON: i64 = 1_796_040_000_000;
const DAY: i64 = 86_400_000;

fn version(version: u32) -> Policy {
    Policy {
        id: "p".into(),
        version,
        label: format!("p@{version}").into(),
        status: Status::Published,
        models: ModelRules::default(),
        limits: RateLimits::default(),
        budget: Budget::none(),
        input: InputRules::default(),
        tools: Arc::default(),
        run: RunRules::default(),
        loops: LoopRules::default(),
        retry: RetryRules::default(),
        roles: Vec::new(),
    }
}

/// Under version 2, which differs from the version of then by what `change` does.
struct Trial {
    setting: Setting,
    carried: Vec<(i64, Used)>,
}

impl Trial {
    fn of(change: impl FnOnce(&mut Policy)) -> Self {
        let mut policy = version(2);
        change(&mut policy);
        let price = OperatorPrice {
            input: Money::from_nanos(1_000_000_000),
            output: Money::from_nanos(4_000_000_000),
            ..OperatorPrice::default()
        };
        let rates = Arc::new(RatesAt::fixed(price.into()));
        let priced = move |_: &str, names: &[&str], _| {
            let known = !names.contains(&"m-new");
            known.then(|| Arc::clone(&rates))
        };
        Self {
            setting: Setting {
                policy: Arc::new(policy),
                whose: Whose::Policy,
                versions: vec![Arc::new(version(1))],
                contracts: Arc::default(),
                names: Names::default(),
                tenant_budgets: HashMap::new(),
                global_budget: None,
                tenants: HashMap::from([("k".into(), "acme".into())]),
                price_of: Box::new(priced),
                from_ms: NOON,
                to_ms: NOON + 30 * DAY,
            },
            carried: Vec::new(),
        }
    }

    fn tools(change: impl FnOnce(&mut ToolRules)) -> Self {
        Self::of(|policy| change(Arc::make_mut(&mut policy.tools)))
    }

    fn contracts<const N: usize>(mut self, all: [(&str, Contract); N]) -> Self {
        let all = all.map(|(name, contract)| (name.into(), contract));
        self.setting.contracts = Arc::new(Contracts::new(all));
        self
    }

    fn on(self, records: &[Value]) -> Report {
        let mut replay = Replay::new(self.setting);
        for (start, used) in self.carried {
            replay.carry(start, "k", used);
        }
        for record in records {
            replay.see(&Entry::read(&record.to_string()).unwrap());
        }
        replay.end()
    }
}

/// A request that was let through and its settlement a second later: 10 tokens in, 5 out.
fn request(id: &str, at: i64, more: Value) -> [Value; 2] {
    let mut started = json!({
        "at": at, "kind": "request_started", "request_id": id, "key": "k", "tenant": "acme",
        "policy": "p@1", "requested_model": "m", "provider": "up", "resolved_model": "m",
        "reserved_tokens": 120, "input_bound": 20, "output_cap": 100,
    });
    let mut settled = json!({
        "at": at + 1_000, "kind": "request_settled", "request_id": id, "key": "k",
        "tenant": "acme", "policy": "p@1", "requested_model": "m", "resolved_model": "m",
        "input_tokens": 10, "output_tokens": 5, "cost_nano_usd": 30_000, "outcome": "completed",
    });
    for (name, value) in more.as_object().unwrap() {
        started[name] = value.clone();
        settled[name] = value.clone();
    }
    [started, settled]
}

fn requests(ats: &[i64], more: &Value) -> Vec<Value> {
    let each = ats.iter().enumerate();
    each.flat_map(|(count, at)| request(&format!("r{count}"), NOON + at, more.clone()))
        .collect()
}

/// A call of an answer, which came through unless `more` says otherwise.
fn call(id: &str, tool: &str, more: Value) -> Value {
    let passed: Vec<Value> = code::ALL
        .iter()
        .map(|code| json!({"code": code, "outcome": "passed", "rule": code}))
        .collect();
    let mut call = json!({
        "at": NOON + 500, "kind": "call_judged", "request_id": id, "key": "k", "policy": "p@1",
        "requested_model": "m", "tool": tool, "arguments_sha256": "d", "results": passed,
        "delivered": true,
    });
    for (name, value) in more.as_object().unwrap() {
        call[name] = value.clone();
    }
    call
}

/// The call was blocked at this layer, by this rule.
fn blocked(code: &str, rule: &str) -> Value {
    let before = code::ALL.iter().take_while(|one| **one != code);
    let passed = before.map(|code| json!({"code": code, "outcome": "passed", "rule": code}));
    let mut results: Vec<Value> = passed.collect();
    results.push(json!({"code": code, "outcome": "blocked", "rule": rule}));
    json!({"results": results, "blocked": code, "delivered": false})
}

/// `then now rule count` of each row.
fn rows(report: &Report) -> Vec<String> {
    let rows = report.differences.iter();
    rows.map(|row| {
        let (what, count) = (&row.what, row.count);
        let (then, now) = (what.then.name(), what.now.name());
        format!("{then} {now} {} {count}", what.rule)
    })
    .collect()
}

fn most(number: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(number)
}

fn patterns(names: &[&str]) -> Vec<Pattern> {
    names
        .iter()
        .filter_map(|name| Pattern::parse(name))
        .collect()
}

#[test]
fn the_same_rules_decide_the_same() {
    let mut records = requests(&[0, 10, 20], &json!({}));
    records.insert(1, call("r0", "f", json!({})));
    let report = Trial::of(|_| {}).on(&records);
    assert!(
        report.differences.is_empty() && report.undecided.is_empty(),
        "{report:?}"
    );
    let counts = |all| Counts {
        all,
        passed_then: all,
        passed_now: all,
    };
    assert_eq!((report.requests, report.calls), (counts(3), counts(1)));
    assert_eq!(report.cost.then_nano_usd, 90_000);
    assert_eq!(report.cost.now_nano_usd, 90_000);
}

#[test]
fn a_model_that_is_denied_now_takes_its_calls_and_its_cost_along() {
    let mut records = requests(&[0], &json!({}));
    records.insert(1, call("r0", "f", json!({})));
    let report = Trial::of(|policy| policy.models.deny = patterns(&["M"])).on(&records);
    assert_eq!(rows(&report), ["passed refused models.deny 1"]);
    assert_eq!(report.differences[0].request_id.as_ref(), "r0");
    assert_eq!((report.calls.passed_then, report.calls.passed_now), (1, 0));
    assert_eq!(
        (report.cost.then_nano_usd, report.cost.now_nano_usd),
        (30_000, 0)
    );
    // The same by the model behind an alias, and behind a provider's name.
    let aliased = requests(&[0], &json!({"requested_model": "fast"}));
    let mut trial = Trial::of(|policy| policy.models.deny = patterns(&["m-other"]));
    trial.setting.names.routes =
        HashMap::from([("fast".into(), vec!["m".into(), "m-other".into()])]);
    assert_eq!(rows(&trial.on(&aliased)), ["passed refused models.deny 1"]);
    let prefixed = requests(&[0], &json!({"requested_model": "up/m"}));
    let mut trial = Trial::of(|policy| policy.models.allow = Some(patterns(&["m"])));
    trial.setting.names.providers = HashSet::from(["up".into()]);
    assert_eq!(rows(&trial.on(&prefixed)), [""; 0]);
}

#[test]
fn what_was_refused_and_would_pass_costs_nobody_knows_what() {
    let refused = json!({
        "at": NOON, "kind": "request_refused", "request_id": "r", "key": "k", "policy": "p@1",
        "requested_model": "m", "code": "model_denied", "status": 403,
    });
    let denied = |policy: &mut Policy| policy.models.deny = patterns(&["m"]);
    let mut trial = Trial::of(|_| {});
    trial.setting.versions = vec![{
        let mut old = version(1);
        denied(&mut old);
        Arc::new(old)
    }];
    let report = trial.on(std::slice::from_ref(&refused));
    assert_eq!(rows(&report), ["refused passed model_denied 1"]);
    assert_eq!(report.cost.unknown_requests, 1);
    assert_eq!(
        rows(&Trial::of(denied).on(std::slice::from_ref(&refused))),
        [""; 0]
    );
    // What no policy has a say in stays refused.
    let mut other = refused;
    other["code"] = "endpoint_not_allowed".into();
    assert_eq!(rows(&Trial::of(|_| {}).on(&[other])), [""; 0]);
}

#[test]
fn a_limit_by_the_minute_slides() {
    let trial = || Trial::of(|policy| policy.limits.requests_per_minute = most(2));
    let report = trial().on(&requests(&[0, 10_000, 20_000, 60_001, 60_002], &json!({})));
    assert_eq!(rows(&report), ["passed refused requests_per_minute 2"]);
    // A request that was refused leaves its place to the next.
    let report = trial().on(&requests(&[0, 10_000, 60_000], &json!({})));
    assert_eq!(rows(&report), [""; 0]);
}

#[test]
fn budgets_count_what_was_used_from_their_beginning_to_their_reset() {
    let midnight = NOON + DAY / 2;
    let ats = [0, 2_000, DAY / 2 + 1, DAY / 2 + 3_000];
    let trial =
        |cost| Trial::of(move |policy| policy.budget.daily.cost = Some(Money::from_nanos(cost)));
    // A request wants its input and 16 tokens at least: 20,000 + 64,000 nano-dollars.
    assert_eq!(
        rows(&trial(114_000).on(&requests(&ats, &json!({})))),
        [""; 0]
    );
    let report = trial(113_999).on(&requests(&ats, &json!({})));
    assert_eq!(rows(&report), ["passed refused daily_cost_usd 2"]);
    let mut carried = trial(114_000);
    let used = Used {
        cost: 1,
        ..Used::default()
    };
    carried.carried = vec![(midnight - DAY, used)];
    assert_eq!(Replay::new(trial(1).setting).begun(), [midnight - DAY]);
    let report = carried.on(&requests(&ats, &json!({})));
    assert_eq!(
        rows(&report),
        ["passed refused daily_cost_usd 1"],
        "of the first day alone"
    );
}

#[test]
fn what_is_open_holds_its_reservation_and_a_crash_keeps_it() {
    // Two at once hold 120 tokens each, and leave no room for the least that a third wants.
    let mut records = requests(&[0, 100, 200], &json!({}));
    records.sort_by_key(|record| record["at"].as_i64());
    let trial = || Trial::of(|policy| policy.budget.total.tokens = Some(240 + 35));
    assert_eq!(
        rows(&trial().on(&records)),
        ["passed refused total_tokens 1"]
    );
    assert_eq!(
        rows(&trial().on(&requests(&[0, 2_000, 4_000], &json!({})))),
        [""; 0]
    );
    let mut crashed: Vec<Value> = records[..2].to_vec();
    crashed.push(json!({"at": NOON + 300, "kind": "started"}));
    crashed.extend(request("late", NOON + 400, json!({})));
    assert_eq!(
        rows(&trial().on(&crashed)),
        ["passed refused total_tokens 1"]
    );
    let parallel = Trial::of(|policy| policy.limits.parallel_requests = most(2));
    assert_eq!(
        rows(&parallel.on(&records)),
        ["passed refused parallel_requests 1"]
    );
}

#[test]
fn an_answer_longer_than_the_cap_would_be_shortened() {
    let trial = Trial::of(|policy| policy.budget.max_output_tokens = most(3));
    let report = trial.on(&requests(&[0], &json!({})));
    assert_eq!(
        rows(&report),
        ["passed shortened budget.max_output_tokens 1"]
    );
}

#[test]
fn a_tenants_budget_counts_the_keys_beside_too() {
    let mut trial = Trial::of(|_| {});
    let mut budget = Budget::none();
    budget.total.requests = Some(2);
    trial.setting.tenant_budgets = HashMap::from([("acme".into(), budget)]);
    let mut records = requests(&[0], &json!({"key": "other", "policy": "q@1"}));
    records.extend(requests(&[2_000, 4_000], &json!({})));
    records[0]["request_id"] = "o".into();
    records[1]["request_id"] = "o".into();
    let report = trial.on(&records);
    assert_eq!(rows(&report), ["passed refused tenant.total_requests 1"]);
    assert_eq!(report.requests.all, 2, "those of the policy");
}

#[test]
fn runs_end_at_their_limits() {
    let named = |more: Value| {
        let mut about = json!({"run": "task", "step": 1});
        about
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        about
    };
    let records = requests(&[0, 2_000, 4_000], &named(json!({})));
    let cases: [Case<RunRules>; 4] = [
        (
            |run| run.max_iterations = most(2),
            "passed refused run.max_iterations 1",
        ),
        (
            |run| run.max_runtime_ms = Some(2_000),
            "passed refused run.max_runtime 2",
        ),
        (
            |run| run.max_tokens = most(64),
            "passed refused run.max_tokens 1",
        ),
        (
            |run| run.max_cost = Some(Money::from_nanos(143_999)),
            "passed refused run.max_cost_usd 1",
        ),
    ];
    for (change, row) in cases {
        let report = Trial::of(|policy| change(&mut policy.run)).on(&records);
        assert_eq!(rows(&report), [row]);
    }
    let refuse = |policy: &mut Policy| policy.run.missing_run_id = MissingRun::Refuse;
    assert_eq!(rows(&Trial::of(refuse).on(&records)), [""; 0]);
    let nameless = requests(&[0], &json!({"run": "conversation:0123"}));
    let report = Trial::of(refuse).on(&nameless);
    assert_eq!(rows(&report), ["passed refused run.missing_run_id 1"]);
    // Who was in no run then is in one that nobody wrote down.
    let report =
        Trial::of(|policy| policy.run.max_iterations = most(1)).on(&requests(&[0], &json!({})));
    assert_eq!(report.undecided.get("run"), Some(&1));
}

#[test]
fn a_model_without_a_price_is_refused_where_money_counts() {
    let records = requests(
        &[0],
        &json!({"requested_model": "m-new", "resolved_model": "m-new"}),
    );
    let report = Trial::of(|policy| policy.budget.daily.cost = Some(Money::from_nanos(1 << 40)))
        .on(&records);
    assert_eq!(rows(&report), ["passed refused price_unknown 1"]);
    assert_eq!(rows(&Trial::of(|_| {}).on(&records)), [""; 0]);
}

/// A change of rules, and the row that it makes.
type Case<R> = (fn(&mut R), &'static str);

/// One request with this call in its answer.
fn calling(call: Value) -> Vec<Value> {
    let mut records = requests(&[0], &json!({"run": "conversation:1", "step": 1}));
    records.insert(1, call);
    records
}

#[test]
fn tools_are_asked_by_name_scope_contract_and_approval() {
    let scoped = || Contract {
        scope: Some("mail:send".into()),
        ..Contract::default()
    };
    let cases: [Case<ToolRules>; 5] = [
        (
            |rules| rules.deny = patterns(&["F"]),
            "passed blocked tools.deny 1",
        ),
        (
            |rules| rules.allow = Some(patterns(&["g"])),
            "passed blocked tools.allow 1",
        ),
        (
            |rules| rules.deny = patterns(&["mail:send"]),
            "passed blocked tools.deny 1",
        ),
        (
            |rules| rules.require_approval = patterns(&["mail:*"]),
            "passed paused tools.require_approval 1",
        ),
        (|rules| rules.allow = Some(patterns(&["mail:send"])), ""),
    ];
    for (change, row) in cases {
        let report = Trial::tools(change)
            .contracts([("f", scoped())])
            .on(&calling(call("r0", "f", json!({}))));
        assert_eq!(rows(&report).concat(), row);
    }
    let wants = |rules: &mut ToolRules| rules.require_contract = true;
    let report = Trial::tools(wants).on(&calling(call("r0", "f", json!({}))));
    assert_eq!(rows(&report), ["passed blocked tools.require_contract 1"]);
    let observed = |rules: &mut ToolRules| {
        wants(rules);
        rules.observe = vec![code::UNKNOWN];
    };
    assert_eq!(
        rows(&Trial::tools(observed).on(&calling(call("r0", "f", json!({}))))),
        [""; 0]
    );
    // In a wrapper each call is one of its own.
    let inner = call("", "f", json!({}));
    let wrapper = call(
        "r0",
        "parallel",
        json!({"inner": [inner, call("", "g", json!({}))]}),
    );
    let report = Trial::tools(|rules| rules.deny = patterns(&["g"])).on(&calling(wrapper));
    assert_eq!(rows(&report), ["passed blocked tools.deny 1"]);
    assert_eq!(report.differences[0].what.tool.as_deref(), Some("g"));
}

#[test]
fn what_nobody_asked_then_is_undecided_and_what_somebody_did_is_taken_over() {
    let denied = calling(call("r0", "f", blocked(code::NOT_ALLOWED, "tools.deny")));
    let report = Trial::of(|_| {}).on(&denied);
    assert_eq!(rows(&report), ["blocked undecided tools.deny 1"]);
    assert_eq!(report.undecided.get(code::SCHEMA), Some(&1));
    let invalid = calling(call("r0", "f", blocked(code::SCHEMA, "contract.schema")));
    let report = Trial::of(|_| {}).on(&invalid);
    assert_eq!(rows(&report), [""; 0]);
    assert_eq!(report.as_recorded.get(code::SCHEMA), Some(&1));
    let observes = |rules: &mut ToolRules| rules.observe = vec![code::SCHEMA];
    let report = Trial::tools(observes).on(&invalid);
    assert_eq!(rows(&report), ["blocked passed contract.schema 1"]);
    // What was only observed then would be blocked now.
    let mut warned = calling(call("r0", "f", json!({})));
    warned[1]["results"][4]["outcome"] = "warn".into();
    warned[1]["results"][4]["rule"] = "contract.schema".into();
    let mut trial = Trial::of(|_| {});
    let mut old = version(1);
    observes(Arc::make_mut(&mut old.tools));
    trial.setting.versions = vec![Arc::new(old)];
    assert_eq!(
        rows(&trial.on(&warned)),
        ["passed blocked contract.schema 1"]
    );
}

#[test]
fn a_call_that_waited_for_a_person_may_pass_unasked() {
    let mut paused = calling(call("r0", "f", json!({"approval": "apr_1"})));
    paused[1]["results"][8] =
        json!({"code": code::APPROVAL, "outcome": "paused", "rule": "tools.require_approval"});
    assert_eq!(
        rows(&Trial::of(|_| {}).on(&paused)),
        ["paused passed tools.require_approval 1"]
    );
}

#[test]
fn order_and_counts_hold_within_a_run() {
    let after = |tools: &[&str], max_calls| Contract {
        order: OrderRules {
            after: tools.iter().map(|tool| (*tool).into()).collect(),
            max_calls,
            ..OrderRules::default()
        },
        ..Contract::default()
    };
    let asked = |calls: &[&str]| {
        let mut records = requests(&[0], &json!({"run": "conversation:1", "step": 1}));
        for (count, tool) in calls.iter().enumerate() {
            let made = json!({"arguments_sha256": count.to_string()});
            records.insert(1 + count, call("r0", tool, made));
        }
        records
    };
    let trial =
        || Trial::of(|_| {}).contracts([("f", after(&[], Some(1))), ("g", after(&["f"], None))]);
    assert_eq!(rows(&trial().on(&asked(&["f", "g"]))), [""; 0]);
    let report = trial().on(&asked(&["f", "f"]));
    assert_eq!(
        rows(&report),
        ["passed blocked contract.max_calls_per_run 1"]
    );
    // That it passed then is for the conversation to tell.
    assert_eq!(rows(&trial().on(&asked(&["g"]))), [""; 0]);
    let early = calling(call("r0", "g", blocked(code::ORDER, "contract.after")));
    assert_eq!(rows(&trial().on(&early)), [""; 0]);
    let report = Trial::of(|policy| policy.run.max_tool_calls = Some(1)).on(&asked(&["f", "g"]));
    assert_eq!(rows(&report), ["passed blocked run.max_tool_calls 1"]);
}

#[test]
fn the_same_call_is_found_by_its_digest_where_a_new_input_can_be_told() {
    let rules = |policy: &mut Policy| policy.loops.same_call = Some(2);
    let asked = |run: &str, inputs: &[&str]| {
        let mut records = Vec::new();
        for (count, input) in inputs.iter().enumerate() {
            let id = format!("r{count}");
            let mut about = json!({"run": run, "step": count + 1});
            if !input.is_empty() {
                about["input_sha256"] = (*input).into();
            }
            let [started, settled] = request(&id, NOON + 2_000 * count as i64, about);
            records.extend([started, call(&id, "f", json!({"run": run})), settled]);
        }
        records
    };
    let report = Trial::of(rules).on(&asked("task", &["a", "a", "a", "a"]));
    assert_eq!(
        rows(&report),
        ["passed refused loops 1", "passed blocked loops.same_call 1"]
    );
    assert_eq!(
        rows(&Trial::of(rules).on(&asked("task", &["a", "a", "b", "b"]))),
        [""; 0]
    );
    let report = Trial::of(rules).on(&asked("conversation:1", &["", "", ""]));
    assert_eq!(rows(&report), ["passed blocked loops.same_call 1"]);
    let report = Trial::of(rules).on(&asked("task", &["", "", ""]));
    assert_eq!(rows(&report), [""; 0]);
    assert_eq!(report.undecided.get(code::LOOP), Some(&3));
}

#[test]
fn what_came_from_outside_stays_in_the_run() {
    let web = Contract {
        output: Output::Untrusted,
        ..Contract::default()
    };
    let mail = Contract {
        approval: Approval::WhenTainted,
        ..Contract::default()
    };
    let trial = Trial::of(|_| {}).contracts([("web", web), ("mail", mail)]);
    let about = json!({"run": "conversation:1", "step": 1});
    let mut records = requests(&[0, 2_000], &about);
    records.insert(1, call("r0", "web", json!({})));
    records.insert(2, call("r0", "mail", json!({"arguments_sha256": "2"})));
    records.insert(5, call("r1", "mail", json!({"arguments_sha256": "3"})));
    let report = trial.on(&records);
    assert_eq!(rows(&report), ["passed paused contract.approval 1"]);
    assert_eq!(
        report.undecided.get("taint"),
        Some(&1),
        "nobody wrote down the first"
    );
}

#[test]
fn what_needs_content_is_counted_unless_the_version_of_then_asked_it_too() {
    let new = |policy: &mut Policy| {
        policy.input.max_chars = Some(100);
        policy.input.unsupported_patterns = vec!["<x>".into()];
        Arc::make_mut(&mut policy.tools).on_offer = OnOffer::Strip;
    };
    let records = requests(&[0, 2_000], &json!({}));
    let report = Trial::of(new).on(&records);
    let undecided: Vec<_> = report
        .undecided
        .iter()
        .map(|(rule, count)| (*rule, *count))
        .collect();
    let expected = [
        ("input.max_chars", 2),
        ("input.unsupported_patterns", 2),
        ("tools.on_offer", 2),
    ];
    assert_eq!(undecided, expected);
    let mut trial = Trial::of(new);
    let mut old = version(1);
    new(&mut old);
    old.input.max_chars = Some(50);
    trial.setting.versions = vec![Arc::new(old)];
    assert!(trial.on(&records).undecided.is_empty());
}

#[test]
fn memory_is_bounded_by_runs_and_rows() {
    let mut replay = Replay::new(
        Trial::of(|policy| {
            policy.run.max_iterations = most(1);
            policy.models.deny = patterns(&["bad-*"]);
        })
        .setting,
    );
    for count in 0..60_000 {
        let model = match count % 2 {
            0 => format!("bad-{count}"),
            _ => "m".to_owned(),
        };
        let mut entry = Entry {
            at: NOON + count,
            kind: Kind::RequestStarted,
            request_id: Some(format!("r{count}").into()),
            key: Some("k".into()),
            policy: Some("p@1".into()),
            requested_model: Some(model.into()),
            run: Some(format!("run-{count}").into()),
            step: Some(1),
            ..Entry::default()
        };
        replay.see(&entry);
        entry.kind = Kind::RequestSettled;
        replay.see(&entry);
    }
    let report = replay.end();
    assert_eq!(report.differences.len(), 5_000);
    assert_eq!(report.more_differences, 25_000);
    assert!(report.undecided["run.forgotten"] >= 25_000);
}
