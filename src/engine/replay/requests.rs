//! Whether requests on record would be admitted: the questions of admission in its order, as far
//! as the ledger can answer them.

use std::sync::Arc;

use super::{
    Replay,
    accounts::{Account, Part, Used},
    entry::Entry,
    runs::{Belongs, RunState},
};
use crate::engine::{
    budget::{LimitSpec, Unit, largest},
    guard::model_access::judge_leading,
    policy::Budget,
    pricing::{Rates, Usage},
};

/// What a request may use at most; of one that was refused, the least that it can have wanted.
#[derive(Debug, Clone)]
pub(super) struct Need {
    input: u64,
    /// The output cap. 0: nobody counts what comes out.
    cap: u64,
    floor: u64,
    attempts: u64,
    rates: Option<Arc<Rates>>,
}

impl Need {
    fn amount(&self, unit: Unit, cap: u64) -> u64 {
        let once = match unit {
            Unit::Requests => return 1,
            Unit::Tokens => self.input.saturating_add(cap),
            Unit::Cost => {
                let worst = |rates: &Arc<Rates>| rates.worst(self.input, cap, false).nanos();
                self.rates.as_ref().map_or(0, worst)
            }
        };
        once.saturating_mul(self.attempts)
    }
}

/// A key's place in the accounts.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    /// In the order in which limits are asked.
    pub places: Vec<usize>,
    pub open: u64,
}

/// A request that was admitted then, until it is settled.
#[derive(Debug, Default)]
pub(super) struct Open {
    pub key: Box<str>,
    /// Its run's name, where it would belong to one.
    pub run: Option<Box<str>>,
    pub step: u64,
    pub routes: u32,
    pub tainted: Option<bool>,
    /// It is given an answer that was parked for another.
    pub resumed: bool,
    /// A loop was found in its answer.
    pub looped: bool,
    /// `None`: it would be refused.
    pub held: Option<Held>,
}

/// What an admitted request holds.
#[derive(Debug)]
pub(super) struct Held {
    parts: Vec<(Place, Unit, Part)>,
    /// The output cap that would go upstream, and the rule that lowers it.
    cap: Option<(u64, Box<str>)>,
    cap_then: Option<u64>,
    rates: Option<Arc<Rates>>,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    OfRun(usize),
    OfKey(usize),
}

/// Who asks, in its run.
pub(super) struct Asker {
    pub key: Box<str>,
    pub run: Option<Box<str>>,
}

impl Replay {
    /// Asks everything that the ledger can answer.
    ///
    /// # Errors
    /// The rule that says no.
    pub(super) fn admit(&mut self, entry: &Entry, asker: &Asker) -> Result<Held, Box<str>> {
        self.check_model(entry)?;
        self.check_run(entry, asker)?;
        let counts_cost = self.counts(asker, Unit::Cost);
        let rates = match counts_cost {
            true => Some(self.rates(entry).ok_or("price_unknown")?),
            false => None,
        };
        let need = self.need(entry, asker, rates);
        self.hold(&need, asker, entry)
    }

    fn check_model(&self, entry: &Entry) -> Result<(), Box<str>> {
        let Some(asked) = entry.requested_model.as_deref() else {
            return Ok(());
        };
        let (name, mut routes) = self.setting.names.lead(asked);
        routes.extend(entry.resolved_model.as_deref());
        let rules = &self.setting.policy.models;
        match judge_leading(rules, name, routes.into_iter()).rule() {
            Some(rule) if !rules.observe => Err(rule.into()),
            _ => Ok(()),
        }
    }

    /// The run would take the request in.
    fn check_run(&mut self, entry: &Entry, asker: &Asker) -> Result<(), Box<str>> {
        let rules = &self.setting.policy.run;
        if self.setting.policy.bounds_runs()
            && Belongs::of(rules, entry.run.as_deref()) == Belongs::Refused
        {
            return Err("run.missing_run_id".into());
        }
        let Some(run) = find(&mut self.runs, asker) else {
            return Ok(());
        };
        run.note(entry);
        let entered = run
            .guard
            .lock()
            .enter(&run.guard.rules, &run.input, entry.at);
        entered.map(|_| ()).map_err(|stop| stop.rule.into())
    }

