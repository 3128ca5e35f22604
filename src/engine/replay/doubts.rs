//! What the ledger cannot tell of a request, since it holds no content: counted where the policy
//! asks for it, unless the version that judged then asked for no less.

use std::collections::BTreeSet;

use super::{Replay, Setting, entry::Entry};
use crate::engine::{
    chain::code,
    guard::{
        model_access::{Access, judge_leading},
        tool_offers::HOSTED_DENIED,
    },
    policy::Policy,
};

impl Replay {
    /// Counts what nobody knows of a request that would be let through.
    pub(super) fn doubt(&mut self, entry: &Entry, passed_then: bool) {
        let label = entry.policy.as_deref().filter(|_| passed_then);
        let key: Box<str> = label.unwrap_or_default().into();
        if !self.doubts.contains_key(&key) {
            let of = doubts(&self.setting, self.setting.version(label));
            self.doubts.insert(key.clone(), of);
        }
        for rule in self.doubts.get(&key).into_iter().flatten() {
            self.tally.undecided(rule, 1);
        }
        if went_by_role(&self.setting, entry) {
            self.tally.undecided("roles", 1);
        }
    }

    /// Whether what refused a request then can be asked again.
    pub(super) fn may_pass(&mut self, entry: &Entry) -> bool {
        let policy = &self.setting.policy;
        let doubtful = match entry.code.as_deref().unwrap_or_default() {
            "model_denied" | "model_not_found" => return was_denied(&self.setting, entry),
            "context_length_exceeded" => policy.input.max_chars.map(|_| MAX_CHARS),
            "input_unsupported" => {
                let none = policy.input.unsupported_patterns.is_empty();
                (!none).then_some(PATTERNS)
            }
            HOSTED_DENIED => Some(OFFERS),
            code::NOT_ALLOWED => {
                let none = policy.tools.allow.is_none() && policy.tools.deny.is_empty();
                (!none).then_some(OFFERS)
            }
            "rate_limit_exceeded" if entry.rule.is_none() => policy.limits.burst.map(|_| BURST),
            "circuit_open" => {
                let run = self.run_of(entry);
                let told = run.is_none_or(|run| run.sees_input);
                let asks = !self.setting.policy.loops.is_empty();
                (asks && !told).then_some(code::LOOP)
            }
            code if LIMITS.contains(&code) => None,
            // Of another kind: no policy lets it pass.
            _ => return false,
        };
        match doubtful {
            Some(rule) => {
                self.tally.undecided(rule, 1);
                false
            }
            None => true,
        }
    }
}

/// What the policy asks of every request, and the one of then did not.
fn doubts(setting: &Setting, old: Option<&Policy>) -> Vec<&'static str> {
    let new = &setting.policy;
    let asked = |rule: fn(&Policy, &Policy) -> bool| old.is_some_and(|old| rule(old, new));
    let all = [
        (
            MAX_CHARS,
            new.input.max_chars.is_some(),
            asked(|old, new| {
                old.input
                    .max_chars
                    .is_some_and(|most| Some(most) <= new.input.max_chars)
            }),
        ),
        (
            PATTERNS,
            !new.input.unsupported_patterns.is_empty(),
            asked(|old, new| {
                let known: BTreeSet<_> = old.input.unsupported_patterns.iter().collect();
                let mut wanted = new.input.unsupported_patterns.iter();
                wanted.all(|pattern| known.contains(pattern))
            }),
        ),
        (OFFERS, true, asked(same_offers)),
        (
            BURST,
            new.limits.burst.is_some(),
            asked(|old, new| {
                let of = |policy: &Policy| (policy.limits.burst, policy.limits.requests_per_minute);
                of(old) == of(new)
            }),
        ),
    ];
    let doubtful = all.into_iter().filter(|(_, asks, asked)| *asks && !asked);
    doubtful.map(|(rule, ..)| rule).collect()
}

fn same_offers(old: &Policy, new: &Policy) -> bool {
    let of = |policy: &Policy| {
        let rules = &policy.tools;
        let observed = [code::NOT_ALLOWED, HOSTED_DENIED].map(|code| rules.observes(code));
        (
            rules.allow.clone(),
            rules.deny.clone(),
            rules.on_offer,
            observed,
        )
    };
    of(old) == of(new)
}

/// A list said no, and not a member of the request or a name that leads nowhere.
fn was_denied(setting: &Setting, entry: &Entry) -> bool {
    let Some(old) = setting.version(entry.policy.as_deref()) else {
        return entry.code.as_deref() == Some("model_denied");
    };
    let asked = entry.requested_model.as_deref().unwrap_or_default();
    let (name, routes) = setting.names.lead(asked);
    judge_leading(&old.models, name, routes.into_iter()) != Access::Allowed
}

/// It went somewhere where its model's name does not lead.
fn went_by_role(setting: &Setting, entry: &Entry) -> bool {
    let Some((asked, model)) = entry
        .requested_model
        .as_deref()
        .zip(entry.resolved_model.as_deref())
    else {
        return false;
    };
    match setting.names.lead(asked) {
        (name, routes) if routes.is_empty() => name != model,
        (_, routes) => !routes.contains(&model),
    }
}

/// Codes of limits that the ledger can answer.
const LIMITS: &[&str] = &[
    "price_unknown",
    "policy_unavailable",
    "rate_limit_exceeded",
    "insufficient_quota",
    "max_steps_exceeded",
    "run_deadline_exceeded",
    "parallel_units_exceeded",
];
const MAX_CHARS: &str = "input.max_chars";
const PATTERNS: &str = "input.unsupported_patterns";
/// Offered tools: their names are in no record.
const OFFERS: &str = "tools.on_offer";
const BURST: &str = "limits.burst";
