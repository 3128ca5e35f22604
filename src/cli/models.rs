//! `tallygate models`: which models each key may use, where they lead and what they cost.
//! Reads the configuration alone: what providers have besides is asked for by `GET /v1/models`.

use std::{path::Path, process::ExitCode, sync::Arc};

use serde_json::{Value, json};

use super::print;
use crate::{
    app::price_book,
    clock::Clock,
    config::Config,
    engine::{
        money::Money,
        policy::{Binding, Key, Pattern, Policy},
    },
    proxy::{Live, Target, usable},
};

pub fn models(file: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    let prices = Arc::new(price_book(&config)?);
    let live = Live::to_read(config, prices);
    let now_ms = Clock::system().now_ms();
    let mut keys: Vec<_> = live.config.keys.values().collect();
    keys.sort_by(|a, b| a.name.cmp(&b.name));
    let rows: Vec<Value> = keys
        .into_iter()
        .map(|key| of_key(&live, key, now_ms))
        .collect();
    if as_json {
        print(&serde_json::to_string_pretty(&rows)?);
    } else {
        rows.iter().for_each(show);
    }
    Ok(ExitCode::SUCCESS)
}

fn of_key(live: &Live, key: &Key, now_ms: i64) -> Value {
    let (policy, models, patterns) = match &key.policy {
        Binding::To(policy) => {
            let models: Vec<Value> = usable(live, policy, &[], now_ms).iter().map(row).collect();
            let label = format!("{}@{}", policy.id, policy.version);
            (label, models, patterns(policy))
        }
        Binding::Unusable(reason) => (reason.to_string(), Vec::new(), Vec::new()),
    };
    json!({
        "key": key.name,
        "tenant": key.tenant,
        "policy": policy,
        "models": models,
        "patterns": patterns,
    })
}

/// What is allowed beyond the names that are written down.
fn patterns(policy: &Policy) -> Vec<String> {
    match &policy.models.allow {
        None => vec!["*".to_owned()],
        Some(allow) => allow
            .iter()
            .filter_map(|pattern| match pattern {
                Pattern::Prefix(stem) => Some(format!("{stem}*")),
                Pattern::Exact(_) => None,
            })
            .collect(),
    }
}

fn row((name, target): &(String, Target)) -> Value {
    let price = target.rates.as_ref().map(|at| at.rates.listed());
    let dollars = |amount: Money| amount.to_string().trim_start_matches('$').to_owned();
    let price = price.map(|price| {
        json!({
            "input": dollars(price.input),
            "cached_input": dollars(price.cached_input),
            "output": dollars(price.output),
        })
    });
    json!({
        "name": name,
        "provider": target.provider.name,
        "upstream_model": target.model,
        "usd_per_million_tokens": price,
    })
}

fn show(key: &Value) {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("-").to_owned();
    let list = |name: &str| {
        key.get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    print(&format!(
        "{} ({}, {})",
        text(key.get("key")),
        text(key.get("tenant")),
        text(key.get("policy")),
    ));
    print(&format!(
        "  {:<24} {:<32} {:>10} {:>10} {:>10}  USD per million tokens",
        "model", "leads to", "input", "cached", "output"
    ));
    for model in list("models") {
        let price = |name| {
            let prices = model.get("usd_per_million_tokens");
            text(prices.and_then(|prices| prices.get(name)))
        };
        let place = format!(
            "{}/{}",
            text(model.get("provider")),
            text(model.get("upstream_model"))
        );
        print(&format!(
            "  {:<24} {place:<32} {:>10} {:>10} {:>10}",
            text(model.get("name")),
            price("input"),
            price("cached_input"),
            price("output"),
        ));
    }
    let patterns: Vec<String> = list("patterns")
        .map(|pattern| text(Some(pattern)))
        .collect();
    if !patterns.is_empty() {
        print(&format!("  and what fits {}", patterns.join(", ")));
    }
}
