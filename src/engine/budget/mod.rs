//! The arithmetic of exact limits: accounts, windows, leases. Pure: rows in, rows out.
//!
//! An *account* belongs to a subject (a key, a tenant, all) and a limit, never to a policy
//! version. What was used stands in the store as *spent*; a process may use more only out of a
//! *lease*, a slice that the store has written down as taken before. The store keeps
//! `spent + leased ≤ limit` whenever it grants; a process keeps `reserved + settled ≤ granted`.
//! So no interleaving and no crash can pass a limit.

mod lease;
mod sliding;
#[cfg(test)]
mod tests;
mod window;

use std::{num::NonZeroU64, sync::Arc};

use serde::Serialize;

pub use self::{
    lease::{Lease, grant, largest},
    sliding::Sliding,
    window::{MINUTE_MS, Period, Window, bucket, live_after},
};
use super::{
    money::Money,
    policy::{Amounts, Budget, Calendar, RateLimits},
    run::RunRules,
};

/// What an account counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Nano-dollars.
    Cost,
    Tokens,
    Requests,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cost => "usd",
            Self::Tokens => "tokens",
            Self::Requests => "requests",
        }
    }
}

/// One limit on one account.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitSpec {
    /// Stable over policy versions and reloads: `key/NAME/cost/day`.
    pub account: Arc<str>,
    /// As in the configuration: `daily_cost_usd`.
    pub name: &'static str,
    /// For people: `key "NAME"`.
    pub subject: Arc<str>,
    pub unit: Unit,
    pub window: Window,
    pub limit: u64,
    pub calendar: Calendar,
    /// Only counts: a request that passes it is recorded as one that it would have refused.
    pub observe: bool,
}

/// How one limit stood before and after, as this process knew it: dollars are counted in
/// billionths. For the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitNote {
    /// As in the configuration: `daily_cost_usd`.
    pub name: &'static str,
    /// What it counts: `key/NAME/usd/day`.
    pub account: Arc<str>,
    pub unit: &'static str,
    pub limit: u64,
    pub used: u64,
    pub reserved: u64,
    pub used_after: u64,
    pub reserved_after: u64,
    /// Of a refusal: what there was no room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed: Option<u64>,
}

/// So many rows for one account and minute are still quickly summed.
const MOST_ROWS: u64 = 6_000;

impl LimitSpec {
    /// How finely admissions of a sliding window are written down, in milliseconds: to the
    /// millisecond where that cannot make too many rows, else in wider buckets.
    pub fn bucket_ms(&self) -> i64 {
        match self.unit {
            Unit::Requests if self.limit <= MOST_ROWS => 1,
            _ => 10,
        }
    }

    /// A key's own limits: those by the minute first, since they are the first to be told.
    pub fn of_key(name: &str, rate: &RateLimits, budget: &Budget) -> Vec<Self> {
        let (prefix, subject) = (format!("key/{name}"), format!("key {name:?}"));
        let minute = [
            (
                "requests_per_minute",
                Unit::Requests,
                rate.requests_per_minute,
            ),
            ("tokens_per_minute", Unit::Tokens, rate.tokens_per_minute),
        ];
        let mut limits: Vec<Self> = minute
            .into_iter()
            .filter_map(|(limit_name, unit, limit)| {
                let limit = limit?.get();
                let about = (&*prefix, &*subject);
                let spec = spec(about, limit_name, unit, Window::Minute, limit, budget);
                Some(Self {
                    observe: rate.observe,
                    ..spec
                })
            })
            .collect();
        limits.extend(of_budget(&prefix, &subject, budget));
        limits
    }

    pub fn of_tenant(tenant: &str, budget: &Budget) -> Vec<Self> {
        of_budget(
            &format!("tenant/{tenant}"),
            &format!("tenant {tenant:?}"),
            budget,
        )
    }

    /// A run's own accounts, which count like every other limit: exactly, over crashes.
    pub fn of_run(key: &str, run: &str, rules: &RunRules, calendar: &Calendar) -> Vec<Self> {
        let cost = rules.max_cost.map(Money::nanos);
        let tokens = rules.max_tokens.map(NonZeroU64::get);
        let steps = rules.max_iterations.map(NonZeroU64::get);
        let limits = [
            ("run.max_iterations", Unit::Requests, steps),
            ("run.max_cost_usd", Unit::Cost, cost),
            ("run.max_tokens", Unit::Tokens, tokens),
        ];
        let given = limits.into_iter().filter_map(|(name, unit, limit)| {
            Some(Self {
                account: format!("run/{key}/{run}/{}", unit.name()).into(),
                name,
                subject: format!("run {run:?} of key {key:?}").into(),
                unit,
                window: Window::Total,
                limit: limit?,
                calendar: calendar.clone(),
                observe: false,
            })
        });
        given.collect()
    }

    pub fn of_all(budget: &Budget) -> Vec<Self> {
        of_budget("global", "all keys together", budget)
    }
}

fn of_budget(prefix: &str, subject: &str, budget: &Budget) -> Vec<LimitSpec> {
    let names = |window| match window {
        Window::Month => ("monthly_cost_usd", "monthly_tokens", "monthly_requests"),
        Window::Total => ("total_cost_usd", "total_tokens", "total_requests"),
        Window::Day | Window::Minute => ("daily_cost_usd", "daily_tokens", "daily_requests"),
    };
    let windows: [(Window, &Amounts); 3] = [
        (Window::Day, &budget.daily),
        (Window::Month, &budget.monthly),
        (Window::Total, &budget.total),
    ];
    let mut limits = Vec::new();
    for (window, amounts) in windows {
        let (cost, tokens, requests) = names(window);
        let given = [
            (cost, Unit::Cost, amounts.cost.map(|money| money.nanos())),
            (tokens, Unit::Tokens, amounts.tokens),
            (requests, Unit::Requests, amounts.requests),
        ];
        for (name, unit, limit) in given {
            if let Some(limit) = limit {
                limits.push(spec((prefix, subject), name, unit, window, limit, budget));
            }
        }
    }
    limits
}

fn spec(
    (prefix, subject): (&str, &str),
    name: &'static str,
    unit: Unit,
    window: Window,
    limit: u64,
    budget: &Budget,
) -> LimitSpec {
    let kind = match unit {
        Unit::Cost => "cost",
        Unit::Tokens => "tokens",
        Unit::Requests => "requests",
    };
    LimitSpec {
        account: format!("{prefix}/{kind}/{}", window.name()).into(),
        name,
        subject: subject.into(),
        unit,
        window,
        limit,
        calendar: budget.calendar.clone(),
        observe: budget.observe,
    }
}
