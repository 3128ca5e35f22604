//! The price table: `genai-prices`, asked once a model, turned into integer rates.
//!
//! The crate prices whole requests. Asking it for one kind of token at a time, at sizes on both
//! sides of each cliff, gives the rates behind its answers.

use std::time::{Duration, UNIX_EPOCH};

use genai_prices::{Calculator, PriceRequest, Usage as TableUsage, UsageKey};

use super::{Prices, Rates, Service, Tier};

/// Prices that change by the hour or the day are looked up again this often.
const VALID_MS: i64 = 60_000;
/// Service tiers that an answer may name.
const SERVICES: &[&str] = &["flex", "priority", "fast", "scale", "batch"];
/// Input sizes between which cliffs are looked for; no model reads more.
const SIZES: &[u64] = &[
    1_000, 64_000, 160_000, 230_000, 260_000, 400_000, 1_000_000, 4_000_000,
];

/// A price table.
pub enum PriceBook {
    /// The one inside the crate; decoded at first use.
    Bundled,
    Own(Box<Calculator>),
}

/// Rates, and until when they may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RatesAt {
    pub rates: std::sync::Arc<Rates>,
    until_ms: i64,
}

impl RatesAt {
    pub fn valid_at(&self, now_ms: i64) -> bool {
        now_ms < self.until_ms
    }

    /// An operator's own price, which does not change by itself.
    pub fn fixed(rates: Rates) -> Self {
        Self {
            rates: std::sync::Arc::new(rates),
            until_ms: i64::MAX,
        }
    }
}

/// One question to the table.
#[derive(Clone, Copy)]
struct Question<'a> {
    base_url: Option<&'a str>,
    model: &'a str,
    at_ms: i64,
    service: Option<&'a str>,
}

impl PriceBook {
    /// A newer table in the crate's own JSON form.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let table = Calculator::from_json(text).map_err(|error| error.to_string())?;
        Ok(Self::Own(Box::new(table)))
    }

    fn table(&self) -> &Calculator {
        match self {
            Self::Bundled => Calculator::bundled(),
            Self::Own(table) => table,
        }
    }

    /// The rates of `model` behind `base_url` at that time. `None`: it has no price.
    pub fn rates(&self, base_url: Option<&str>, model: &str, at_ms: i64) -> Option<RatesAt> {
        // A fine-tuned model costs more than the one it was made from, and has no row here.
        if model.starts_with("ft:") {
            return None;
        }
        let standard = Question {
            base_url,
            model,
            at_ms,
            service: None,
        };
        let tiers = self.tiers(standard)?;
        let services = SERVICES
            .iter()
            .filter_map(|name| {
                let tiers = self.tiers(Question {
                    service: Some(name),
                    ..standard
                })?;
                Some(Service {
                    name: (*name).into(),
                    tiers,
                })
            })
            .filter(|service| service.tiers != tiers)
            .collect();
        let rates = std::sync::Arc::new(Rates::new(tiers, services, self.per_request(standard)));
        Some(RatesAt {
            rates,
            until_ms: at_ms + VALID_MS,
        })
    }

    fn tiers(&self, question: Question<'_>) -> Option<Vec<Tier>> {
        let mut sizes = SIZES.iter().copied();
        let mut size = sizes.next()?;
        let mut prices = self.prices(question, size)?;
        let mut tiers = vec![Tier { above: 0, prices }];
        for next in sizes {
            let above = self.prices(question, next)?;
            if above != prices {
                let cliff = self.cliff(question, (size, prices), next)?;
                tiers.push(Tier {
                    above: cliff,
                    prices: above,
                });
            }
            (size, prices) = (next, above);
        }
        Some(tiers)
    }

    /// The largest size that still costs what `low` does.
    fn cliff(&self, question: Question<'_>, low: (u64, Prices), high: u64) -> Option<u64> {
        let (mut same, mut other) = (low.0, high);
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if self.prices(question, middle)? == low.1 {
                same = middle
            } else {
                other = middle
            }
        }
        Some(same)
    }

    /// All prices of a request with `size` input tokens.
    fn prices(&self, question: Question<'_>, size: u64) -> Option<Prices> {
        let input = |part: Option<UsageKey>| {
            self.rate(question, size, |usage, size| {
                usage.insert(UsageKey::INPUT_TOKENS, size);
                if let Some(part) = part {
                    usage.insert(part, size);
                }
            })
        };
        // Output costs by the size of the input: its price is what it adds.
        let output = |part: Option<UsageKey>| {
            let base = self.price(question, size, |_| {})?;
            let all = self.price(question, size, |usage| {
                usage.insert(UsageKey::OUTPUT_TOKENS, OUTPUT_PROBE);
                if let Some(part) = part.clone() {
                    usage.insert(part, OUTPUT_PROBE);
                }
            })?;
            Some(nanos((all - base) * 1e6 / OUTPUT_PROBE))
        };
        Some(Prices {
            input: input(None)?,
            cached_input: input(Some(UsageKey::CACHE_READ_TOKENS))?,
            cache_write: input(Some(UsageKey::CACHE_WRITE_TOKENS))?,
            input_audio: input(Some(UsageKey::INPUT_AUDIO_TOKENS))?,
            output: output(None)?,
            output_audio: output(Some(UsageKey::OUTPUT_AUDIO_TOKENS))?,
        })
    }

    #[allow(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
    fn rate(
        &self,
        question: Question<'_>,
        size: u64,
        fill: impl FnOnce(&mut TableUsage, f64),
    ) -> Option<u64> {
        let mut usage = TableUsage::default();
        fill(&mut usage, size as f64);
        let fee = self.ask(question, &TableUsage::default()).unwrap_or(0.0);
        let total = self.ask(question, &usage)?;
        Some(nanos((total - fee) * 1e6 / size as f64))
    }

    #[allow(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
    fn price(
        &self,
        question: Question<'_>,
        size: u64,
        fill: impl FnOnce(&mut TableUsage),
    ) -> Option<f64> {
        let mut usage = TableUsage::default();
        usage.insert(UsageKey::INPUT_TOKENS, size as f64);
        fill(&mut usage);
        self.ask(question, &usage)
    }

    fn per_request(&self, question: Question<'_>) -> u64 {
        self.ask(question, &TableUsage::default()).map_or(0, nanos)
    }

    fn ask(&self, question: Question<'_>, usage: &TableUsage) -> Option<f64> {
        let at = Duration::from_millis(u64::try_from(question.at_ms).ok()?);
        let mut request = PriceRequest::new(question.model, usage).with_timestamp(UNIX_EPOCH + at);
        if let Some(service) = question.service {
            request = request.with_price_context("service_tier", service);
        }
        let by_url = question.base_url.and_then(|url| {
            self.table()
                .calculate(&request.clone().with_provider_api_url(url))
                .ok()
        });
        // A base URL that the table does not know serves models that it may know by name.
        by_url
            .or_else(|| self.table().calculate(&request).ok())
            .map(|price| price.total_price)
    }
}

const OUTPUT_PROBE: f64 = 1_000_000.0;

/// Dollars per million tokens as nano-dollars. The table's prices have six decimals at most:
/// rounding repairs what floats did to them.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded just above"
)]
fn nanos(dollars: f64) -> u64 {
    let micros = (dollars * 1e6).round().clamp(0.0, 1e12);
    (micros as u64).saturating_mul(1000)
}
