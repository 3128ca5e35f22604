//! Runs as they would stand. Their number is bounded: those that were quiet for longest go first.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::{accounts::Account, entry::Entry};
use crate::engine::{
    budget::{LimitSpec, Unit},
    policy::Policy,
    run::{CONVERSATION, MissingRun, PER_KEY, Past, Run, RunGuard, RunRules},
};

/// Runs in memory at once.
const MOST: usize = 50_000;

pub(super) struct RunState {
    /// Asked the questions that a serving process asks.
    pub guard: RunGuard,
    pub accounts: Vec<Account>,
    /// Requests of it that are open.
    pub open: u64,
    /// Whether a new user input can be told from the one before.
    pub sees_input: bool,
    /// The last user input that is known of, as a digest.
    pub input: Box<str>,
    /// A call was let through whose result is data from outside.
    pub brings_in: bool,
    seen_ms: i64,
}

impl RunState {
    /// What the record of a request tells of its conversation.
    pub fn note(&mut self, entry: &Entry) {
        let told = entry.input_sha256.as_ref();
        if let Some(input) = told {
            self.sees_input = true;
            self.input = input.clone();
        }
        // Where nobody wrote it down, the result of a call is taken to have come back.
        let tainted = told.map_or(self.brings_in, |_| entry.tainted);
        self.guard.lock().tainted |= tainted;
    }
}

pub(super) struct Runs {
    policy: Arc<Policy>,
    all: HashMap<Box<str>, RunState>,
    /// Runs of which no more is known.
    pub forgotten: u64,
    /// Runs that began before the first record.
    pub begun_before: u64,
}

/// Which run a request would belong to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Belongs<'e> {
    To(&'e str),
    Nowhere,
    /// The record does not tell.
    Unknown,
    /// It would be refused for naming none.
    Refused,
}

impl<'e> Belongs<'e> {
    pub fn of(rules: &RunRules, recorded: Option<&'e str>) -> Self {
        let own = |run: &&str| run.starts_with(CONVERSATION) || *run == PER_KEY;
        match (recorded, rules.missing_run_id) {
            (Some(named), _) if !own(&named) => Self::To(named),
            (_, MissingRun::Refuse) => Self::Refused,
            (_, MissingRun::Unlimited) => Self::Nowhere,
            (_, MissingRun::PerKey) => Self::To(PER_KEY),
            (Some(run), MissingRun::Conversation) if run != PER_KEY => Self::To(run),
            (_, MissingRun::Conversation) => Self::Unknown,
        }
    }
}

impl Runs {
    pub fn new(policy: Arc<Policy>) -> Self {
        Self {
            policy,
            all: HashMap::new(),
            forgotten: 0,
            begun_before: 0,
        }
    }

    pub fn name(key: &str, run: &str) -> Box<str> {
        format!("{key}/{run}").into()
    }

    /// The run of that name; begun now, with `before` requests behind it, if it is new here.
    pub fn enter(&mut self, (key, run): (&str, &str), before: u64, at_ms: i64) -> Box<str> {
        let name = Self::name(key, run);
        if let Some(known) = self.all.get_mut(&name) {
            known.seen_ms = at_ms;
            return name;
        }
        if self.all.len() >= MOST {
            self.forget();
        }
        self.begun_before += u64::from(before > 0);
        let fresh = self.begin((key, run), before, at_ms);
        self.all.insert(name.clone(), fresh);
        name
    }

    pub fn find(&mut self, name: &str) -> Option<&mut RunState> {
        self.all.get_mut(name)
    }

    /// No request is open any more.
    pub fn close_all(&mut self) {
        self.all.values_mut().for_each(|run| run.open = 0);
    }

    fn begin(&self, (key, run): (&str, &str), before: u64, at_ms: i64) -> RunState {
        let (rules, calendar) = (&self.policy.run, &self.policy.budget.calendar);
        let specs = LimitSpec::of_run(key, run, rules, calendar);
        let accounts = specs.into_iter().map(|spec| {
            let used = match spec.unit {
                Unit::Requests => before,
                Unit::Tokens | Unit::Cost => 0,
            };
            Account::new(spec, used, at_ms)
        });
        let mut state = Run::begin(at_ms, &self.policy.label);
        state.steps = before;
        RunState {
            guard: RunGuard {
                rules: rules.clone(),
                loops: self.policy.loops.clone(),
                past: Past::default(),
                state: Arc::new(Mutex::new(state)),
            },
            accounts: accounts.collect(),
            open: 0,
            sees_input: run.starts_with(CONVERSATION),
            input: "".into(),
            brings_in: false,
            seen_ms: at_ms,
        }
    }

    /// The half that was quiet for longest.
    fn forget(&mut self) {
        let mut seen: Vec<i64> = self.all.values().map(|run| run.seen_ms).collect();
        let middle = seen.len() / 2;
        let (_, cut, _) = seen.select_nth_unstable(middle);
        let (cut, before) = (*cut, self.all.len());
        self.all.retain(|_, run| run.seen_ms > cut || run.open > 0);
        self.forgotten += (before - self.all.len()) as u64;
    }
}
