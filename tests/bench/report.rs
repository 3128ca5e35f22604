//! The samples of all rounds as one Markdown table, with ratios to nginx of the same run.

use std::{collections::BTreeMap, fs, process::Command};

use crate::{guard::Cost, load::Sample};

/// Everything measured, by load and target, one entry a round.
#[derive(Default)]
pub struct Report {
    samples: BTreeMap<(&'static str, &'static str), Vec<Sample>>,
    fixed: BTreeMap<&'static str, Vec<Vec<u64>>>,
    memory: BTreeMap<&'static str, Vec<f64>>,
}

impl Report {
    pub fn sample(&mut self, load: &'static str, target: &'static str, sample: Sample) {
        self.samples.entry((load, target)).or_default().push(sample);
    }

    pub fn fixed(&mut self, target: &'static str, delays: Vec<u64>) {
        self.fixed.entry(target).or_default().push(delays);
    }

    pub fn memory(&mut self, target: &'static str, bytes: Vec<f64>) {
        self.memory.insert(target, bytes);
    }

    pub fn print(&self, rounds: u32, rate: u32, counts: &[usize]) {
        println!("\n{}, {rounds} rounds\n", machine());
        println!("| | {} | Tallygate ÷ nginx |", TARGETS.join(" | "));
        println!("|---|{}---:|", "---:|".repeat(TARGETS.len()));
        self.loads();
        for (name, part) in [("p50", 0.50), ("p99", 0.99)] {
            let delay = |target: &str| median_percentile(self.fixed.get(target)?, part);
            let direct = delay(TARGETS[0]).unwrap_or(0.0);
            let added = |target: &str| Some((delay(target)? - direct) / 1e3);
            let at = format!("{rate} requests/s: added {name}, µs");
            row(&at, 0, |target| {
                if target == TARGETS[0] {
                    None
                } else {
                    added(target)
                }
            });
        }
        for (index, count) in counts.iter().enumerate() {
            let size = |target: &str| Some(self.memory.get(target)?.get(index)? / 1024.0);
            row(&format!("KiB per idle stream, {count} open"), 1, size);
        }
    }

    /// What of the proxy's cost is judging.
    pub fn print_guard(&self, text: &Cost, alone: &[(String, f64)]) {
        println!("\n| judging alone, in process | µs | share | with ÷ without |");
        println!("|---|---:|---:|---:|");
        for (load, name, cost) in [
            ("burst", "events that arrive together", text.together),
            ("each", "each event a write", text.each),
        ] {
            let whole = self.micros(load, TARGETS[2]);
            let share = whole.map(|whole| cost / whole);
            let percent = share.map_or("–".into(), |share| format!("{:.1} %", share * 100.0));
            let ratio = share.map_or("–".into(), |share| format!("{:.2}", 1.0 / (1.0 - share)));
            println!("| {name}, of an event | {cost:.3} | {percent} | {ratio} |");
        }
        for (name, cost) in alone {
            println!("| {name} | {cost:.3} | | |");
        }
    }

    fn micros(&self, load: &'static str, target: &str) -> Option<f64> {
        let samples = self.of(load, target)?;
        let cpu = samples.iter().map(|one| one.cpu.as_secs_f64()).sum::<f64>();
        Some(cpu * 1e6 / samples.iter().map(|one| one.units).sum::<u64>() as f64)
    }

    fn loads(&self) {
        self.rate("small", "requests/s, 64 connections");
        self.cost("small", "CPU µs/request");
        self.delay("small", "latency p50, ms", 0.50, 1e6);
        self.delay("small", "latency p99, ms", 0.99, 1e6);
        for (load, name) in [
            ("burst", "events that arrive together"),
            ("each", "each event a write"),
            ("tools", "tool-call deltas"),
        ] {
            self.rate(load, &format!("{name}: events/s"));
            self.cost(load, &format!("{name}: CPU µs/event"));
        }
        self.cost("paced", "64 streams, an event each 10 ms: CPU µs/event");
        self.delay("paced", "the same: delay p50, µs", 0.50, 1e3);
        self.delay("paced", "the same: delay p99, µs", 0.99, 1e3);
        self.delay("half", "half load, 350 streams: delay p50, µs", 0.50, 1e3);
        self.delay("half", "the same: delay p99, µs", 0.99, 1e3);
        self.rate("large", "1 MiB requests/s");
        self.cost("large", "1 MiB request: CPU µs");
    }

    fn rate(&self, load: &'static str, title: &str) {
        row(title, 0, |target| {
            let rates = self.of(load, target)?.iter();
            median(
                rates
                    .map(|one| one.units as f64 / one.elapsed.as_secs_f64())
                    .collect(),
            )
        });
    }

    fn cost(&self, load: &'static str, title: &str) {
        row(title, 2, |target| self.micros(load, target));
    }

    fn delay(&self, load: &'static str, title: &str, part: f64, unit: f64) {
        row(title, 2, |target| {
            let delays = self
                .of(load, target)?
                .iter()
                .map(|one| percentile(&one.delays, part));
            median(delays.collect()).map(|nanos| nanos / unit)
        });
    }

    fn of(&self, load: &'static str, target: &str) -> Option<&Vec<Sample>> {
        let target = TARGETS.into_iter().find(|name| *name == target)?;
        self.samples.get(&(load, target))
    }
}

fn row(title: &str, digits: usize, value: impl Fn(&str) -> Option<f64>) {
    let shown =
        |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.digits$}"));
    let cells = TARGETS.map(|target| shown(value(target))).join(" | ");
    let ratio = value(TARGETS[2])
        .zip(value(TARGETS[1]))
        .map(|(ours, theirs)| ours / theirs);
    println!(
        "| {title} | {cells} | {} |",
        ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"))
    );
}

fn median_percentile(rounds: &[Vec<u64>], part: f64) -> Option<f64> {
    median(
        rounds
            .iter()
            .map(|delays| percentile(delays, part))
            .collect(),
    )
}

fn percentile(values: &[u64], part: f64) -> f64 {
    let mut values = values.to_vec();
    if values.is_empty() {
        return f64::NAN;
    }
    let at = ((values.len() - 1) as f64 * part) as usize;
    *values.select_nth_unstable(at).1 as f64
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let nginx = Command::new("nginx").arg("-v").output();
    let nginx = nginx.map(|output| String::from_utf8_lossy(&output.stderr).trim().to_owned());
    format!(
        "{cores} × {}, Linux {}, {}",
        model.map_or("unknown CPU", |(_, name)| name),
        read("/proc/sys/kernel/osrelease").trim(),
        nginx.unwrap_or_else(|_| "no nginx".into()),
    )
}

/// In the order of the columns; the ratio is the third to the second.
const TARGETS: [&str; 3] = ["direct", "nginx", "Tallygate"];
