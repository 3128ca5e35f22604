//! What follows when an attempt at a provider fails: another attempt, where, and how soon; and
//! which providers are left alone for a while (`breaker`).

mod breaker;
#[cfg(test)]
mod tests;

pub use self::breaker::{Breaker, BreakerRules, Change, Verdict};

/// `[retry]` of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryRules {
    /// Attempts after the first. `None`: one at each further route.
    pub max_retries: Option<u32>,
    /// Before a provider is asked a second time; twice as long before the third. Milliseconds.
    pub backoff_ms: u64,
    /// Also when the first attempt may have been worked on, and will then be paid twice.
    pub after_timeout: bool,
}

impl Default for RetryRules {
    fn default() -> Self {
        Self {
            max_retries: None,
            backoff_ms: 1_000,
            after_timeout: false,
        }
    }
}

/// How an attempt failed, as far as it matters for the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The request certainly was not worked on.
    NotReached,
    /// It may have been: no answer came in time, or the connection broke.
    Unknown,
    /// An error status, which costs nothing.
    Answered(u16),
}

impl Failure {
    /// The status of an answer that says more about the provider than about the request.
    pub fn of_status(status: u16) -> Option<Self> {
        let transient = matches!(status, 401 | 408 | 429 | 500..=599);
        transient.then_some(Self::Answered(status))
    }

    /// As records and metrics name it.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotReached => "unreachable",
            Self::Unknown => "no_answer",
            Self::Answered(429) => "rate_limited",
            Self::Answered(401) => "credential_refused",
            Self::Answered(_) => "error_status",
        }
    }

    /// Whether the provider was at work on it when it gave up: a gateway's word for "too long".
    pub fn may_have_been_worked_on(self) -> bool {
        matches!(self, Self::Unknown | Self::Answered(408 | 504))
    }

    /// Whether the same provider would say the same again.
    fn is_lasting(self) -> bool {
        self == Self::Answered(401)
    }
}

/// The attempts of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// How many were made.
    pub made: u32,
    /// Routes there are.
    pub routes: u32,
}

/// The next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// The route's place in the order.
    pub route: u32,
    /// Milliseconds to wait before it.
    pub after_ms: u64,
}

impl Next {
    /// The wait, spread so that requests which failed together do not come back together: from
    /// half of it to the whole, yet never before what the provider asked for, and up to a quarter
    /// after that. `draw` is any number, a different one for each request.
    pub fn spread_ms(self, wanted_ms: Option<u64>, draw: u64) -> u64 {
        let wanted = wanted_ms.unwrap_or(0);
        let least = (self.after_ms / 2).max(wanted);
        let most = self.after_ms.max(wanted.saturating_add(wanted / 4));
        least + draw % (most.saturating_sub(least) + 1)
    }
}

/// A provider that wants to be left alone for longer is not waited for. Milliseconds.
const LONGEST_WAIT_MS: u64 = 10_000;

impl RetryRules {
    /// What follows a failed attempt; `None`: its failure is the answer. Each route is tried
    /// once before any is tried again. `wanted_ms`: how long the provider asked to be left
    /// alone.
    pub fn next(&self, failure: Failure, at: Attempts, wanted_ms: Option<u64>) -> Option<Next> {
        let further = at.routes.saturating_sub(1);
        let left = self.max_retries.unwrap_or(further);
        if at.made > left || (failure.may_have_been_worked_on() && !self.after_timeout) {
            return None;
        }
        let route = at.made.checked_rem(at.routes)?;
        let round = at.made / at.routes;
        if round == 0 {
            return Some(Next { route, after_ms: 0 });
        }
        if failure.is_lasting() {
            return None;
        }
        let grown = self.backoff_ms.saturating_mul(1 << (round - 1).min(16));
        let after_ms = grown.max(wanted_ms.unwrap_or(0));
        (wanted_ms.unwrap_or(0) <= LONGEST_WAIT_MS).then_some(Next {
            route,
            after_ms: after_ms.min(LONGEST_WAIT_MS),
        })
    }

    /// How many attempts may have to be paid, of which but one is in vain.
    pub fn paid_attempts(&self, routes: u32) -> u64 {
        let further = self.max_retries.unwrap_or(routes.saturating_sub(1));
        match self.after_timeout {
            true => u64::from(further) + 1,
            false => 1,
        }
    }
}
