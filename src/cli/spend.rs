//! `tallygate spend`: each limit of each key, what is used and what is left.

use std::{path::Path, process::ExitCode};

use serde_json::Value;

use super::{block_on, ledger::reader, print};
use crate::{admin, clock::Clock, config::Config, engine::budget::Window};

pub fn spend(file: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    let now_ms = Clock::system().now_ms();
    block_on(async {
        let mut reader = reader(file).await?;
        let rows = admin::of_keys(&mut reader, &config, now_ms).await?;
        if as_json {
            print(&serde_json::to_string_pretty(&rows)?);
        } else {
            rows.iter().for_each(show);
        }
        Ok(ExitCode::SUCCESS)
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
        let only_counts = of(limit, "mode") == "observe";
        print(&format!(
            "  {:<22} {:>14} {:>14} {:>14} {:>14}  {}{}",
            of(limit, "name"),
            of(limit, "limit"),
            of(limit, "used"),
            of(limit, "reserved"),
            of(limit, "left"),
            resets(limit),
            if only_counts { " (only observed)" } else { "" },
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
