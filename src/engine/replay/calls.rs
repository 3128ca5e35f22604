//! What the chain would say of a recorded call. Layers that go by rules, names and counts are
//! asked again, by the functions that judge calls; what layers that look into arguments said
//! then is taken over.

use super::{
    Setting,
    entry::{Call, LayerOutcome, LayerResult},
    report::{Decision, Tally},
    runs::RunState,
};
use crate::engine::{
    chain::{code, is_wrapper},
    contract::{Approval, Contract, Output},
    policy::{DENY, Policy},
    run::{Made, OnReplay, Stop},
};

/// What is said of a call this time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub decision: Decision,
    /// The rule that says so; empty for what passes.
    pub rule: Box<str>,
    /// The layer that turns it down.
    pub layer: &'static str,
}

impl Verdict {
    fn passed() -> Self {
        Self::of(Decision::Passed, "", "")
    }

    fn of(decision: Decision, rule: &str, layer: &'static str) -> Self {
        Self {
            decision,
            rule: rule.into(),
            layer,
        }
    }
}

/// What was said of a call then, with the rule that said so.
pub(super) fn then(call: &Call) -> (Decision, &str) {
    let says = |outcome| {
        let result = call.results.iter().find(|result| result.outcome == outcome);
        result.map(|result| &*result.rule)
    };
    if let Some(rule) = says(LayerOutcome::Paused) {
        return (Decision::Paused, rule);
    }
    match &call.blocked {
        Some(blocked) => {
            let rule = says(LayerOutcome::Blocked).unwrap_or(blocked);
            (Decision::Blocked, rule)
        }
        None => (Decision::Passed, ""),
    }
}

/// What one call is judged by.
pub(super) struct Bench<'b> {
    pub setting: &'b Setting,
    /// The version that judged then, if it is known.
    pub old: Option<&'b Policy>,
    pub run: Option<&'b RunState>,
    /// `None`: nobody knows whether data from outside stood in the conversation.
    pub tainted: Option<bool>,
    pub delivered: bool,
}

enum Said {
    Nothing,
    No(Box<str>),
    /// A person has to decide.
    Wait(Box<str>),
    /// It was not asked then, and cannot be asked now.
    Unknown,
}

