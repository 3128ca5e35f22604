//! Follows requests and their calls from record to record.

use std::sync::Arc;

use super::{
    Decision, Entry, HOUR_MS, MOST_OPEN, Of, Replay, Row, Used, Whose,
    calls::{self, Bench, NO_RUN},
    entry::Call,
    requests::{Asker, KeyState, Open},
    runs::{Belongs, RunState, Runs},
};
use crate::engine::{budget::LimitSpec, chain::code, pricing::Rates, run::Looped};

impl Replay {
    fn is_wanted(&self, entry: &Entry) -> bool {
        match &self.setting.whose {
            Whose::Key(key) => entry.key.as_ref() == Some(key),
            Whose::Policy => {
                let label = entry.policy.as_deref().unwrap_or_default();
                let id = label.rsplit_once('@').map_or(label, |(id, _)| id);
                id == &*self.setting.policy.id
            }
        }
    }

    pub(super) fn started(&mut self, entry: &Entry) {
        let Some(id) = &entry.request_id else { return };
        // Whoever comes back for a parked answer asks nobody and reserves nothing.
        if entry.resumes.is_some() {
            let mut open = Open::default();
            if self.is_wanted(entry) {
                open = self.enter(entry);
            }
            open.resumed = true;
            self.open.insert(id.clone(), open);
            return;
        }
        if !self.is_wanted(entry) {
            return;
        }
        if self.open.len() >= MOST_OPEN {
            self.forfeit_all(entry.at);
        }
        self.tally.report.requests.all += 1;
        self.tally.report.requests.passed_then += 1;
        let mut open = self.enter(entry);
        let asker = Asker {
            key: open.key.clone(),
            run: open.run.clone(),
        };
        match self.admit(entry, &asker) {
            Ok(held) => {
                self.tally.report.requests.passed_now += 1;
                self.doubt(entry, true);
                open.held = Some(held);
                if let Some(run) = open.run.as_deref().and_then(|run| self.runs.find(run)) {
                    open.step = run.guard.lock().step();
                    if run.guard.lock().tainted {
                        open.tainted = Some(true);
                    }
                }
            }
            Err(rule) => self.differs(entry, (Decision::Passed, Decision::Refused), &rule, None),
        }
        self.open.insert(id.clone(), open);
    }

    /// The key and the run of a request, as known here.
    fn enter(&mut self, entry: &Entry) -> Open {
        let key = entry.key.clone().unwrap_or_default();
        self.know(&key, entry.tenant.as_deref());
        let run = match Belongs::of(&self.setting.policy.run, entry.run.as_deref()) {
            Belongs::To(run) => {
                let before = entry.step.unwrap_or(1).saturating_sub(1);
                Some(self.runs.enter((&key, run), before, entry.at))
            }
            Belongs::Unknown if self.setting.policy.bounds_runs() => {
                self.tally.undecided(NO_RUN, 1);
                None
            }
            _ => None,
        };
        let asked = entry.requested_model.as_deref().unwrap_or_default();
        Open {
            key,
            run,
            step: 0,
            routes: self.setting.names.routes(asked),
            tainted: entry.input_sha256.as_ref().map(|_| entry.tainted),
            looped: false,
            resumed: false,
            held: None,
        }
    }

    /// Opens a key's accounts: its own, its tenant's and those of all.
    fn know(&mut self, key: &str, tenant: Option<&str>) {
        if self.keys.contains_key(key) {
            return;
        }
        let setting = &self.setting;
        let policy = &setting.policy;
        let mut specs = LimitSpec::of_key(key, &policy.limits, &policy.budget);
        if let Some((tenant, budget)) =
            tenant.and_then(|tenant| Some((tenant, setting.tenant_budgets.get(tenant)?)))
        {
            specs.extend(LimitSpec::of_tenant(tenant, budget));
        }
        specs.extend(setting.global_budget.iter().flat_map(LimitSpec::of_all));
        // What only counts refuses nobody.
        specs.retain(|spec| !spec.observe);
        let counts = |spec: &LimitSpec, other: &str| {
            let theirs = setting.tenants.get(other).map(|tenant| &**tenant);
            match spec.account.split('/').next() {
                Some("key") => other == key,
                Some("tenant") => theirs == tenant,
                _ => true,
            }
        };
        let places = self.accounts.places(specs, setting.from_ms, counts);
        let fresh = KeyState { places, open: 0 };
        self.keys.insert(key.into(), fresh);
    }

