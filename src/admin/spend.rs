//! Money: what each limit holds now, what was used over time, and what limits refused.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::{Json, extract::State};
use serde_json::{Value, json};

use super::{Shared, fault::Fault, query::Query};
use crate::{
    config::Config,
    engine::{
        budget::{LimitSpec, Unit, Window},
        money::Money,
        policy::{Binding, Key},
    },
    store::{
        Standing, StoreError,
        reader::{By, HOUR_MS, Hours, Reader, Usage},
    },
};

/// Keys on a page, unless the client says otherwise.
const PAGE: i64 = 50;
/// Hours in a day.
const DAY: i64 = 24;
/// Longer spans are told by the day. Hours.
const BY_THE_HOUR: i64 = 3 * DAY;
/// Shown when no span is asked for. Hours.
const USUAL: i64 = DAY;
/// No more is told at once. Hours.
const LONGEST: i64 = 400 * DAY;
/// So many curves can be told apart; what is left makes one more.
const MOST_SERIES: usize = 7;
const MOST_REFUSALS: usize = 500;

/// `GET /admin/v1/spend`.
pub(super) async fn now(State(console): State<Shared>, query: Query) -> Result<Json<Value>, Fault> {
    let config = console.status.config();
    let now_ms = console.status.clock().now_ms();
    let wanted = query.text("find").unwrap_or_default();
    let (after, most) = (query.text("after"), query.number("limit").unwrap_or(PAGE));
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut found = by_name(&config);
    found.retain(|key| key.name.contains(&*wanted) || key.tenant.contains(&*wanted));
    found.retain(|key| after.as_deref().is_none_or(|after| *key.name > *after));
    let next = found
        .get(most)
        .and(found.get(most - 1))
        .map(|key| &*key.name);
    let mut reading = console.reader().await?;
    let reader = reading.store();
    let mut keys = Vec::new();
    for key in found.iter().take(most) {
        keys.push(of_key(reader, key, now_ms).await?);
    }
    let mut budgets: Vec<_> = config.tenant_budgets.iter().collect();
    budgets.retain(|(tenant, _)| tenant.contains(&*wanted));
    budgets.sort_by_key(|(tenant, _)| *tenant);
    let mut tenants = Vec::with_capacity(budgets.len());
    for (tenant, budget) in budgets {
        let limits = rows(reader, LimitSpec::of_tenant(tenant, budget), now_ms).await?;
        tenants.push(json!({ "tenant": tenant, "limits": limits }));
    }
    let all = match &config.global_budget {
        Some(budget) => rows(reader, LimitSpec::of_all(budget), now_ms).await?,
        None => Vec::new(),
    };
    Ok(Json(
        json!({ "at": now_ms, "keys": keys, "next": next, "tenants": tenants, "global": all }),
    ))
}

/// Each limit of each key, by the keys' names: what `tallygate spend --json` prints.
///
/// # Errors
/// The store does not answer.
pub async fn of_keys(
    reader: &mut dyn Reader,
    config: &Config,
    now_ms: i64,
) -> Result<Vec<Value>, StoreError> {
    let mut all = Vec::with_capacity(config.keys.len());
    for key in by_name(config) {
        all.push(of_key(reader, key, now_ms).await?);
    }
    Ok(all)
}

fn by_name(config: &Config) -> Vec<&Arc<Key>> {
    let mut keys: Vec<_> = config.keys.values().collect();
    keys.sort_by(|a, b| a.name.cmp(&b.name));
    keys
}

async fn of_key(reader: &mut dyn Reader, key: &Key, now_ms: i64) -> Result<Value, StoreError> {
    let (policy, limits) = match &key.policy {
        Binding::To(policy) => (
            policy.label.to_string(),
            LimitSpec::of_key(&key.name, &policy.limits, &policy.budget),
        ),
        Binding::Unusable(reason) => (reason.to_string(), Vec::new()),
    };
    let limits = rows(reader, limits, now_ms).await?;
    Ok(json!({ "key": key.name, "tenant": key.tenant, "policy": policy, "limits": limits }))
}

async fn rows(
    reader: &mut dyn Reader,
    limits: Vec<LimitSpec>,
    now_ms: i64,
) -> Result<Vec<Value>, StoreError> {
    let mut rows = Vec::with_capacity(limits.len());
    for limit in limits {
        let period = limit.window.period(now_ms, &limit.calendar);
        let sliding = limit.window == Window::Minute;
        let standing = reader
            .standing(&limit.account, period.start_ms, sliding, now_ms)
            .await?;
        rows.push(row(&limit, standing, period.end_ms));
    }
    Ok(rows)
}

fn row(limit: &LimitSpec, standing: Standing, end_ms: Option<i64>) -> Value {
    let left = limit.limit.saturating_sub(standing.spent + standing.leased);
    let amount = |amount: u64| match limit.unit {
        Unit::Cost => dollars(amount).into(),
        Unit::Tokens | Unit::Requests => Value::from(amount),
    };
    let resets = end_ms.and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    json!({
        "name": limit.name,
        "mode": if limit.observe { "observe" } else { "block" },
        "window": limit.window.name(),
        "unit": limit.unit.name(),
        "limit": amount(limit.limit),
        "used": amount(standing.spent),
        "reserved": amount(standing.leased),
        "left": amount(left),
        "resets_at": resets.map(|at| at.to_string()),
    })
}