impl Bench<'_> {
    pub fn judge(&self, call: &Call, tally: &mut Tally) -> Verdict {
        let mut verdict = Verdict::passed();
        for layer in code::ALL {
            let observed = self.setting.policy.tools.observes(layer);
            match self.ask(layer, call, tally) {
                Said::Nothing => {}
                Said::Unknown => {
                    tally.undecided(layer, 1);
                    return Verdict::of(Decision::Undecided, layer, layer);
                }
                Said::No(_) | Said::Wait(_) if observed => {}
                Said::No(rule) => return Verdict::of(Decision::Blocked, &rule, layer),
                Said::Wait(rule) => verdict = Verdict::of(Decision::Paused, &rule, layer),
            }
        }
        match self.take(call, &verdict, tally) {
            Some(stop) => Verdict::of(Decision::Blocked, stop.rule, stop.code),
            None => verdict,
        }
    }

    fn ask(&self, layer: &'static str, call: &Call, tally: &mut Tally) -> Said {
        let contract = self.contract(call);
        let asks = |rule: fn(&Contract) -> bool| contract.is_some_and(rule);
        match layer {
            code::UNKNOWN => self.ask_offered(call),
            code::NOT_ALLOWED => self.ask_allowed(call),
            code::TENANT if !asks(|contract| !contract.tenant_arguments.is_empty()) => {
                Said::Nothing
            }
            code::ARGUMENTS if !asks(|contract| !contract.arguments.is_empty()) => Said::Nothing,
            code::TENANT | code::SCHEMA | code::ARGUMENTS => {
                let said = self.recorded(layer, call);
                if !matches!(said, Said::Unknown) {
                    tally.as_recorded(layer);
                }
                said
            }
            code::ORDER => self.ask_order(call, tally),
            code::LOOP => self.ask_loops(call, tally),
            code::APPROVAL => self.ask_approval(call, tally),
            _ => self.recorded(layer, call),
        }
    }

    /// What the layer said then, under what this policy observes.
    fn recorded(&self, layer: &'static str, call: &Call) -> Said {
        if let Some(rule) = said(call, layer, LayerOutcome::Blocked) {
            return Said::No(rule.into());
        }
        let Some(warned) = said(call, layer, LayerOutcome::Warn) else {
            let asked = results(call, layer).next().is_some();
            return match asked || call.blocked.is_none() {
                true => Said::Nothing,
                false => Said::Unknown,
            };
        };
        // It passed since the policy of then observed, or since the rule itself does.
        let by_rule = |contract: &Contract| contract.arguments.iter().any(|rule| rule.observe);
        let may_be_own = layer == code::ARGUMENTS && self.contract(call).is_some_and(by_rule);
        match self.old.map(|old| old.tools.observes(layer)) {
            Some(false) => Said::Nothing,
            Some(true) if !may_be_own => Said::No(warned.into()),
            _ if self.setting.policy.tools.observes(layer) => Said::Nothing,
            _ => Said::Unknown,
        }
    }

    fn ask_offered(&self, call: &Call) -> Said {
        match self.recorded(code::UNKNOWN, call) {
            Said::No(rule) if &*rule != REQUIRE_CONTRACT => Said::No(rule),
            Said::Unknown => Said::Unknown,
            // Whether there must be a contract is for this policy to say.
            _ => {
                let wants = self.setting.policy.tools.require_contract;
                match wants && self.contract(call).is_none() && !is_wrapper(&call.tool) {
                    true => Said::No(REQUIRE_CONTRACT.into()),
                    false => Said::Nothing,
                }
            }
        }
    }

    fn ask_allowed(&self, call: &Call) -> Said {
        let Setting {
            policy, contracts, ..
        } = self.setting;
        // What was offered as a server, or holds other calls, was judged elsewhere.
        let elsewhere = call.tool.as_ref() == ANY_SERVER || is_wrapper(&call.tool);
        match policy.tools.rule_against(contracts, &call.tool) {
            None => Said::Nothing,
            Some(rule) if rule != DENY && elsewhere => Said::Nothing,
            Some(rule) => Said::No(rule.into()),
        }
    }

    fn ask_order(&self, call: &Call, tally: &mut Tally) -> Said {
        let Some(contract) = self.contract(call).filter(|one| !one.order.is_empty()) else {
            return Said::Nothing;
        };
        let Some(run) = self.run else {
            tally.undecided(NO_RUN, 1);
            return Said::Nothing;
        };
        let tainted = match self.tainted {
            None if contract.order.never_after_untrusted => {
                tally.undecided(TAINT, 1);
                said(call, code::ORDER, LayerOutcome::Blocked) == Some(UNTRUSTED)
            }
            told => told.unwrap_or(false),
        };
        let checked = run.guard.check_order(&contract.order, tainted, &call.tool);
        let Err(stop) = checked else {
            return Said::Nothing;
        };
        // What the client's own conversation shows is not on record.
        let by_conversation = stop.rule == AFTER;
        match results(call, code::ORDER).next().map(|one| one.outcome) {
            Some(LayerOutcome::Passed) if by_conversation => Said::Nothing,
            None if by_conversation && call.blocked.is_some() => Said::Unknown,
            _ => Said::No(stop.rule.into()),
        }
    }

    fn ask_loops(&self, call: &Call, tally: &mut Tally) -> Said {
        let loops = &self.setting.policy.loops;
        let exempt = self.contract(call).is_some_and(|one| one.pollable);
        if loops.is_empty() || exempt {
            return Said::Nothing;
        }
        if loops.same_output.is_some() {
            tally.undecided("loops.same_output", 1);
        }
        let Some(run) = self.run.filter(|run| run.sees_input) else {
            tally.undecided(code::LOOP, 1);
            return self.loop_of_then(call);
        };
        match run.guard.check_loops(&made(call)) {
            Ok(()) => self.loop_of_then(call),
            Err(stop) => Said::No(stop.rule.into()),
        }
    }

    /// A loop that the client's own conversation showed then is one by the same rule now.
    fn loop_of_then(&self, call: &Call) -> Said {
        let Some(rule) = said(call, code::LOOP, LayerOutcome::Blocked) else {
            return Said::Nothing;
        };
        let most = |policy: &Policy| match rule {
            "loops.same_call" => policy.loops.same_call,
            "loops.cycle_rounds" => policy.loops.cycle_rounds,
            _ => policy.loops.same_output,
        };
        match (most(&self.setting.policy), self.old.and_then(most)) {
            (None, _) => Said::Nothing,
            (Some(now), Some(then)) if now <= then => Said::No(rule.into()),
            _ => Said::Unknown,
        }
    }

    fn ask_approval(&self, call: &Call, tally: &mut Tally) -> Said {
        let Setting {
            policy, contracts, ..
        } = self.setting;
        let tainted = self.tainted.unwrap_or(false);
        let rule = policy.tools.approval_rule(contracts, &call.tool, tainted);
        let minds = |contract: &Contract| contract.approval == Approval::WhenTainted;
        let rule = match rule {
            None if self.tainted.is_none() && self.contract(call).is_some_and(minds) => {
                tally.undecided(TAINT, 1);
                said(call, code::APPROVAL, LayerOutcome::Paused)
            }
            rule => rule,
        };
        rule.map_or(Said::Nothing, |rule| Said::Wait(rule.into()))
    }

    /// Counts a call that its client got then, or would get now; tells why it may not pass.
    fn take(&self, call: &Call, verdict: &Verdict, tally: &mut Tally) -> Option<Stop> {
        let run = self.run?;
        let newly = verdict.decision == Decision::Passed && call.blocked.is_some();
        if !(self.delivered || newly) {
            return None;
        }
        let contract = self.contract(call);
        let replays = contract.and_then(|contract| contract.idempotent);
        let key = format!("{} {}", call.tool, call.arguments_sha256);
        if call.idempotent_replay && !run.guard.lock().knows(&key) {
            // An argument of its own told that it was the same call.
            let passes = replays.unwrap_or(run.guard.rules.on_replay == OnReplay::Pass);
            tally.undecided("run.idempotency_argument", 1);
            return (!passes).then(|| Stop {
                code: "idempotent_replay",
                rule: "run.on_replay",
                message: String::new(),
            });
        }
        let order = contract.map(|contract| &contract.order);
        run.guard.take(order, (made(call), key), replays).err()
    }

    fn contract(&self, call: &Call) -> Option<&Contract> {
        self.setting.contracts.find(&call.tool)
    }

    /// Whether the call brings data from outside into its run.
    pub fn taints(&self, call: &Call) -> bool {
        let untrusted = |contract: &Contract| contract.output == Output::Untrusted;
        self.delivered && self.contract(call).is_some_and(untrusted)
    }
}

/// The rule by which a layer said that.
fn said<'c>(call: &'c Call, layer: &'static str, outcome: LayerOutcome) -> Option<&'c str> {
    let result = results(call, layer).find(|result| result.outcome == outcome);
    result.map(|result| &*result.rule)
}

fn results<'c>(call: &'c Call, layer: &'static str) -> impl Iterator<Item = &'c LayerResult> {
    call.results.iter().filter(move |one| &*one.code == layer)
}

fn made(call: &Call) -> Made {
    Made {
        tool: call.tool.to_string(),
        digest: call.arguments_sha256.to_string(),
    }
}

const REQUIRE_CONTRACT: &str = "tools.require_contract";
const ANY_SERVER: &str = "type:mcp";
const AFTER: &str = "contract.after";
const UNTRUSTED: &str = "contract.never_after_untrusted";
/// Rules about runs, of calls and requests whose run nobody wrote down.
pub(super) const NO_RUN: &str = "run";
/// Rules that ask whether data from outside has entered, where nobody wrote that down.
pub(super) const TAINT: &str = "taint";
