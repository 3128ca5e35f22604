//! `tallygate policies simulate`: what another version would have decided about what is on
//! record.

use std::{path::Path, process::ExitCode, sync::Arc};

use anyhow::Context as _;

use super::{
    block_on, instant::instant, ledger::reader, policies::find, print, progress::Progress,
};
use crate::{
    admin::simulate::{Wish, simulate},
    app::price_book,
    clock::Clock,
    config::Config,
    engine::{
        money::Money,
        policy::Policy,
        replay::{Counts, Difference, PriceOf, Report},
    },
    proxy::Live,
};

/// What was asked for on the command line.
pub struct Asked<'a> {
    /// `id@N`, or a file.
    pub policy: &'a str,
    pub since: &'a str,
    pub until: Option<&'a str>,
    pub key: Option<&'a str>,
}

/// So that scripts see that something would be decided differently.
const DIFFERS: u8 = 3;

pub fn run(file: &Path, asked: &Asked<'_>, as_json: bool) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    let now_ms = Clock::system().now_ms();
    let until = asked.until.map(|text| instant(text, now_ms)).transpose()?;
    let wish = Wish {
        policy: policy(&config, asked.policy)?,
        key: asked.key.map(str::to_owned),
        from_ms: instant(asked.since, now_ms)?,
        to_ms: until.unwrap_or(now_ms + 1),
        most: None,
    };
    let prices = price_of(file)?;
    let report = block_on(async {
        let mut reader = reader(file).await?;
        let mut progress = None;
        let told = |done, of| {
            let progress = progress.get_or_insert_with(|| Progress::of("simulated", of));
            progress.at(done);
        };
        Ok(simulate(&mut reader, &config, prices, wish, told).await?)
    })?;
    if as_json {
        print(&serde_json::to_string_pretty(&report)?);
    } else {
        show(&report);
    }
    Ok(match report.differences.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DIFFERS),
    })
}

fn policy(config: &Config, named: &str) -> anyhow::Result<Arc<Policy>> {
    let path = Path::new(named);
    if path.is_file() {
        return Ok(config.policy_in(path)?);
    }
    let found = find(config, named).context("it is no file either")?;
    Ok(Arc::clone(&found.policy))
}

fn price_of(file: &Path) -> anyhow::Result<PriceOf> {
    let config = Config::load(file)?;
    let prices = Arc::new(price_book(&config)?);
    let live = Live::to_read(config, prices);
    Ok(Box::new(move |provider, names, at_ms| {
        live.rates_at(provider, names, at_ms)
    }))
}

fn show(report: &Report) {
    let (from, to) = (time(report.from), time(report.to));
    print(&format!(
        "{} on {} records from {from} to {to}",
        report.policy, report.records
    ));
    counted("requests", &report.requests);
    counted("calls", &report.calls);
    let cost = report.cost;
    let more = match cost.unknown_requests {
        0 => String::new(),
        some => format!(", and what {some} requests would cost that were refused then"),
    };
    let dollars = |nanos| Money::from_nanos(nanos).to_string();
    print(&format!(
        "cost       {} then, {} now{more}",
        dollars(cost.then_nano_usd),
        dollars(cost.now_nano_usd)
    ));
    print("");
    if report.differences.is_empty() {
        print("Nothing would be decided differently, as far as the ledger tells.");
    } else {
        print(HEAD);
        report.differences.iter().for_each(line);
    }
    if report.more_differences > 0 {
        print(&format!("… and {} more", report.more_differences));
    }
    section(
        "Not decidable from the ledger, which has no content",
        report.undecided.iter(),
    );
    section("Taken over as it was said then", report.as_recorded.iter());
}

fn counted(what: &str, counts: &Counts) {
    let Counts {
        all,
        passed_then,
        passed_now,
    } = counts;
    print(&format!(
        "{what:<10} {passed_then} of {all} passed then, {passed_now} now"
    ));
}

const HEAD: &str = "then       now          count  rule                       key              model                    tool                     first";

fn line(row: &Difference) {
    let what = &row.what;
    print(&format!(
        "{:<10} {:<10} {:>7}  {:<26} {:<16} {:<24} {:<24} {} {}",
        what.then.name(),
        what.now.name(),
        row.count,
        what.rule,
        what.key,
        what.model,
        what.tool.as_deref().unwrap_or("-"),
        time(row.first_at),
        row.request_id,
    ));
}

fn section<'r>(title: &str, rows: impl Iterator<Item = (&'r &'static str, &'r u64)>) {
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return;
    }
    print(&format!("\n{title}:"));
    for (rule, count) in rows {
        print(&format!("  {rule:<28} {count:>9}"));
    }
}

fn time(at_ms: i64) -> String {
    let at = jiff::Timestamp::from_millisecond(at_ms).unwrap_or_default();
    format!("{at:.0}")
}