    fn need(&self, entry: &Entry, asker: &Asker, rates: Option<Arc<Rates>>) -> Need {
        let budget = &self.setting.policy.budget;
        let bound = entry.reserved_tokens;
        let cap = self.cap(entry, asker).unwrap_or(0);
        let routes = entry.requested_model.as_deref();
        let routes = routes.map_or(1, |asked| self.setting.names.routes(asked));
        Need {
            input: entry
                .input_bound
                .unwrap_or(bound.saturating_sub(entry.output_cap.unwrap_or(0))),
            cap,
            floor: budget.min_output_tokens.min(cap),
            attempts: self.setting.policy.retry.paid_attempts(routes),
            rates,
        }
    }

    /// The output cap before limits lower it. What the client wanted is known as far as it was
    /// granted then.
    fn cap(&self, entry: &Entry, asker: &Asker) -> Option<u64> {
        let budget = &self.setting.policy.budget;
        let needed = self.counts(asker, Unit::Cost) || self.counts(asker, Unit::Tokens);
        let most = budget.max_output_tokens.map(u64::from);
        let default = budget.default_output_tokens.map(u64::from).or(most);
        let assumed = needed.then_some(Budget::ASSUMED_OUTPUT);
        let wanted = entry.output_cap.or(default).or(assumed);
        [wanted, most].into_iter().flatten().min()
    }

    /// Reserves from all accounts, all or nothing.
    fn hold(&mut self, need: &Need, asker: &Asker, entry: &Entry) -> Result<Held, Box<str>> {
        self.check_parallel(asker)?;
        let now_ms = entry.at;
        let mut left = Vec::new();
        self.each_account(asker, |place, account| {
            let unit = account.spec.unit;
            left.push((place, unit, account.left(now_ms), name_of(&account.spec)));
        });
        let short = |cap| {
            let mut all = left.iter();
            all.find(|(_, unit, left, _)| need.amount(*unit, cap) > *left)
        };
        let Some(cap) = largest(need.floor, need.cap, |cap| short(cap).is_none()) else {
            return Err(short(need.floor).map_or("".into(), |(.., name)| name.clone()));
        };
        let lowered = short(need.cap).map(|(.., name)| name.clone());
        let most = || Box::from("budget.max_output_tokens");
        let mut parts = Vec::with_capacity(left.len());
        for (place, unit, ..) in left {
            let amount = need.amount(unit, cap);
            let held = self.with(place, asker, |account| account.hold(amount, now_ms));
            parts.extend(held.map(|part| (place, unit, part)));
        }
        self.count_open(asker, true);
        Ok(Held {
            parts,
            cap: (need.cap > 0).then(|| (cap, lowered.unwrap_or_else(most))),
            cap_then: entry.output_cap,
            rates: need.rates.clone(),
        })
    }

    fn check_parallel(&mut self, asker: &Asker) -> Result<(), Box<str>> {
        let rules = &self.setting.policy;
        let (of_run, of_key) = (rules.run.parallel(), rules.limits.parallel_requests);
        if let Some(run) = find(&mut self.runs, asker)
            && of_run > 0
            && run.open >= of_run
        {
            return Err("run.max_parallel_units".into());
        }
        let open = self.keys.get(&asker.key).map_or(0, |key| key.open);
        match of_key.filter(|most| open >= most.get() && !rules.limits.observe) {
            Some(_) => Err("parallel_requests".into()),
            None => Ok(()),
        }
    }

    /// Replaces what was held by what was used then, or by what a lower cap would have let be
    /// used. Gives that, and the rule that cut the answer short.
    pub(super) fn settle(&mut self, open: &Open, entry: &Entry) -> (Used, Option<Box<str>>) {
        let asker = Asker {
            key: open.key.clone(),
            run: open.run.clone(),
        };
        let Some(held) = &open.held else {
            return (Used::default(), None);
        };
        let (used, cut) = held.used(entry);
        for (place, unit, part) in &held.parts {
            let used = used.of(*unit);
            self.with(*place, &asker, |account| {
                account.settle(*part, used, entry.at);
            });
        }
        self.count_open(&asker, false);
        (used, cut)
    }

