//! `tallygate ledger`: reads beside the serving process and changes nothing.

use std::{path::Path, process::ExitCode, time::Duration};

use anyhow::Context as _;
use serde_json::Value;

use super::{block_on, print};
use crate::{
    config::{Config, StoreUrl},
    store::{Chain, LedgerLine, sqlite::Reader},
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

pub fn verify(file: &Path) -> anyhow::Result<ExitCode> {
    block_on(async {
        let mut reader = reader(file).await?;
        let mut chain = Chain::default();
        loop {
            let found = reader.lines_after(chain.seq, PAGE).await?;
            if found.is_empty() {
                print(&format!(
                    "{} records, the chain holds; head {}",
                    chain.seq,
                    hex::encode(chain.digest)
                ));
                return Ok(ExitCode::SUCCESS);
            }
            for line in &found {
                if let Err(seq) = chain.follow(line) {
                    print(&format!(
                        "record {seq} does not follow from the one before it"
                    ));
                    return Ok(ExitCode::FAILURE);
                }
            }
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
            other => format!("{name}={other}"),
        })
        .collect();
    format!("{} {time:.3} {kind} {}", line.seq, rest.join(" "))
}
