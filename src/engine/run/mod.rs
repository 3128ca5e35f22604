//! A run: what one agent does for one task. Its limits, what it has done, and when it goes round
//! in circles. Pure; whoever shares a run between requests locks it.

mod breaker;
mod guard;
mod loops;
mod report;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::{
    breaker::{Action, BreakerState, Effect, Escalated, Escalation, Looped, Reason},
    guard::{RunGuard, Token},
    loops::{LoopRules, OnOpen},
    report::{Report, ReportReason, RunOutcome},
    rules::{CONVERSATION, MissingRun, OnReplay, OrderRules, PER_KEY, RunRules},
};

/// More different calls are not told apart in one run; the oldest are forgotten.
const MOST_MADE: usize = 4_096;

/// A call that was let through: which tool, with which arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// As rules and contracts call the tool.
    pub tool: String,
    /// SHA-256 of the canonical arguments, in hexadecimal.
    pub digest: String,
}

/// What a run has done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Milliseconds since 1970.
    pub begun_ms: i64,
    /// `id@version` of the policy that it began with.
    pub policy: String,
    /// Requests that were admitted.
    pub steps: u64,
    /// Calls that were let through, each kind once.
    pub calls: u64,
    /// Calls let through, by tool.
    by_tool: BTreeMap<String, u64>,
    /// Calls let through since the last user input, oldest first.
    recent: Vec<Made>,
    /// What identifies calls that must not be counted twice.
    keys: Vec<String>,
    /// How often a counted call was let through again.
    #[serde(default)]
    repeats: BTreeMap<String, u64>,
    /// The last user input that was seen, as a digest: a new one forgives repetitions.
    input: String,
    /// Data from outside has entered.
    pub tainted: bool,
    /// A loop was found and no new user input has come since.
    pub open: bool,
    /// Set if a loop was found: requests after this one are on trial.
    #[serde(default)]
    half_open: Option<u64>,
    /// So many routes are passed over until a user says something new.
    #[serde(default)]
    passed_over: u32,
    /// Helped on, with an effect that is not known yet.
    #[serde(default)]
    escalation: Option<Escalation>,
    /// Its result was turned down by a verifier, and no later report has come.
    #[serde(default)]
    turned_down: Option<Escalation>,
    /// The code by which it ended, if it did.
    pub ended: Option<String>,
}

/// What a request adds to the record of calls: those that its own history shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Past {
    /// Calls since the last user input, oldest first.
    pub recent: Vec<Made>,
    /// Tools that were called at any time.
    pub tools: Vec<String>,
    /// What tools answered since the last user input, as digests, oldest first.
    pub outputs: Vec<String>,
}

/// Why a call, or a request, is not let through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    pub code: &'static str,
    pub rule: &'static str,
    pub message: String,
}

/// What became of a call that may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Counted.
    Fresh,
    /// The same as one before it: not counted again.
    Replay,
}

impl Run {
    pub fn begin(now_ms: i64, policy: &str) -> Self {
        Self {
            begun_ms: now_ms,
            policy: policy.to_owned(),
            ..Self::default()
        }
    }

    /// A request of this run, whose last user input has this digest. Gives the escalation that
    /// a new input ends.
    ///
    /// # Errors
    /// The run is past its deadline, or its breaker is open.
    pub fn enter(
        &mut self,
        rules: &RunRules,
        input: &str,
        now_ms: i64,
    ) -> Result<Option<Escalated>, Stop> {
        let mut ended = None;
        if self.input != input {
            self.input = input.to_owned();
            self.recent.clear();
            ended = self.forgive();
        }
        if let Some(most) = rules.max_runtime_ms
            && now_ms - self.begun_ms >= most
        {
            return Err(self.end(Stop {
                code: "run_deadline_exceeded",
                rule: "run.max_runtime",
                message: format!("This run began more than {} seconds ago.", most / 1000),
            }));
        }
        if self.open {
            return Err(Stop {
                code: "circuit_open",
                rule: "loops",
                message: "This run went round in circles and was stopped; a new message of a \
                          user lets it go on."
                    .to_owned(),
            });
        }
        Ok(ended)
    }

    /// Counts an admitted request; gives its number.
    pub fn step(&mut self) -> u64 {
        self.steps += 1;
        self.steps
    }

    /// Remembers how the run ended.
    pub fn end(&mut self, stop: Stop) -> Stop {
        self.ended = Some(stop.code.to_owned());
        stop
    }

    /// Whether order and counts let the call pass: layer 7.
    pub fn check_order(
        &self,
        past: &Past,
        order: &OrderRules,
        tainted: bool,
        tool: &str,
    ) -> Result<(), Stop> {
        let stop = |rule, message| Stop {
            code: "sequence_violation",
            rule,
            message,
        };
        if order.never_after_untrusted && (tainted || self.tainted) {
            let message = "Data from outside has entered this run, and the tool may not be called \
                           after that.";
            return Err(stop("contract.never_after_untrusted", message.to_owned()));
        }
        let done = |tool: &str| {
            self.by_tool.contains_key(tool) || past.tools.iter().any(|known| known == tool)
        };
        if let Some(missing) = order.after.iter().find(|tool| !done(tool)) {
            let message = format!("The tool may only be called after \"{missing}\" was.");
            return Err(stop("contract.after", message));
        }
        if let Some(most) = order.max_calls
            && self.by_tool.get(tool).copied().unwrap_or(0) >= most
        {
            let message = format!("The tool may be called {most} times in a run, and was.");
            return Err(stop("contract.max_calls_per_run", message));
        }
        Ok(())
    }

    /// Counts a call that passed every layer. `key` is what identifies it for idempotency.
    ///
    /// # Errors
    /// The run has no calls left.
    pub fn take(&mut self, rules: &RunRules, call: Made, key: &str) -> Result<Taken, Stop> {
        if self.knows(key) {
            *self.repeats.entry(key.to_owned()).or_default() += 1;
            self.push(call);
            return Ok(Taken::Replay);
        }
        if let Some(most) = rules.max_tool_calls
            && self.calls >= most
        {
            return Err(Stop {
                code: "run_tool_calls_exceeded",
                rule: "run.max_tool_calls",
                message: format!("This run may make {most} tool calls, and has."),
            });
        }
        self.calls += 1;
        *self.by_tool.entry(call.tool.clone()).or_default() += 1;
        self.keys.push(key.to_owned());
        if self.keys.len() > MOST_MADE {
            let forgotten = self.keys.remove(0);
            self.repeats.remove(&forgotten);
        }
        self.push(call);
        Ok(Taken::Fresh)
    }

    /// Whether a call that is identified so was counted.
    pub fn knows(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    /// Takes back what `take` counted: the client did not get the call. While another request has
    /// let the same call through, it stays counted, whoever was first.
    pub fn give_back(&mut self, call: &Made, key: &str) {
        if let Some(at) = self.recent.iter().rposition(|made| made == call) {
            self.recent.remove(at);
        }
        if let Some(repeats) = self.repeats.get_mut(key) {
            *repeats -= 1;
            if *repeats == 0 {
                self.repeats.remove(key);
            }
        } else if self.knows(key) {
            self.calls = self.calls.saturating_sub(1);
            if let Some(count) = self.by_tool.get_mut(&call.tool) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.by_tool.remove(&call.tool);
                }
            }
            self.keys.retain(|known| known != key);
        }
    }

    fn push(&mut self, call: Made) {
        self.recent.push(call);
        if self.recent.len() > MOST_MADE {
            self.recent.remove(0);
        }
    }
}
