//! Everything counted, in the text form of Prometheus (version 0.0.4).

use std::{
    fmt::{self, Display, Write as _},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{
    Metrics, OUTCOMES, Requests,
    histogram::{BOUNDS, Histogram},
    table::Table,
};
use crate::engine::money::Money;

/// A value that is not counted but looked at when somebody asks.
pub struct Gauge {
    pub name: &'static str,
    pub help: &'static str,
    pub value: f64,
}

/// All families, each once with its help and type.
pub fn exposition(metrics: &Metrics, version: &str, gauges: &[Gauge]) -> String {
    let mut page = Page(String::with_capacity(16 << 10));
    page.family("tallygate_build_info", "gauge", "The version that runs");
    page.sample("tallygate_build_info", &[("version", version)], 1);
    requests(&mut page, &metrics.requests);
    failed_attempts(&mut page, metrics);
    refusals_and_calls(&mut page, metrics);
    webhook(&mut page, metrics);
    spans(&mut page, metrics);
    reservations(&mut page, metrics);
    durations(&mut page, metrics);
    for gauge in gauges {
        page.family(gauge.name, "gauge", gauge.help);
        page.sample(gauge.name, &[], gauge.value);
    }
    page.0
}

type ByKeyAndModel = Table<(std::sync::Arc<str>, std::sync::Arc<str>), Requests>;

fn requests(page: &mut Page, table: &ByKeyAndModel) {
    let name = "tallygate_requests_total";
    page.family(name, "counter", "Requests that were sent and are settled");
    each(table, |key, model, requests| {
        for ((_, outcome), count) in OUTCOMES.iter().zip(&requests.outcomes) {
            let labels = [("key", key), ("model", model), ("outcome", outcome)];
            page.counted(name, &labels, count);
        }
    });
    let name = "tallygate_tokens_total";
    page.family(
        name,
        "counter",
        "Tokens; cached and reasoning ones are part of input and output",
    );
    each(table, |key, model, requests| {
        for (kind, count) in [
            ("input", &requests.input_tokens),
            ("cached", &requests.cached_tokens),
            ("output", &requests.output_tokens),
            ("reasoning", &requests.reasoning_tokens),
        ] {
            page.counted(
                name,
                &[("key", key), ("model", model), ("type", kind)],
                count,
            );
        }
    });
    let name = "tallygate_spend_usd_total";
    page.family(name, "counter", "What settled requests cost, in dollars");
    each(table, |key, model, requests| {
        let cost = Dollars(requests.cost_nano_usd.load(Relaxed));
        page.sample(name, &[("key", key), ("model", model)], cost);
    });
    let name = "tallygate_usage_estimated_total";
    page.family(
        name,
        "counter",
        "Requests whose usage the provider did not report",
    );
    each(table, |key, model, requests| {
        page.counted(name, &[("key", key), ("model", model)], &requests.estimated);
    });
}

fn each(table: &ByKeyAndModel, mut told: impl FnMut(&str, &str, &Requests)) {
    table.read(|labels, requests| match labels {
        Some((key, model)) => told(key, model, requests),
        None => told(OTHERS, OTHERS, requests),
    });
}

/// Label sets that had no room.
const OTHERS: &str = "(others)";

fn failed_attempts(page: &mut Page, metrics: &Metrics) {
    let name = "tallygate_failed_attempts_total";
    page.family(
        name,
        "counter",
        "Attempts at a provider that failed and were followed by another",
    );
    metrics.failed_attempts.read(|labels, count| {
        let (provider, failure) =
            labels.map_or((OTHERS, OTHERS), |(provider, failure)| (provider, failure));
        page.counted(name, &[("provider", provider), ("failure", failure)], count);
    });
}

fn refusals_and_calls(page: &mut Page, metrics: &Metrics) {
    let name = "tallygate_refusals_total";
    page.family(
        name,
        "counter",
        "Requests that were refused; no key: none was known",
    );
    metrics.refusals.read(|labels, count| {
        let (key, code) = labels.map_or((OTHERS, OTHERS), |(key, code)| (key, code));
        page.counted(name, &[("key", key), ("code", code)], count);
    });
    let name = "tallygate_tool_calls_total";
    page.family(
        name,
        "counter",
        "Calls that models proposed, by the code of the layer that said no",
    );
    metrics.calls.read(|code, count| {
        let code = code.copied().unwrap_or(OTHERS);
        let decision = if code.is_empty() { "passed" } else { "blocked" };
        page.counted(name, &[("decision", decision), ("code", code)], count);
    });
}

fn webhook(page: &mut Page, metrics: &Metrics) {
    let name = "tallygate_webhook_attempts_total";
    page.family(
        name,
        "counter",
        "Attempts to tell the webhook of a waiting call",
    );
    for (outcome, count) in ["delivered", "failed"].iter().zip(&metrics.webhook) {
        page.sample(name, &[("outcome", outcome)], count.load(Relaxed));
    }
}

fn spans(page: &mut Page, metrics: &Metrics) {
    let name = "tallygate_spans_total";
    page.family(
        name,
        "counter",
        "Spans that the collector took, or never will",
    );
    for (outcome, count) in ["exported", "dropped"].iter().zip(&metrics.spans) {
        page.sample(name, &[("outcome", outcome)], count.load(Relaxed));
    }
}

fn reservations(page: &mut Page, metrics: &Metrics) {
    let held = &metrics.reservations;
    // Settled is read first: never more than was made.
    let settled = held.settled.load(Relaxed);
    let made = held.made.load(Relaxed);
    for (name, help, amount) in [
        (
            "tallygate_reservations_total",
            "Requests for which was reserved",
            made,
        ),
        (
            "tallygate_reserved_tokens_total",
            "Tokens reserved when requests were admitted",
            held.tokens.load(Relaxed),
        ),
    ] {
        page.family(name, "counter", help);
        page.sample(name, &[], amount);
    }
    let name = "tallygate_reserved_usd_total";
    page.family(
        name,
        "counter",
        "Dollars reserved when requests were admitted",
    );
    page.sample(name, &[], Dollars(held.nano_usd.load(Relaxed)));
    for (name, help, amount) in [
        (
            "tallygate_requests_open",
            "Requests that are not settled yet",
            made.saturating_sub(settled),
        ),
        (
            "tallygate_streams_open",
            "Streams on their way to clients",
            metrics.streams_open.load(Relaxed),
        ),
    ] {
        page.family(name, "gauge", help);
        page.sample(name, &[], amount);
    }
}

fn durations(page: &mut Page, metrics: &Metrics) {
    let name = "tallygate_added_latency_seconds";
    page.family(
        name,
        "histogram",
        "From the whole request read to its sending",
    );
    page.histogram(name, None, &metrics.added);
    for (name, help, table) in [
        (
            "tallygate_upstream_latency_seconds",
            "From the sending to the head of the provider's answer",
            &metrics.upstream,
        ),
        (
            "tallygate_time_to_first_token_seconds",
            "From the sending to the first piece of a stream that left for the client",
            &metrics.first_piece,
        ),
    ] {
        page.family(name, "histogram", help);
        table.read(|provider, times| {
            let provider = provider.map_or(OTHERS, |provider| provider);
            page.histogram(name, Some(provider), times);
        });
    }
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "{name}");
        for (place, (label, text)) in labels.iter().enumerate() {
            let sign = if place == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{sign}{label}=\"{}\"", Escaped(text));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// What never happened is not told: most sets of labels never meet.
    fn counted(&mut self, name: &str, labels: &[(&str, &str)], count: &AtomicU64) {
        let count = count.load(Relaxed);
        if count > 0 {
            self.sample(name, labels, count);
        }
    }

    fn histogram(&mut self, name: &str, provider: Option<&str>, histogram: &Histogram) {
        let reading = histogram.read();
        let own: Vec<(&str, &str)> = provider
            .map(|name| ("provider", name))
            .into_iter()
            .collect();
        let bucket = format!("{name}_bucket");
        for (bound, count) in BOUNDS.iter().zip(reading.up_to) {
            let bound = Seconds(*bound).to_string();
            self.sample(&bucket, &[&own[..], &[("le", &bound)]].concat(), count);
        }
        self.sample(
            &bucket,
            &[&own[..], &[("le", "+Inf")]].concat(),
            reading.count,
        );
        self.sample(&format!("{name}_sum"), &own, Seconds(reading.sum_micros));
        self.sample(&format!("{name}_count"), &own, reading.count);
    }
}

