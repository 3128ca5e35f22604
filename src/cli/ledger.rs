//! `tallygate ledger`: reads beside the serving process and changes nothing.

use std::{
    io::{BufWriter, ErrorKind, Write as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use serde_json::Value;

use super::{block_on, instant::instant, print, progress::Progress};
use crate::{
    clock::Clock,
    config::{Config, StoreUrl},
    engine::money::Money,
    store::{
        Chain, LedgerLine,
        export::{Export, Form, Selection},
        head::Heads,
        sqlite::Reader,
    },
};

const LOOK_EVERY: Duration = Duration::from_millis(300);
const PAGE: i64 = 10_000;

pub(super) async fn reader(file: &Path) -> anyhow::Result<Reader> {
    let config = Config::load(file)?;
    let StoreUrl::Sqlite(path) = &config.store.url;
    Reader::open(path)
        .await
        .context("no ledger yet? It is made when Tallygate first serves")
}

pub fn tail(file: &Path, lines: u32, follow: bool, as_json: bool) -> anyhow::Result<ExitCode> {
    block_on(async {
        let mut reader = reader(file).await?;
        let mut from = (reader.last_seq().await? - i64::from(lines)).max(0);
        loop {
            let found = reader.lines_after(from, PAGE).await?;
            for line in &found {
                print(&if as_json {
                    line.to_json().to_string()
                } else {
                    text_line(line)
                });
                from = line.seq;
            }
            if !follow && found.is_empty() {
                return Ok(ExitCode::SUCCESS);
            }
            if found.is_empty() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    })
}

pub fn verify(file: &Path, mut heads: Heads) -> anyhow::Result<ExitCode> {
    block_on(async {
        let mut reader = reader(file).await?;
        let mut progress = Progress::of("verified", reader.last_seq().await?);
        let mut chain = Chain::default();
        loop {
            let found = reader.lines_after(chain.seq, PAGE).await?;
            if found.is_empty() {
                break;
            }
            for line in &found {
                if let Err(broken) = chain.follow(line) {
                    return Ok(broken_by(progress, &broken));
                }
                if let Err(fault) = heads.pass(line) {
                    return Ok(broken_by(progress, &fault));
                }
            }
            progress.at(chain.seq);
        }
        if let Err(fault) = heads.end(chain.seq) {
            return Ok(broken_by(progress, &fault));
        }
        drop(progress);
        print(&format!(
            "{} records, the chain holds; head {}",
            chain.seq,
            hex::encode(chain.digest)
        ));
        Ok(ExitCode::SUCCESS)
    })
}

fn broken_by(progress: Progress, fault: &dyn std::fmt::Display) -> ExitCode {
    drop(progress);
    print(&fault.to_string());
    ExitCode::FAILURE
}

/// What was asked for on the command line.
pub struct Wish<'a> {
    pub form: Form,
    pub kinds: Vec<String>,
    pub key: Option<String>,
    pub since: Option<&'a str>,
    pub until: Option<&'a str>,
}

pub fn export(file: &Path, wish: Wish<'_>) -> anyhow::Result<ExitCode> {
    let now_ms = Clock::system().now_ms();
    let read = |text: Option<&str>| text.map(|text| instant(text, now_ms)).transpose();
    let selection = Selection {
        kinds: wish.kinds,
        key: wish.key,
        from_ms: read(wish.since)?,
        to_ms: read(wish.until)?,
    };
    block_on(async {
        let mut reader = reader(file).await?;
        let mut export = Export::begin(&mut reader, selection, wish.form, 0).await?;
        let start = export.rest();
        let mut progress = Progress::of("exported", start.up_to - start.after);
        let mut out = BufWriter::new(std::io::stdout());
        while let Some(text) = export.next(&mut reader).await? {
            match out.write_all(text.as_bytes()) {
                Ok(()) => progress.at(export.rest().after - start.after),
                // A reader that has gone (`| head`) is no mistake.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
                Err(error) => return Err(error.into()),
            }
        }
        match out.flush() {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(ExitCode::SUCCESS),
        }
    })
}

/// `seq time kind`, then what matters as `name=value`.
fn text_line(line: &LedgerLine) -> String {
    let value: Value = serde_json::from_str(&line.body).unwrap_or_default();
    let at = value.get("at").and_then(Value::as_i64).unwrap_or_default();
    let time = jiff::Timestamp::from_millisecond(at).unwrap_or_default();
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or("?");
    let members = value.as_object().into_iter().flatten();
    let rest: Vec<String> = members
        .filter(|(name, value)| !matches!(name.as_str(), "at" | "kind") && !value.is_null())
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name}={text}"),
            Value::Array(limits) if name == "limits" => {
                let limits: Vec<String> = limits.iter().map(limit_text).collect();
                format!("limits=[{}]", limits.join(", "))
            }
            other => format!("{name}={other}"),
        })
        .collect();
    format!("{} {time:.3} {kind} {}", line.seq, rest.join(" "))
}

/// What was used and reserved of a limit before and after: `daily_tokens 70+0→70+120 of 1000`.
fn limit_text(limit: &Value) -> String {
    let text = |name| limit.get(name).and_then(Value::as_str).unwrap_or("?");
    let count = |name| limit.get(name).and_then(Value::as_u64).unwrap_or_default();
    let amount = |name| match text("unit") {
        "usd" => Money::from_nanos(count(name)).to_string(),
        _ => count(name).to_string(),
    };
    let needed = limit.get("needed").map(|_| amount("needed"));
    let needed = needed.map_or_else(String::new, |needed| format!(", needed {needed}"));
    format!(
        "{} {}+{}→{}+{} of {}{needed}",
        text("name"),
        amount("used"),
        amount("reserved"),
        amount("used_after"),
        amount("reserved_after"),
        amount("limit")
    )
}
