//! `tallygate runs`: what agents did over whole tasks, read from the ledger.

use std::{path::Path, process::ExitCode};

use serde_json::{Value, json};

use super::{block_on, ledger::reader, print};
use crate::{
    admin::runs::{By, Group, RunTally, Spread, WantedRuns, compare, each_record, tallies},
    store::{reader::Stretch, sqlite::Reader},
};

/// Which runs to list: of this key, with this tag, and how many.
pub struct Listed<'a> {
    pub key: Option<&'a str>,
    pub tag: Option<&'a str>,
    pub most: usize,
}

pub fn list(file: &Path, listed: &Listed<'_>, as_json: bool) -> anyhow::Result<ExitCode> {
    let wanted = WantedRuns {
        key: listed.key.map(str::to_owned),
        ..WantedRuns::default()
    };
    let mut runs = read(file, &wanted)?;
    runs.retain(|run| listed.tag.is_none_or(|tag| run.tags.contains(tag)));
    runs.truncate(listed.most);
    if as_json {
        print(&serde_json::to_string_pretty(&runs)?);
    } else if runs.is_empty() {
        print("No run is on record.");
    } else {
        print(HEAD);
        runs.iter().for_each(line);
    }
    Ok(ExitCode::SUCCESS)
}

/// Exit code 1: nobody knows it.
pub fn show(file: &Path, run: &str, key: Option<&str>, as_json: bool) -> anyhow::Result<ExitCode> {
    let wanted = WantedRuns {
        key: key.map(str::to_owned),
        run: Some(run.to_owned()),
        ..WantedRuns::default()
    };
    let runs = read(file, &wanted)?;
    if runs.is_empty() {
        anyhow::bail!("the ledger knows no run {run:?}");
    }
    let records = block_on(async {
        let mut reader = reader(file).await?;
        let (within, mut records) = (all(&mut reader).await?, Vec::new());
        each_record(&mut reader, &wanted, within, |_, record| {
            records.push(record)
        })
        .await?;
        Ok(records)
    })?;
    if as_json {
        let told = json!({"runs": runs, "records": records});
        print(&serde_json::to_string_pretty(&told)?);
        return Ok(ExitCode::SUCCESS);
    }
    print(HEAD);
    runs.iter().for_each(line);
    print("");
    records.iter().for_each(step);
    Ok(ExitCode::SUCCESS)
}

pub fn side_by_side(
    file: &Path,
    (by, groups): (&str, &[String]),
    key: Option<&str>,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let by = By::of(by).unwrap_or(By::Tag);
    let wanted = WantedRuns {
        key: key.map(str::to_owned),
        ..WantedRuns::default()
    };
    let found = compare(&read(file, &wanted)?, by, groups);
    if let Some(missing) = groups
        .iter()
        .find(|name| !found.iter().any(|one| one.group == **name))
    {
        anyhow::bail!("no run is in a group {missing:?}");
    }
    if as_json {
        print(&serde_json::to_string_pretty(&found)?);
    } else if found.is_empty() {
        print("No run is in any group.");
    } else {
        print("Medians, with the middle half of the runs in brackets.");
        table(&found);
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path, wanted: &WantedRuns) -> anyhow::Result<Vec<RunTally>> {
    block_on(async {
        let mut reader = reader(file).await?;
        let within = all(&mut reader).await?;
        Ok(tallies(&mut reader, wanted, within).await?)
    })
}

async fn all(reader: &mut Reader) -> anyhow::Result<Stretch> {
    Ok(Stretch {
        after: 0,
        up_to: reader.last_seq().await?,
    })
}

const HEAD: &str = "run                                         key              steps  model  tools \
                    blocked       cost $    time s  end                      outcome    tags";

fn line(run: &RunTally) {
    let tags: Vec<&str> = run.tags.iter().map(String::as_str).collect();
    let text = format!(
        "{:<43} {:<16} {:>5} {:>6} {:>6} {:>7} {:>12} {:>9}  {:<24} {:<10} {}",
        run.run,
        run.key,
        run.steps,
        run.model_calls,
        run.tool_calls,
        run.blocked_calls,
        dollars(run.cost_nano_usd as f64),
        seconds(run.duration_ms as f64),
        run.code.as_deref().unwrap_or("-"),
        run.outcome.as_deref().unwrap_or("-"),
        tags.join(", "),
    );
    print(text.trim_end());
}

/// One record of a run, as a step of it.
fn step(record: &Value) {
    let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default();
    let at = record.get("at").and_then(Value::as_i64).unwrap_or_default();
    let time = jiff::Timestamp::from_millisecond(at).unwrap_or_default();
    let what = match text("kind") {
        "request_started" => format!("asks {}", text("resolved_model")),
        "attempt_failed" => format!("{} failed: {}", text("provider"), text("failure")),
        "request_settled" => {
            let cost = record.get("cost_nano_usd").and_then(Value::as_u64);
            let cost = dollars(cost.unwrap_or_default() as f64);
            format!("{} by {}, ${cost}", text("outcome"), text("resolved_model"))
        }
        "request_refused" => format!("refused: {}", text("code")),
        "call_judged" => {
            let replay = record.get("idempotent_replay") == Some(&Value::Bool(true));
            let verdict = match (text("blocked"), replay) {
                ("", true) => "idempotent_replay",
                ("", false) => "allowed",
                (code, _) => code,
            };
            format!("calls {}: {verdict}", text("tool"))
        }
        "escalation" => format!(
            "escalation {} → {}: {}",
            text("reason"),
            text("action"),
            text("outcome")
        ),
        "run_reported" => format!("its caller says: {}", text("outcome")),
        other => other.to_owned(),
    };
    let number = record.get("step").and_then(Value::as_u64);
    let number = number.map_or_else(String::new, |step| step.to_string());
    print(&format!("{time:.3} {number:>5}  {what}"));
}

/// A row's name and what it shows of a group.
type Row = (&'static str, fn(&Group) -> String);

fn table(groups: &[Group]) {
    let rows: [Row; 9] = [
        ("runs", |group| group.runs.to_string()),
        ("reported", |group| group.reported.to_string()),
        ("success rate", |group| match group.success_rate {
            Some(rate) => format!("{:.0} %", rate * 100.0),
            None => "-".to_owned(),
        }),
        ("steps", |group| spread(&group.steps, plain)),
        ("model calls", |group| spread(&group.model_calls, plain)),
        ("tool calls", |group| spread(&group.tool_calls, plain)),
        ("tokens", |group| spread(&group.tokens, plain)),
        ("cost $", |group| spread(&group.cost_nano_usd, dollars)),
        ("time s", |group| spread(&group.duration_ms, seconds)),
    ];
    let line = |name: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>30}")).collect();
        print(&format!("{name:<14}{cells}"));
    };
    line("", groups.iter().map(|group| group.group.clone()).collect());
    for (name, figure) in rows {
        line(name, groups.iter().map(figure).collect());
    }
}

fn spread(of: &Spread, unit: fn(f64) -> String) -> String {
    let [median, lower, upper] = [of.median, of.lower_quartile, of.upper_quartile].map(unit);
    format!("{median} [{lower}–{upper}]")
}

fn plain(number: f64) -> String {
    format!("{:.1}", number).trim_end_matches(".0").to_owned()
}

fn dollars(nanos: f64) -> String {
    format!("{:.6}", nanos / 1e9)
}

fn seconds(ms: f64) -> String {
    format!("{:.3}", ms / 1e3)
}