    pub(super) fn settled(&mut self, entry: &Entry) {
        let id = entry.request_id.as_deref().unwrap_or_default();
        let Some(open) = self.open.remove(id) else {
            return self.book(entry);
        };
        if open.resumed {
            return;
        }
        self.tally.report.cost.then_nano_usd += entry.cost_nano_usd;
        let (used, cut) = self.settle(&open, entry);
        self.tally.report.cost.now_nano_usd += used.cost;
        if let Some(rule) = cut {
            self.differs(entry, (Decision::Passed, Decision::Shortened), &rule, None);
        }
        let completed = entry.outcome.as_deref() == Some("completed");
        if let Some(run) = open.run.as_deref().and_then(|run| self.runs.find(run))
            && completed
            && !open.looped
        {
            run.guard.lock().succeed(open.step);
        }
    }

    /// What others used counts where it is shared; so does what began before the first record.
    fn book(&mut self, entry: &Entry) {
        let Some(key) = &entry.key else { return };
        self.know(key, entry.tenant.as_deref());
        let used = Used {
            requests: 1,
            tokens: entry.input_tokens.saturating_add(entry.output_tokens),
            cost: entry.cost_nano_usd,
        };
        let places = self.keys.get(key).map(|key| key.places.clone());
        for place in places.unwrap_or_default() {
            if let Some(account) = self.accounts.at(place) {
                account.book(used.of(account.spec.unit), entry.at);
            }
        }
    }

    pub(super) fn refused(&mut self, entry: &Entry) {
        let id = entry.request_id.as_deref().unwrap_or_default();
        if self.open.contains_key(id) {
            // Beside its settlement an answer that was cut at a limit; without one, a request
            // that could not be written down.
            if entry.code.as_deref() == Some("guard_unavailable")
                && let Some(open) = self.open.remove(id)
            {
                self.settle(&open, &Entry::default());
            }
            return;
        }
        if !self.is_wanted(entry) {
            return;
        }
        self.tally.report.requests.all += 1;
        if !self.may_pass(entry) {
            return;
        }
        let mut open = self.enter(entry);
        let asker = Asker {
            key: open.key.clone(),
            run: open.run.clone(),
        };
        if let Ok(held) = self.admit(entry, &asker) {
            let rule = entry.rule.as_deref().or(entry.code.as_deref());
            let rule = rule.unwrap_or_default().to_owned();
            self.differs(entry, (Decision::Refused, Decision::Passed), &rule, None);
            self.doubt(entry, false);
            self.tally.report.requests.passed_now += 1;
            self.tally.report.cost.unknown_requests += 1;
            open.held = Some(held);
            self.settle(
                &open,
                &Entry {
                    at: entry.at,
                    ..Entry::default()
                },
            );
            if let Some(run) = open.run.as_deref().and_then(|run| self.runs.find(run)) {
                run.guard.lock().step();
            }
        }
    }

