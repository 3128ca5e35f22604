//! `tallygate spend`: each limit of each key, what is used and what is left.

use std::{path::Path, process::ExitCode};

use serde_json::{Value, json};

use super::{block_on, ledger::reader, print};
use crate::{
    clock::Clock,
    config::Config,
    engine::{
        budget::{LimitSpec, Unit, Window},
        money::Money,
        policy::{Binding, Key},
    },
    store::{Standing, sqlite::Reader},
};

pub fn spend(file: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    let now_ms = Clock::system().now_ms();
    block_on(async {
        let mut reader = reader(file).await?;
        let mut keys: Vec<_> = config.keys.values().collect();
        keys.sort_by(|a, b| a.name.cmp(&b.name));
        let mut rows = Vec::new();
        for key in keys {
            rows.push(of_key(&mut reader, key, now_ms).await?);
        }
        if as_json {
            print(&serde_json::to_string_pretty(&rows)?);
        } else {
            rows.iter().for_each(show);
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn of_key(reader: &mut Reader, key: &Key, now_ms: i64) -> anyhow::Result<Value> {
    let (policy, limits) = match &key.policy {
        Binding::To(policy) => (
            policy.label.to_string(),
            LimitSpec::of_key(&key.name, &policy.limits, &policy.budget),
        ),
        Binding::Unusable(reason) => (reason.to_string(), Vec::new()),
    };
    let mut rows = Vec::new();
    for limit in limits {
        let period = limit.window.period(now_ms, &limit.calendar);
        let sliding = limit.window == Window::Minute;
        let standing = reader
            .standing(&limit.account, period.start_ms, sliding, now_ms)
            .await?;
        rows.push(row(&limit, standing, period.end_ms));
    }
    Ok(json!({ "key": key.name, "tenant": key.tenant, "policy": policy, "limits": rows }))
}

fn row(limit: &LimitSpec, standing: Standing, end_ms: Option<i64>) -> Value {
    let left = limit.limit.saturating_sub(standing.spent + standing.leased);
    let amount = |amount: u64| match limit.unit {
        Unit::Cost => Value::from(
            Money::from_nanos(amount)
                .to_string()
                .trim_start_matches('$'),
        ),
        Unit::Tokens | Unit::Requests => amount.into(),
    };
    let resets = end_ms.and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    json!({
        "name": limit.name,
        "window": limit.window.name(),
        "unit": limit.unit.name(),
        "limit": amount(limit.limit),
        "used": amount(standing.spent),
        "reserved": amount(standing.leased),
        "left": amount(left),
        "resets_at": resets.map(|at| at.to_string()),
    })
}

fn show(row: &Value) {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let of = |value: &Value, name: &str| text(value.get(name).unwrap_or(&Value::Null));
    print(&format!(
        "{} ({}, {})",
        of(row, "key"),
        of(row, "tenant"),
        of(row, "policy")
    ));
    print(&format!(
        "  {:<22} {:>14} {:>14} {:>14} {:>14}  resets",
        "limit", "size", "used", "reserved", "left"
    ));
    for limit in row
        .get("limits")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        print(&format!(
            "  {:<22} {:>14} {:>14} {:>14} {:>14}  {}",
            of(limit, "name"),
            of(limit, "limit"),
            of(limit, "used"),
            of(limit, "reserved"),
            of(limit, "left"),
            resets(limit),
        ));
    }
}

/// A sliding minute has no end at which all of it is free again.
fn resets(limit: &Value) -> &str {
    let member = |name: &str| limit.get(name).and_then(Value::as_str);
    match (member("resets_at"), member("window")) {
        (Some(at), _) => at,
        (None, window) if window == Some(Window::Minute.name()) => "60 s after each request",
        (None, _) => "never",
    }
}
