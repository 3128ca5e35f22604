//! What runs came to: the records of the ledger folded, each run into one line.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

/// One run of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RunTally {
    pub run: String,
    pub key: String,
    /// `id@version` that judged last.
    pub policy: Option<String>,
    /// As resolved.
    pub models: BTreeSet<String>,
    pub tags: BTreeSet<String>,
    /// Milliseconds since 1970, as is `last_at`.
    pub begun_at: i64,
    pub last_at: i64,
    /// Requests that were admitted.
    pub steps: u64,
    /// Attempts at providers, failed ones too.
    pub model_calls: u64,
    /// Calls that the client got, each kind once.
    pub tool_calls: u64,
    pub blocked_calls: u64,
    pub tokens: u64,
    pub cost_nano_usd: u64,
    pub duration_ms: i64,
    /// What its last request ended with, if that was no answer as wished.
    pub code: Option<String>,
    /// As its caller told: `success`, `failure`, `abandoned`.
    pub outcome: Option<String>,
    pub escalations: u64,
}

/// Runs by key and name.
#[derive(Debug, Default)]
pub struct Tallies(BTreeMap<(String, String), RunTally>);

/// The kinds that say something of a run.
pub const KINDS: &[&str] = &[
    "request_started",
    "attempt_failed",
    "request_settled",
    "request_refused",
    "call_judged",
    "escalation",
    "run_reported",
];

impl Tallies {
    /// Takes a record; they come oldest first.
    pub fn see(&mut self, record: &Value) {
        let (Some(key), Some(run)) = (text(record, "key"), text(record, "run")) else {
            return;
        };
        let at = number(record, "at");
        let fresh = || RunTally {
            run: run.clone(),
            key: key.clone(),
            begun_at: at,
            ..RunTally::default()
        };
        let named = self.0.entry((key.clone(), run.clone()));
        named.or_insert_with(fresh).see(record, at);
    }

    /// The last heard of first.
    pub fn newest_first(self) -> Vec<RunTally> {
        let mut all: Vec<_> = self.0.into_values().collect();
        all.sort_by_key(|tally| std::cmp::Reverse(tally.last_at));
        all
    }
}

impl RunTally {
    fn see(&mut self, record: &Value, at: i64) {
        let kind = text(record, "kind").unwrap_or_default();
        if kind == "run_reported" {
            // It comes whenever its caller likes: no work of the run.
            self.outcome = text(record, "outcome");
            return;
        }
        self.last_at = self.last_at.max(at);
        self.duration_ms = self.last_at - self.begun_at;
        self.policy = text(record, "policy").or(self.policy.take());
        match kind.as_str() {
            "request_started" => self.started(record),
            "attempt_failed" => self.model_calls += 1,
            "request_settled" => self.settled(record),
            "request_refused" => self.code = text(record, "code"),
            "call_judged" => self.judged(record),
            "escalation" if text(record, "outcome").as_deref() != Some("pending") => {}
            "escalation" => self.escalations += 1,
            _ => {}
        }
    }

    fn started(&mut self, record: &Value) {
        self.code = None;
        if record.get("step").is_some() {
            self.steps += 1;
        }
        let tags = record.get("tags").and_then(Value::as_array);
        let tags = tags.into_iter().flatten().filter_map(Value::as_str);
        self.tags.extend(tags.map(str::to_owned));
    }

    fn settled(&mut self, record: &Value) {
        // Who comes back for a parked answer makes no new step and asks no provider.
        self.model_calls += u64::from(record.get("step").is_some());
        self.models.extend(text(record, "resolved_model"));
        self.tokens += count(record, "input_tokens") + count(record, "output_tokens");
        self.cost_nano_usd += count(record, "cost_nano_usd");
        let outcome = text(record, "outcome");
        if let Some(outcome) = outcome.filter(|outcome| outcome != "completed") {
            self.code = Some(outcome);
        }
    }

    fn judged(&mut self, record: &Value) {
        let is = |name: &str| record.get(name) == Some(&Value::Bool(true));
        match text(record, "blocked") {
            Some(code) => {
                self.blocked_calls += 1;
                self.code = Some(code);
            }
            None if is("delivered") && !is("idempotent_replay") => self.tool_calls += 1,
            None => {}
        }
    }
}

fn text(record: &Value, name: &str) -> Option<String> {
    Some(record.get(name)?.as_str()?.to_owned())
}

fn number(record: &Value, name: &str) -> i64 {
    record.get(name).and_then(Value::as_i64).unwrap_or_default()
}

fn count(record: &Value, name: &str) -> u64 {
    record.get(name).and_then(Value::as_u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_is_what_its_records_say() {
        let mut all = Tallies::default();
        for record in [
            json!({"kind": "request_started", "at": 1_000, "key": "k", "run": "r", "policy": "p@1", "step": 1, "tags": ["b", "a"]}),
            json!({"kind": "attempt_failed", "at": 1_100, "key": "k", "run": "r"}),
            json!({"kind": "call_judged", "at": 1_200, "key": "k", "run": "r", "delivered": true}),
            json!({"kind": "call_judged", "at": 1_200, "key": "k", "run": "r", "delivered": true, "idempotent_replay": true}),
            json!({"kind": "request_settled", "at": 1_300, "key": "k", "run": "r", "step": 1, "resolved_model": "m", "outcome": "completed",
                "input_tokens": 10, "output_tokens": 5, "cost_nano_usd": 7}),
            json!({"kind": "request_started", "at": 2_000, "key": "other", "run": "r", "step": 1}),
            json!({"kind": "request_refused", "at": 1_900, "key": "k", "run": "r", "step": 2, "code": "max_steps_exceeded"}),
            json!({"kind": "run_reported", "at": 9_000, "key": "k", "run": "r", "outcome": "failure"}),
            json!({"kind": "request_settled", "at": 3_000, "key": "k"}),
        ] {
            all.see(&record);
        }
        let all = all.newest_first();
        let runs: Vec<_> = all.iter().map(|one| (&*one.key, one.steps)).collect();
        assert_eq!(runs, [("other", 1), ("k", 1)]);
        let told = serde_json::to_value(&all[1]).unwrap();
        let expected = json!({"run": "r", "key": "k", "policy": "p@1", "models": ["m"], "tags": ["a", "b"],
            "begun_at": 1_000, "last_at": 1_900, "steps": 1, "model_calls": 2, "tool_calls": 1,
            "blocked_calls": 0, "tokens": 15, "cost_nano_usd": 7, "duration_ms": 900,
            "code": "max_steps_exceeded", "outcome": "failure", "escalations": 0});
        assert_eq!(told, expected);
    }
}
