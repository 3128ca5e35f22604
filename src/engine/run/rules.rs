//! What a policy and a contract say of runs.

use std::num::NonZeroU64;

use crate::engine::money::Money;

/// `[run]`: what one run may use. An absent member sets no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunRules {
    pub max_cost: Option<Money>,
    pub max_tokens: Option<NonZeroU64>,
    /// From the first request to the last. Milliseconds.
    pub max_runtime_ms: Option<i64>,
    /// Requests.
    pub max_iterations: Option<NonZeroU64>,
    pub max_tool_calls: Option<u64>,
    /// Requests of the run that are open at once.
    pub max_parallel_units: Option<NonZeroU64>,
    pub missing_run_id: MissingRun,
    pub on_replay: OnReplay,
    /// An argument whose value says that two calls are the same one.
    pub idempotency_argument: Option<Box<str>>,
}

/// Which run a request without `X-Run-Id` belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingRun {
    /// Its key's requests with the same messages up to the last of a user.
    #[default]
    Conversation,
    /// All requests of its key without one.
    PerKey,
    Refuse,
    /// None: no limit of runs holds for it.
    Unlimited,
}

/// How a run is called that is known by its conversation; its digest follows.
pub const CONVERSATION: &str = "conversation:";
/// The run of all requests of a key that name none.
pub const PER_KEY: &str = "key";

/// What becomes of a call that the run has made before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnReplay {
    /// It passes, recorded as a replay and not counted again.
    #[default]
    Pass,
    Withhold,
}

/// What a contract says of order and counts in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrderRules {
    /// All of these were called before.
    pub after: Vec<Box<str>>,
    pub max_calls: Option<u64>,
    /// Not once data from outside has entered the run.
    pub never_after_untrusted: bool,
}

impl OrderRules {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl RunRules {
    /// Requests of a run that may be open at once; 0: any number.
    pub fn parallel(&self) -> u64 {
        self.max_parallel_units.map_or(0, NonZeroU64::get)
    }
}
