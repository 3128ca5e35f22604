//! What usage costs, in integers: rates are resolved once and then only multiplied.

mod book;
#[cfg(test)]
mod tests;
mod usage;

pub use self::{
    book::{PriceBook, RatesAt},
    usage::UsageReading,
};
use super::money::Money;

/// Tokens of one answer, as the provider bills them. `cached_input`, `cache_write` and
/// `input_audio` are parts of `input`; `output_audio` and `reasoning` are parts of `output`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    pub cached_input: u64,
    pub cache_write: u64,
    pub input_audio: u64,
    pub output: u64,
    pub output_audio: u64,
    pub reasoning: u64,
}

/// Prices as an operator writes them: per million tokens, but `request` for each request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperatorPrice {
    pub input: Money,
    pub output: Money,
    /// Absent: these cost what the plain ones cost.
    pub cached_input: Option<Money>,
    pub cache_write: Option<Money>,
    pub input_audio: Option<Money>,
    pub output_audio: Option<Money>,
    pub request: Option<Money>,
}

/// A price for people: per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListPrice {
    pub input: Money,
    pub cached_input: Money,
    pub output: Money,
}

/// Nano-dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Prices {
    input: u64,
    cached_input: u64,
    cache_write: u64,
    input_audio: u64,
    output: u64,
    output_audio: u64,
}

/// From more than `above` input tokens on, all tokens of a request cost `prices` (a cliff).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tier {
    above: u64,
    prices: Prices,
}

/// The tiers of one service tier, rising.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Service {
    name: Box<str>,
    tiers: Vec<Tier>,
}

/// The prices of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rates {
    standard: Vec<Tier>,
    services: Vec<Service>,
    /// Nano-dollars for each request, whatever its size.
    request: u64,
    /// No input costs more than this, no output more than that.
    dearest: (u64, u64),
    /// The same for requests that hold or ask for sound.
    dearest_audio: (u64, u64),
}

impl From<OperatorPrice> for Rates {
    fn from(price: OperatorPrice) -> Self {
        let or = |some: Option<Money>, plain: Money| some.unwrap_or(plain).nanos();
        let prices = Prices {
            input: price.input.nanos(),
            cached_input: or(price.cached_input, price.input),
            cache_write: or(price.cache_write, price.input),
            input_audio: or(price.input_audio, price.input),
            output: price.output.nanos(),
            output_audio: or(price.output_audio, price.output),
        };
        let request = price.request.map_or(0, Money::nanos);
        Self::new(vec![Tier { above: 0, prices }], Vec::new(), request)
    }
}

impl Rates {
    fn new(standard: Vec<Tier>, services: Vec<Service>, request: u64) -> Self {
        let all = || {
            standard
                .iter()
                .chain(services.iter().flat_map(|service| &service.tiers))
        };
        let most = |rate: fn(&Prices) -> u64| all().map(|tier| rate(&tier.prices)).max();
        let text = (most(Prices::dearest_input), most(|prices| prices.output));
        let sound = (
            most(|prices| prices.input_audio),
            most(|prices| prices.output_audio),
        );
        let dearest = (text.0.unwrap_or(0), text.1.unwrap_or(0));
        let dearest_audio = (
            dearest.0.max(sound.0.unwrap_or(0)),
            dearest.1.max(sound.1.unwrap_or(0)),
        );
        Self {
            standard,
            services,
            request,
            dearest,
            dearest_audio,
        }
    }

    /// The exact cost of `usage`, rounded up once to a nano-dollar. `service_tier` is the one
    /// the answer names; one without prices of its own costs the standard ones.
    pub fn cost(&self, usage: &Usage, service_tier: Option<&str>) -> Money {
        let tiers = service_tier
            .and_then(|name| self.services.iter().find(|service| &*service.name == name))
            .map_or(&self.standard, |service| &service.tiers);
        let tier = tiers
            .iter()
            .rev()
            .find(|tier| usage.input > tier.above || tier.above == 0);
        let Some(Tier { prices, .. }) = tier else {
            return Money::from_nanos(self.request);
        };
        // Parts are taken off the whole one after the other, so that a report that does not
        // add up cannot be priced twice or below nothing.
        let mut input = usage.input;
        let mut take = |part: u64| {
            let part = part.min(input);
            input -= part;
            u128::from(part)
        };
        let (cached, written, audio) = (
            take(usage.cached_input),
            take(usage.cache_write),
            take(usage.input_audio),
        );
        let spoken = usage.output_audio.min(usage.output);
        let total = u128::from(input) * u128::from(prices.input)
            + cached * u128::from(prices.cached_input)
            + written * u128::from(prices.cache_write)
            + audio * u128::from(prices.input_audio)
            + u128::from(usage.output - spoken) * u128::from(prices.output)
            + u128::from(spoken) * u128::from(prices.output_audio);
        per_million(total, self.request)
    }

    /// What a short request of text costs in the standard tier, per million tokens.
    pub fn listed(&self) -> ListPrice {
        let prices = self.standard.first().map(|tier| tier.prices);
        let prices = prices.unwrap_or_default();
        ListPrice {
            input: Money::from_nanos(prices.input),
            cached_input: Money::from_nanos(prices.cached_input),
            output: Money::from_nanos(prices.output),
        }
    }

    /// An upper bound: `input` and `output` tokens at the dearest rate that can apply; `audio`
    /// says whether those of sound can.
    pub fn worst(&self, input: u64, output: u64, audio: bool) -> Money {
        let (input_rate, output_rate) = if audio {
            self.dearest_audio
        } else {
            self.dearest
        };
        let total = u128::from(input) * u128::from(input_rate)
            + u128::from(output) * u128::from(output_rate);
        per_million(total, self.request)
    }
}

impl Prices {
    fn dearest_input(&self) -> u64 {
        self.input.max(self.cached_input).max(self.cache_write)
    }
}

fn per_million(total: u128, request: u64) -> Money {
    let nanos = u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX);
    Money::from_nanos(nanos.saturating_add(request))
}
