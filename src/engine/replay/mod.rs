//! What another policy would have decided about what is on record: requests and calls are taken
//! from the ledger in their order, and the rules are asked again by the functions that decide
//! about live ones.
//!
//! Clients and models are taken to have done what they did: a request that would be refused
//! costs nothing, and its calls are not made; one that was refused then and would pass now costs
//! nobody knows what, and counts as one request. Contracts, prices, and limits of tenants and of
//! all are those of now. What only content could tell is counted as undecided.

mod accounts;
mod calls;
mod doubts;
mod entry;
mod follow;
mod report;
mod requests;
mod runs;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use self::{
    accounts::Accounts,
    report::Tally,
    requests::{KeyState, Open},
    runs::Runs,
};
pub use self::{
    accounts::Used,
    entry::{Call, Entry, Kind, LayerOutcome, LayerResult},
    report::{Cost, Counts, Decision, Difference, Of, Report, Row},
};
use crate::engine::{
    budget::Window,
    contract::Contracts,
    policy::{Budget, Policy},
    pricing::{Rates, RatesAt},
};

/// The rates of a model at a provider, known by these names, at that instant.
pub type PriceOf = Box<dyn Fn(&str, &[&str], i64) -> Option<Arc<RatesAt>> + Send>;

/// What records are judged by.
pub struct Setting {
    pub policy: Arc<Policy>,
    pub whose: Whose,
    /// Versions that may have judged then.
    pub versions: Vec<Arc<Policy>>,
    pub contracts: Arc<Contracts>,
    pub names: Names,
    pub tenant_budgets: HashMap<Arc<str>, Budget>,
    pub global_budget: Option<Budget>,
    /// Which tenant each key belongs to.
    pub tenants: HashMap<Arc<str>, Arc<str>>,
    pub price_of: PriceOf,
    /// Milliseconds since 1970: from the first, before the second.
    pub from_ms: i64,
    pub to_ms: i64,
}

/// Whose records are judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    Key(Box<str>),
    /// Whatever a version of the same policy judged then.
    Policy,
}

/// What names of models lead to.
#[derive(Debug, Clone, Default)]
pub struct Names {
    pub providers: HashSet<Box<str>>,
    /// Aliases, and the models of their routes in order.
    pub routes: HashMap<Box<str>, Vec<Box<str>>>,
}

impl Names {
    /// The name that is judged, and the models that it leads to if it is an alias.
    pub fn lead<'n>(&'n self, asked: &'n str) -> (&'n str, Vec<&'n str>) {
        if let Some(routes) = self.routes.get(asked) {
            return (asked, routes.iter().map(|route| &**route).collect());
        }
        match asked.split_once('/') {
            Some((provider, model)) if self.providers.contains(provider) => (model, Vec::new()),
            _ => (asked, Vec::new()),
        }
    }

    /// How many places a name leads to.
    pub fn routes(&self, asked: &str) -> u32 {
        let routes = self.routes.get(asked).map_or(1, Vec::len);
        u32::try_from(routes).unwrap_or(u32::MAX)
    }
}

/// A replay on its way.
pub struct Replay {
    setting: Setting,
    accounts: Accounts,
    keys: HashMap<Box<str>, KeyState>,
    runs: Runs,
    open: HashMap<Box<str>, Open>,
    prices: HashMap<Box<str>, (i64, Option<Arc<Rates>>)>,
    /// What a version of then leaves untold, by its label.
    doubts: HashMap<Box<str>, Vec<&'static str>>,
    tally: Tally,
}

/// Requests that are open at once; of more, all that was held counts.
const MOST_OPEN: usize = 100_000;
/// Prices that change by the hour are looked up again.
const HOUR_MS: i64 = 3_600_000;

impl Replay {
    pub fn new(setting: Setting) -> Self {
        let mut tally = Tally::default();
        tally.report.policy = Arc::clone(&setting.policy.label);
        (tally.report.from, tally.report.to) = (setting.from_ms, setting.to_ms);
        Self {
            accounts: Accounts::default(),
            keys: HashMap::new(),
            runs: Runs::new(Arc::clone(&setting.policy)),
            open: HashMap::new(),
            prices: HashMap::new(),
            doubts: HashMap::new(),
            tally,
            setting,
        }
    }

    /// Starts of periods that had begun before the first record: what was used in them until
    /// then counts, and is to be told by `carry`.
    pub fn begun(&self) -> Vec<i64> {
        let of_key = &self.setting.policy.budget;
        let shared = self.setting.tenant_budgets.values();
        let budgets = [of_key]
            .into_iter()
            .chain(shared)
            .chain(&self.setting.global_budget);
        let mut starts = Vec::new();
        for budget in budgets {
            let given = [
                (Window::Day, &budget.daily),
                (Window::Month, &budget.monthly),
                (Window::Total, &budget.total),
            ];
            let given = given.into_iter().filter(|(_, amounts)| !amounts.is_empty());
            starts.extend(given.map(|(window, _)| {
                let period = window.period(self.setting.from_ms, &budget.calendar);
                period.start_ms
            }));
        }
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// What a key had used between such a start and the first record.
    pub fn carry(&mut self, start_ms: i64, key: &str, used: Used) {
        self.accounts.carry(start_ms, key, used);
    }

    /// Takes a record; they come in the order in which they were written.
    pub fn see(&mut self, entry: &Entry) {
        if entry.at < self.setting.from_ms || entry.at >= self.setting.to_ms {
            return;
        }
        self.tally.report.records += 1;
        match entry.kind {
            // What an earlier process had open, nobody settles any more.
            Kind::Started => self.forfeit_all(entry.at),
            Kind::RequestStarted => self.started(entry),
            Kind::RequestSettled => self.settled(entry),
            Kind::RequestRefused => self.refused(entry),
            Kind::CallJudged => self.judged(entry),
            Kind::Other => {}
        }
    }

    pub fn end(mut self) -> Report {
        self.tally
            .undecided("run.begun_before", self.runs.begun_before);
        self.tally.undecided("run.forgotten", self.runs.forgotten);
        self.tally.end()
    }
}

impl Setting {
    fn version(&self, label: Option<&str>) -> Option<&Policy> {
        let known = self.versions.iter().find(|one| Some(&*one.label) == label);
        known.map(|policy| &**policy)
    }
}
