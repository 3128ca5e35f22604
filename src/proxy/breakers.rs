//! The breakers of providers, shared by all workers. They are asked only where a request could
//! go elsewhere.

use std::sync::{Arc, Mutex, PoisonError};

use dashmap::DashMap;

use super::resolve::Routes;
use crate::{
    config::Provider,
    engine::failover::{Breaker, Change, Verdict},
};

#[derive(Default)]
pub struct Breakers(DashMap<Arc<str>, Arc<Mutex<Breaker>>>);

impl Breakers {
    /// Begins with a provider that does well, if there is one.
    pub fn prefer_healthy(&self, routes: &mut Routes, now_ms: i64) {
        routes.prefer(|target| self.with(&target.provider, |breaker| breaker.admits(now_ms)));
    }

    /// How an attempt there ended.
    pub fn note(&self, provider: &Provider, verdict: Verdict, now_ms: i64) -> Option<Change> {
        let change = self.with(provider, |breaker| breaker.note(verdict, now_ms));
        if let Some(change) = change {
            tracing::warn!(provider = %provider.name, ?change, "the provider's breaker");
        }
        change
    }

    fn with<T>(&self, provider: &Provider, look: impl FnOnce(&mut Breaker) -> T) -> T {
        let entry = self.0.entry(Arc::clone(&provider.name));
        let fresh = || Arc::new(Mutex::new(Breaker::new(provider.breaker)));
        let shared = Arc::clone(&entry.or_insert_with(fresh));
        let mut breaker = shared.lock().unwrap_or_else(PoisonError::into_inner);
        breaker.follow(provider.breaker);
        look(&mut breaker)
    }
}
