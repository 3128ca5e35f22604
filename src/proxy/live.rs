//! What is in force now: a configuration with everything derived from it. A request takes one
//! `Live` at its start and keeps it to its end.

use std::{
    collections::HashMap,
    num::{NonZeroU32, NonZeroU64},
    sync::Arc,
    time::Duration,
};

use dashmap::DashMap;
use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};

use crate::{
    books::{AtOnce, Books, Purse},
    config::{Config, Provider},
    engine::{
        budget::LimitSpec,
        policy::{Binding, Key, RateLimits},
        pricing::{PriceBook, RatesAt},
    },
};

pub struct Live {
    pub config: Arc<Config>,
    prices: Arc<PriceBook>,
    own_prices: HashMap<Box<str>, Arc<RatesAt>>,
    /// By key name: the accounts that a request of this key must satisfy.
    purses: HashMap<Arc<str>, Arc<Purse>>,
    /// Rates by provider and upstream model, looked up once and kept while they are valid.
    rates: DashMap<Place, Option<Arc<RatesAt>>>,
    /// By key name, for policies that set a burst.
    bursts: HashMap<Arc<str>, DefaultDirectRateLimiter>,
}

/// Provider and model there.
type Place = (Arc<str>, Box<str>);

/// More names than this are not remembered: a client may invent names without end.
const MOST_RATES: usize = 4096;

impl Live {
    pub fn new(config: Config, prices: Arc<PriceBook>, books: &Books) -> Self {
        let purses = config
            .keys
            .values()
            .map(|key| (Arc::clone(&key.name), purse(&config, key, books)))
            .collect();
        Self {
            purses,
            bursts: bursts(&config),
            ..Self::to_read(config, prices)
        }
    }

    /// To look models and prices up, without any account.
    pub fn to_read(config: Config, prices: Arc<PriceBook>) -> Self {
        let own_prices = config
            .aliases
            .iter()
            .filter_map(|(name, alias)| {
                Some((name.clone(), Arc::new(RatesAt::fixed(alias.price?.into()))))
            })
            .collect();
        Self {
            config: Arc::new(config),
            prices,
            own_prices,
            purses: HashMap::new(),
            rates: DashMap::new(),
            bursts: HashMap::new(),
        }
    }

    pub fn purse(&self, key: &Key) -> Option<&Arc<Purse>> {
        self.purses.get(&key.name)
    }

    /// Spreads what comes at once over the minute. `true`: it comes too fast for a burst that
    /// only counts.
    ///
    /// # Errors
    /// How long to wait.
    pub fn check_burst(&self, key: &Key) -> Result<bool, Duration> {
        let Some(burst) = self.bursts.get(&key.name) else {
            return Ok(false);
        };
        match burst.check() {
            Ok(()) => Ok(false),
            Err(_) if limits(key).is_some_and(|limits| limits.observe) => Ok(true),
            Err(until) => Err(until.wait_time_from(DefaultClock::default().now())),
        }
    }

    /// The same of a provider by its name.
    pub fn rates_at(&self, provider: &str, names: &[&str], at_ms: i64) -> Option<Arc<RatesAt>> {
        let mut providers = self.config.providers.iter();
        let provider = providers.find(|one| &*one.name == provider)?;
        self.rates(provider, names, at_ms)
    }

    /// The price of a model at `provider`, known by one of `names`: the operator's own, else
    /// the table's for the last of them. `None` when there is none.
    pub fn rates(
        &self,
        provider: &Arc<Provider>,
        names: &[&str],
        now_ms: i64,
    ) -> Option<Arc<RatesAt>> {
        let own = names.iter().find_map(|name| self.own_prices.get(*name));
        if let Some(own) = own {
            return Some(Arc::clone(own));
        }
        let model = *names.last()?;
        let id = (Arc::clone(&provider.name), Box::from(model));
        if let Some(known) = self.rates.get(&id) {
            match &*known {
                Some(rates) if rates.valid_at(now_ms) => return Some(Arc::clone(rates)),
                None => return None,
                Some(_) => {}
            }
        }
        let base = provider.base_url.as_ref().map(url::Url::as_str);
        let found = self.prices.rates(base, model, now_ms).map(Arc::new);
        if self.rates.len() < MOST_RATES {
            self.rates.insert(id, found.clone());
        }
        found
    }
}

fn bursts(config: &Config) -> HashMap<Arc<str>, DefaultDirectRateLimiter> {
    let limiter = |key: &Arc<Key>| {
        let Binding::To(policy) = &key.policy else {
            return None;
        };
        let small = |count: NonZeroU64| u32::try_from(count.get()).ok().and_then(NonZeroU32::new);
        let burst = small(policy.limits.burst?)?;
        let minute = small(policy.limits.requests_per_minute?)?;
        let quota = Quota::per_minute(minute).allow_burst(burst);
        Some((Arc::clone(&key.name), RateLimiter::direct(quota)))
    };
    config.keys.values().filter_map(limiter).collect()
}

fn purse(config: &Config, key: &Key, books: &Books) -> Arc<Purse> {
    let at_once = limits(key).map_or(AtOnce::default(), |limits| AtOnce {
        limit: limits.parallel_requests.map_or(0, u64::from),
        observe: limits.observe,
    });
    books.purse(&key.name, &limits_of(config, key), at_once)
}

fn limits(key: &Key) -> Option<&RateLimits> {
    match &key.policy {
        Binding::To(policy) => Some(&policy.limits),
        Binding::Unusable(_) => None,
    }
}

/// The key's own limits, its tenant's and the global ones, in the order they are checked.
fn limits_of(config: &Config, key: &Key) -> Vec<LimitSpec> {
    let mut limits = Vec::new();
    if let Binding::To(policy) = &key.policy {
        limits.extend(LimitSpec::of_key(&key.name, &policy.limits, &policy.budget));
    }
    if let Some(budget) = config.tenant_budgets.get(&key.tenant) {
        limits.extend(LimitSpec::of_tenant(&key.tenant, budget));
    }
    if let Some(budget) = &config.global_budget {
        limits.extend(LimitSpec::of_all(budget));
    }
    limits
}