    pub(super) fn judged(&mut self, entry: &Entry) {
        let (Some(call), Some(id)) = (&entry.call, &entry.request_id) else {
            return;
        };
        if !self.is_wanted(entry) {
            return;
        }
        let would_be_refused = |open: &Open| open.held.is_none() && !open.resumed;
        let refused = self.open.get(id).is_some_and(would_be_refused);
        let calls = match call.inner.is_empty() {
            true => std::slice::from_ref(call),
            false => &call.inner,
        };
        for call in calls {
            self.tally.report.calls.all += 1;
            let (then, rule) = calls::then(call);
            self.tally.report.calls.passed_then += u64::from(then == Decision::Passed);
            // It would not have been made.
            if refused {
                continue;
            }
            let verdict = self.judge(call, entry, id);
            let passes = verdict.decision == Decision::Passed;
            self.tally.report.calls.passed_now += u64::from(passes);
            if verdict.layer == code::LOOP {
                self.trip(id);
            }
            if verdict.decision != then {
                let rule = match passes || verdict.decision == Decision::Undecided {
                    true => rule,
                    false => &verdict.rule,
                };
                self.differs(entry, (then, verdict.decision), rule, Some(&call.tool));
            }
        }
    }

    fn judge(&mut self, call: &Call, entry: &Entry, id: &str) -> calls::Verdict {
        let open = self.open.get(id);
        let name = match open {
            Some(open) => open.run.clone(),
            None => name_of_run(entry),
        };
        let run = name.as_deref().and_then(|name| self.runs.find(name));
        let bench = Bench {
            setting: &self.setting,
            old: self.setting.version(entry.policy.as_deref()),
            run: run.as_deref(),
            tainted: open.and_then(|open| open.tainted),
            delivered: entry.delivered,
        };
        let verdict = bench.judge(call, &mut self.tally);
        let taints = bench.taints(call);
        if let Some(run) = run {
            run.brings_in |= taints;
        }
        verdict
    }

    /// The run of a request on record, if it is known here.
    pub(super) fn run_of(&mut self, entry: &Entry) -> Option<&mut RunState> {
        self.runs.find(&name_of_run(entry)?)
    }

    /// The answer went round in circles.
    fn trip(&mut self, id: &str) {
        let Some(open) = self.open.get_mut(id) else {
            return;
        };
        open.looped = true;
        let at = Looped {
            step: open.step,
            routes: open.routes,
            id: "",
        };
        let on_open = self.setting.policy.loops.on_open;
        if let Some(run) = open.run.as_deref().and_then(|run| self.runs.find(run)) {
            run.guard.lock().trip(on_open, at);
        }
    }

    pub(super) fn forfeit_all(&mut self, at_ms: i64) {
        for (_, open) in std::mem::take(&mut self.open) {
            self.forfeit(&open, at_ms);
        }
        self.runs.close_all();
    }

    fn differs(
        &mut self,
        entry: &Entry,
        (then, now): (Decision, Decision),
        rule: &str,
        tool: Option<&str>,
    ) {
        let row = Row {
            of: tool.map_or(Of::Request, |_| Of::Call),
            then,
            now,
            rule: rule.into(),
            key: entry.key.clone().unwrap_or_default(),
            model: entry.requested_model.clone().unwrap_or_default(),
            tool: tool.map(Into::into),
        };
        let id = entry.request_id.as_deref().unwrap_or_default();
        self.tally.differs(row, entry.at, id);
    }

    /// What a model costs at about that time.
    pub(super) fn rates(&mut self, entry: &Entry) -> Option<Arc<Rates>> {
        let asked = entry.requested_model.as_deref()?;
        let provider = entry.provider.as_deref().unwrap_or_default();
        let name: Box<str> = format!("{provider} {asked}").into();
        if let Some((at, known)) = self.prices.get(&name)
            && entry.at - at < HOUR_MS
        {
            return known.clone();
        }
        let model = entry.resolved_model.as_deref().unwrap_or(asked);
        let found = (self.setting.price_of)(provider, &[asked, model], entry.at);
        let found = found.map(|at| Arc::clone(&at.rates));
        if self.prices.len() < MOST_OPEN {
            self.prices.insert(name, (entry.at, found.clone()));
        }
        found
    }
}

fn name_of_run(entry: &Entry) -> Option<Box<str>> {
    let key = entry.key.as_deref().unwrap_or_default();
    Some(Runs::name(key, entry.run.as_deref()?))
}