/// A model's name comes from clients.
struct Escaped<'t>(&'t str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            match char {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                char => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

/// Nano-dollars as exact dollars.
struct Dollars(u64);

impl Display for Dollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Money::from_nanos(self.0).to_string();
        f.write_str(text.trim_start_matches('$'))
    }
}

/// Microseconds as exact seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_amounts_are_written_as_they_are_read_again() {
        let mut page = Page(String::new());
        page.sample("a", &[("m", "x\"y\\z\n")], Dollars(1_500_000_000));
        page.sample("b", &[], Seconds(2_500));
        assert_eq!(page.0, "a{m=\"x\\\"y\\\\z\\n\"} 1.50\nb 0.0025\n");
    }

    #[test]
    fn every_family_is_told_once_with_its_type() {
        let metrics = Metrics::default();
        let gauge = Gauge {
            name: "tallygate_store_up",
            help: "h",
            value: 1.0,
        };
        let text = exposition(&metrics, "0.1.0", &[gauge]);
        let mut types: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("# TYPE"))
            .collect();
        let all = types.len();
        types.sort_unstable();
        types.dedup();
        assert_eq!((types.len(), all), (19, 19));
        assert!(text.contains("tallygate_build_info{version=\"0.1.0\"} 1\n"));
        assert!(text.ends_with("tallygate_store_up 1\n"));
    }
}