/// Exact, without the sign.
fn dollars(nanos: u64) -> String {
    let text = Money::from_nanos(nanos).to_string();
    text.trim_start_matches('$').to_owned()
}

/// `GET /admin/v1/spend/history`.
pub(super) async fn history(
    State(console): State<Shared>,
    query: Query,
) -> Result<Json<Value>, Fault> {
    let hours = hours(&query, console.status.clock().now_ms());
    let width = if hours.before - hours.from <= BY_THE_HOUR {
        1
    } else {
        DAY
    };
    // A day that is told is told whole.
    let hours = Hours {
        from: hours.from.div_euclid(width) * width,
        ..hours
    };
    let (by, name) = match query.text("by").as_deref() {
        Some("key") => (By::Key, "key"),
        _ => (By::Model, "model"),
    };
    let mut reading = console.reader().await?;
    let used = reading.store().usage(hours, by, width).await?;
    let at = |hour: i64| hour * HOUR_MS;
    Ok(Json(json!({
        "by": name,
        "bucket": if width == 1 { "hour" } else { "day" },
        "from": at(hours.from),
        "to": at(hours.before),
        "series": series(used),
    })))
}

/// Whole hours that hold the span asked for.
fn hours(query: &Query, now_ms: i64) -> Hours {
    let before = query.instant_ms("to").unwrap_or(now_ms);
    let before = before.div_euclid(HOUR_MS) + i64::from(before.rem_euclid(HOUR_MS) > 0);
    let from = query.instant_ms("from");
    let from = from.map_or(before - USUAL, |from| from.div_euclid(HOUR_MS));
    Hours {
        from: from.clamp(before - LONGEST, before),
        before,
    }
}

/// The dearest each for itself, the rest together; dearest first.
fn series(used: Vec<Usage>) -> Vec<Value> {
    let mut totals: HashMap<String, (u64, u64)> = HashMap::new();
    for usage in &used {
        let total = totals.entry(usage.name.clone()).or_default();
        total.0 += usage.cost_nano_usd;
        total.1 += usage.tokens;
    }
    let mut names: Vec<(String, (u64, u64))> = totals.into_iter().collect();
    names.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let rest = names.split_off(names.len().min(MOST_SERIES));
    let mut rank: HashMap<&str, usize> = HashMap::new();
    rank.extend(
        names
            .iter()
            .zip(0..)
            .map(|((name, _), place)| (&**name, place)),
    );
    let mut points: BTreeMap<usize, BTreeMap<i64, Usage>> = BTreeMap::new();
    for usage in &used {
        let place = rank.get(&*usage.name).copied().unwrap_or(MOST_SERIES);
        let point = points
            .entry(place)
            .or_default()
            .entry(usage.hour)
            .or_default();
        point.requests += usage.requests;
        point.tokens += usage.tokens;
        point.cost_nano_usd += usage.cost_nano_usd;
    }
    let name_of = |place: usize| match names.get(place) {
        Some((name, _)) => Value::from(name.as_str()),
        // Nothing that is configured is called null.
        None => Value::Null,
    };
    points
        .into_iter()
        .map(|(place, points)| {
            let points: Vec<Value> = points.iter().map(|(hour, usage)| point(*hour, usage)).collect();
            json!({ "name": name_of(place), "others": if place == MOST_SERIES { rest.len() } else { 0 }, "points": points })
        })
        .collect()
}

fn point(hour: i64, usage: &Usage) -> Value {
    json!({
        "at": hour * HOUR_MS,
        "cost_usd": dollars(usage.cost_nano_usd),
        "tokens": usage.tokens,
        "requests": usage.requests,
    })
}

/// `GET /admin/v1/spend/refusals`.
pub(super) async fn refusals(
    State(console): State<Shared>,
    query: Query,
) -> Result<Json<Value>, Fault> {
    let hours = hours(&query, console.status.clock().now_ms());
    let mut reading = console.reader().await?;
    let refused = reading.store().refusals(hours).await?;
    let rows: Vec<Value> = refused
        .iter()
        .take(MOST_REFUSALS)
        .map(|refused| {
            let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            json!({
                "key": known(&refused.key),
                "code": refused.code,
                "rule": known(&refused.rule),
                "count": refused.count,
                "last_hour": refused.last_hour * HOUR_MS,
            })
        })
        .collect();
    Ok(Json(json!({
        "from": hours.from * HOUR_MS,
        "to": hours.before * HOUR_MS,
        "refusals": rows,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_names_make_few_curves_and_lose_nothing() {
        let used: Vec<Usage> = (0..20)
            .map(|number: u64| Usage {
                hour: i64::try_from(number % 2).unwrap(),
                name: format!("m{number}"),
                requests: 1,
                tokens: 1,
                cost_nano_usd: number * 1_000_000_000,
            })
            .collect();
        let series = series(used);
        assert_eq!(series.len(), MOST_SERIES + 1);
        assert_eq!(series[0]["name"], "m19");
        assert_eq!(series[0]["points"][0]["cost_usd"], "19.00");
        let rest = &series[MOST_SERIES];
        assert_eq!((&rest["name"], &rest["others"]), (&Value::Null, &json!(13)));
        let requests: u64 = series
            .iter()
            .flat_map(|one| one["points"].as_array().unwrap())
            .map(|point| point["requests"].as_u64().unwrap())
            .sum();
        assert_eq!(requests, 20);
    }
}
