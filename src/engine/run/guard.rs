//! The run as one request's judge sees it: shared with the other requests of the run, and locked
//! for as long as one question takes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{LoopRules, Made, OnReplay, OrderRules, Past, Run, RunRules, Stop, Taken};

#[derive(Debug)]
pub struct RunGuard {
    pub rules: RunRules,
    pub loops: LoopRules,
    /// What the request's own conversation shows.
    pub past: Past,
    pub state: Arc<Mutex<Run>>,
}

/// A call that counts, so that it can be given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub made: Made,
    pub key: String,
    pub taken: Taken,
}

impl RunGuard {
    pub fn looks_for_loops(&self) -> bool {
        !self.loops.is_empty()
    }

    pub fn check_order(&self, order: &OrderRules, tainted: bool, tool: &str) -> Result<(), Stop> {
        if order.is_empty() {
            return Ok(());
        }
        self.lock().check_order(&self.past, order, tainted, tool)
    }

    pub fn check_loops(&self, call: &Made) -> Result<(), Stop> {
        self.lock().check_loops(&self.past, &self.loops, call)
    }

    /// Counts a call that passed every layer, asking once more what only the lock can answer.
    /// `key` is what identifies it; `replays` whether the same call may pass again.
    ///
    /// # Errors
    /// The run has no calls left, another request of it was faster, or it is a replay that may
    /// not pass.
    pub fn take(
        &self,
        order: Option<&OrderRules>,
        (made, key): (Made, String),
        replays: Option<bool>,
    ) -> Result<Token, Stop> {
        let mut run = self.lock();
        if let Some(most) = order.and_then(|order| order.max_calls) {
            let once_more = OrderRules {
                max_calls: Some(most),
                ..OrderRules::default()
            };
            run.check_order(&self.past, &once_more, false, &made.tool)?;
        }
        let taken = run.take(&self.rules, made.clone(), &key)?;
        let passes = replays.unwrap_or(self.rules.on_replay == OnReplay::Pass);
        if taken == Taken::Replay && !passes {
            run.give_back(&made, &key);
            return Err(Stop {
                code: "idempotent_replay",
                rule: "run.on_replay",
                message: "This call was made before in this run.".to_owned(),
            });
        }
        Ok(Token { made, key, taken })
    }

    pub fn give_back(&self, token: &Token) {
        self.lock().give_back(&token.made, &token.key);
    }

    pub fn lock(&self) -> MutexGuard<'_, Run> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
