//! A provider's breaker: closed while it does well; open after too many failures or slow answers,
//! when requests that can go elsewhere do; half open to let one request find out.

/// `[providers.NAME.breaker]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerRules {
    /// So many of a hundred may fail.
    pub failure_percent: u8,
    /// Fewer requests in the window say nothing.
    pub min_requests: u32,
    pub window_ms: i64,
    /// An answer whose head takes longer counts as a failure. `None`: however long.
    pub slow_ms: Option<i64>,
    /// How long it stays open before one request may try again.
    pub open_ms: i64,
}

impl Default for BreakerRules {
    fn default() -> Self {
        Self {
            failure_percent: 50,
            min_requests: 10,
            window_ms: 30_000,
            slow_ms: None,
            open_ms: 15_000,
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Answered, after so many milliseconds.
    Answered(i64),
    Failed,
    /// It says nothing about the provider: the client left.
    Nothing,
}

/// What an attempt's end changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Opened,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        until_ms: i64,
    },
    /// One request is finding out; others wait for its word, but not for ever.
    HalfOpen {
        since_ms: i64,
    },
}

#[derive(Debug, Clone)]
pub struct Breaker {
    rules: BreakerRules,
    state: State,
    /// The window in tenths, each with its number; older ones are overwritten.
    counts: [Tenth; TENTHS],
}

#[derive(Debug, Clone, Copy, Default)]
struct Tenth {
    number: i64,
    all: u32,
    failed: u32,
}

const TENTHS: usize = 10;

impl Breaker {
    pub fn new(rules: BreakerRules) -> Self {
        Self {
            rules,
            state: State::Closed,
            counts: Default::default(),
        }
    }

    /// New rules begin with a closed breaker.
    pub fn follow(&mut self, rules: BreakerRules) {
        if self.rules != rules {
            *self = Self::new(rules);
        }
    }

    /// Whether a request may go there now. One that may although it is not closed must tell how
    /// it went.
    pub fn admits(&mut self, now_ms: i64) -> bool {
        let finds_out = match self.state {
            State::Closed => return true,
            State::Open { until_ms } => now_ms >= until_ms,
            State::HalfOpen { since_ms } => now_ms - since_ms >= self.rules.open_ms,
        };
        if finds_out {
            self.state = State::HalfOpen { since_ms: now_ms };
        }
        finds_out
    }

    /// How an attempt ended.
    pub fn note(&mut self, verdict: Verdict, now_ms: i64) -> Option<Change> {
        let failed = match verdict {
            Verdict::Nothing => return None,
            Verdict::Failed => true,
            Verdict::Answered(took) => self.rules.slow_ms.is_some_and(|slow| took > slow),
        };
        match self.state {
            State::HalfOpen { .. } if failed => self.open(now_ms),
            State::HalfOpen { .. } => {
                *self = Self::new(self.rules);
                Some(Change::Closed)
            }
            // An attempt from before it opened says nothing new.
            State::Open { .. } => None,
            State::Closed => {
                self.count(failed, now_ms);
                self.is_too_much(now_ms).then(|| self.open(now_ms))?
            }
        }
    }

    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    fn open(&mut self, now_ms: i64) -> Option<Change> {
        self.state = State::Open {
            until_ms: now_ms + self.rules.open_ms,
        };
        Some(Change::Opened)
    }

    fn count(&mut self, failed: bool, now_ms: i64) {
        let number = self.tenth(now_ms);
        let place = usize::try_from(number.rem_euclid(TENTHS as i64)).unwrap_or(0);
        let Some(tenth) = self.counts.get_mut(place) else {
            return;
        };
        if tenth.number != number {
            *tenth = Tenth {
                number,
                ..Tenth::default()
            };
        }
        tenth.all += 1;
        tenth.failed += u32::from(failed);
    }

    fn is_too_much(&self, now_ms: i64) -> bool {
        let now = self.tenth(now_ms);
        let within = |tenth: &&Tenth| now - tenth.number < TENTHS as i64;
        let (all, failed) = self
            .counts
            .iter()
            .filter(within)
            .fold((0_u64, 0_u64), |(all, failed), tenth| {
                (all + u64::from(tenth.all), failed + u64::from(tenth.failed))
            });
        all >= u64::from(self.rules.min_requests)
            && failed * 100 >= all * u64::from(self.rules.failure_percent)
    }

    fn tenth(&self, now_ms: i64) -> i64 {
        now_ms / (self.rules.window_ms / TENTHS as i64).max(1)
    }
}
