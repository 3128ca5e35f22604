//! What does Tallygate cost? Drives a mock provider directly, through nginx and through Tallygate,
//! in turn within each round, and prints a Markdown table. `./bench` builds all it needs;
//! `./bench --quick` takes a minute, `--only WORDS` measures the loads of that name. Everything runs on the loopback and ends by itself.

#![allow(
    clippy::indexing_slicing,
    reason = "no part of the product; a panic ends the measurement"
)]
#![allow(clippy::disallowed_methods, reason = "real time is what is measured")]

mod guard;
mod load;
mod mock;
mod process;
mod report;
mod scenario;
mod stamp;
mod target;
mod wire;

use std::{env, fs, time::Duration};

use anyhow::{Context, Result};

use crate::{
    report::Report,
    scenario::{FIXED_RATE, Load, loads},
    target::{Mock, Target},
};

fn main() -> Result<()> {
    let given = env::args().skip(1).collect::<Vec<_>>();
    let is_given = |name: &str| given.iter().any(|argument| argument == name);
    if is_given("mock") {
        return mock::run();
    }
    // cargo says `--bench` when it measures; without, as in `cargo test --all-targets`, nothing is.
    if is_given("--bench") {
        let (rounds, scale) = if is_given("--quick") {
            (1, 0.4)
        } else {
            (5, 1.0)
        };
        let only = given
            .iter()
            .position(|argument| argument == "--only")
            .and_then(|at| given.get(at + 1));
        measure(rounds, scale, only.map(String::as_str))?;
    }
    Ok(())
}

/// `only`: nothing but the loads whose name holds this text.
fn measure(rounds: u32, scale: f64, only: Option<&str>) -> Result<()> {
    // Threads sleep to the nanosecond, where the system lets us.
    let _ = fs::write("/proc/self/timerslack_ns", "1");
    let mut report = Report::default();
    // Memory first and in processes of its own: a proxy that has worked keeps what it had.
    let whole = only.is_none();
    each_target(whole, |target| {
        let sizes = load::idle_streams(target, &IDLE_STREAMS).context("idle streams")?;
        report.memory(target.name, sizes);
        Ok(())
    })?;
    let mock = Mock::start()?;
    let mut targets = target::proxies(&mock)?;
    targets.insert(0, mock.target());
    let mut loads = loads(scale);
    loads.retain(|load| only.is_none_or(|only| load.name.contains(only)));
    for target in &targets {
        warm_up(target, &loads)?;
    }
    for round in 1..=rounds {
        for load in &loads {
            eprintln!("round {round} of {rounds}: {}", load.name);
            for target in &targets {
                let sample = load::closed_loop(target, load)
                    .with_context(|| format!("{} through {}", load.name, target.name))?;
                report.sample(load.name, target.name, sample);
            }
        }
        for target in targets.iter().filter(|_| whole) {
            eprintln!("round {round} of {rounds}: fixed rate");
            let span = Duration::from_secs_f64(5.0 * scale);
            let delays = load::fixed_rate(target, FIXED_RATE, span)
                .with_context(|| format!("fixed rate through {}", target.name))?;
            report.fixed(target.name, delays);
        }
        targets.rotate_left(1);
    }
    report.print(rounds, FIXED_RATE, &IDLE_STREAMS);
    let alone = [guard::delay(), guard::linearity()].concat();
    report.print_guard(&guard::text(), &alone);
    Ok(())
}

/// Each target once, fresh, with a mock of its own.
fn each_target(wanted: bool, mut visit: impl FnMut(&Target) -> Result<()>) -> Result<()> {
    if !wanted {
        return Ok(());
    }
    eprintln!("idle streams");
    let mock = Mock::start()?;
    visit(&mock.target())?;
    drop(mock);
    let mock = Mock::start()?;
    target::proxies(&mock)?.iter().try_for_each(visit)
}

/// Connections, caches and allocators as they are after the first minute.
fn warm_up(target: &Target, loads: &[Load]) -> Result<()> {
    for load in loads {
        let short = Load {
            span: Duration::from_millis(300),
            ..*load
        };
        load::closed_loop(target, &short)
            .with_context(|| format!("{} through {}", load.name, target.name))?;
    }
    Ok(())
}

/// Open at once; a proxy whose cost per stream is flat shows the same number for each.
const IDLE_STREAMS: [usize; 3] = [10, 200, 2_000];