    /// Nobody knows what was used: all that was held counts.
    pub(super) fn forfeit(&mut self, open: &Open, at_ms: i64) {
        let asker = Asker {
            key: open.key.clone(),
            run: open.run.clone(),
        };
        let Some(held) = &open.held else { return };
        for (place, _, part) in &held.parts {
            self.with(*place, &asker, |account| {
                account.settle(*part, part.amount(), at_ms);
            });
        }
        self.count_open(&asker, false);
    }

    fn count_open(&mut self, asker: &Asker, more: bool) {
        let count = |open: &mut u64| match more {
            true => *open += 1,
            false => *open = open.saturating_sub(1),
        };
        if let Some(run) = find(&mut self.runs, asker) {
            count(&mut run.open);
        }
        if let Some(key) = self.keys.get_mut(&asker.key) {
            count(&mut key.open);
        }
    }

    /// Whether a limit counts this.
    fn counts(&self, asker: &Asker, unit: Unit) -> bool {
        let run = &self.setting.policy.run;
        let of_run = match unit {
            Unit::Cost => run.max_cost.is_some(),
            Unit::Tokens => run.max_tokens.is_some(),
            Unit::Requests => run.max_iterations.is_some(),
        };
        let places = self.keys.get(&asker.key).map(|key| &*key.places);
        let mut own = places.unwrap_or_default().iter();
        (of_run && asker.run.is_some()) || own.any(|place| self.accounts.unit(*place) == Some(unit))
    }

    /// The limits of its run, and then those of its key.
    fn each_account(&mut self, asker: &Asker, mut see: impl FnMut(Place, &mut Account)) {
        if let Some(run) = find(&mut self.runs, asker) {
            for (at, account) in run.accounts.iter_mut().enumerate() {
                see(Place::OfRun(at), account);
            }
        }
        let places = self.keys.get(&asker.key).map(|key| key.places.clone());
        for place in places.unwrap_or_default() {
            if let Some(account) = self.accounts.at(place) {
                see(Place::OfKey(place), account);
            }
        }
    }

    fn with<T>(
        &mut self,
        place: Place,
        asker: &Asker,
        see: impl FnOnce(&mut Account) -> T,
    ) -> Option<T> {
        let account = match place {
            Place::OfKey(at) => self.accounts.at(at),
            Place::OfRun(at) => {
                find(&mut self.runs, asker).and_then(|run| run.accounts.get_mut(at))
            }
        };
        account.map(see)
    }
}

impl Held {
    fn used(&self, entry: &Entry) -> (Used, Option<Box<str>>) {
        let all = Used {
            requests: 1,
            tokens: entry.input_tokens.saturating_add(entry.output_tokens),
            cost: entry.cost_nano_usd,
        };
        let longer = |cap: u64| {
            // Several answers to one request share a cap each; their number is not on record.
            let one = self.cap_then.is_none_or(|then| entry.output_tokens <= then);
            one && entry.output_tokens > cap
        };
        let Some((cap, rule)) = self.cap.as_ref().filter(|(cap, _)| longer(*cap)) else {
            return (all, None);
        };
        let usage = Usage {
            input: entry.input_tokens,
            cached_input: entry.cached_tokens,
            output: *cap,
            ..Usage::default()
        };
        let cost = self.rates.as_ref().map(|rates| rates.cost(&usage, None));
        let used = Used {
            tokens: entry.input_tokens.saturating_add(*cap),
            cost: cost.map_or(all.cost, |cost| cost.nanos().min(all.cost)),
            ..all
        };
        (used, Some(rule.clone()))
    }
}

fn find<'r>(runs: &'r mut super::runs::Runs, asker: &Asker) -> Option<&'r mut RunState> {
    runs.find(asker.run.as_deref()?)
}

/// As refusals name it; limits that other keys share say whose they are.
fn name_of(spec: &LimitSpec) -> Box<str> {
    let whose = ["tenant/", "global/"];
    let shared = whose
        .iter()
        .find(|prefix| spec.account.starts_with(**prefix));
    match shared.map(|prefix| prefix.trim_end_matches('/')) {
        Some(whose) => format!("{whose}.{}", spec.name).into(),
        None => spec.name.into(),
    }
}
