//! Further attempts of a permit whose first failed: which places are left, and what the attempts
//! before may have cost.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    super::resolve::{Routes, Target},
    issue::for_provider,
    permit::Permit,
};
use crate::{
    books::Actual,
    engine::{
        call::{ChatRequest, offers::Patch},
        failover::{Attempts, Failure, Next, RetryRules},
        pricing::Usage,
        record::{Event, FailedAttempt},
    },
};

/// What further attempts need.
pub struct Spare {
    rules: RetryRules,
    /// All places, in the order in which they are tried.
    routes: Vec<Target>,
    made: u32,
    /// What failed attempts may have cost.
    lost: Actual,
    cap: Option<u64>,
    tools: Vec<Patch>,
}

impl Spare {
    /// `None`: one attempt is all there will be.
    pub(super) fn of(
        rules: &RetryRules,
        routes: &Routes,
        cap: Option<u64>,
        tools: Vec<Patch>,
    ) -> Option<Box<Self>> {
        let single = routes.further.is_empty() && rules.max_retries.unwrap_or(0) == 0;
        let spare = || Self {
            rules: rules.clone(),
            routes: routes.iter().cloned().collect(),
            made: 1,
            lost: Actual::default(),
            cap,
            tools,
        };
        (!single).then(|| Box::new(spare()))
    }

    fn next(&self, failure: Failure, wanted_ms: Option<u64>) -> Option<Next> {
        let attempts = Attempts {
            made: self.made,
            routes: u32::try_from(self.routes.len()).unwrap_or(u32::MAX),
        };
        self.rules.next(failure, attempts, wanted_ms)
    }
}

impl Permit {
    /// Whether the request has more than one place to go.
    pub fn has_choice(&self) -> bool {
        let spare = self.spare.as_ref();
        spare.is_some_and(|spare| spare.routes.len() > 1)
    }

    /// After a failed attempt: makes it a request to the next place, records that, and tells how
    /// many milliseconds to wait before it is sent. `None`: the failure is the answer.
    pub fn try_again(
        &mut self,
        failure: Failure,
        wanted_ms: Option<u64>,
        (call, body): (&ChatRequest, &Bytes),
    ) -> Option<u64> {
        let spare = self.spare.as_deref()?;
        let next = spare.next(failure, wanted_ms)?;
        let target = spare.routes.get(usize::try_from(next.route).ok()?)?.clone();
        let (attempt, cap) = (spare.made, spare.cap);
        let sent = for_provider(&target, (call, body), cap, &spare.tools);
        let charged = self.charge_for(failure);
        let after_ms = next.spread_ms(wanted_ms, (self.reply_seed >> (attempt % 64)) as u64);
        self.record_attempt((attempt, failure), charged, (&target, after_ms));
        if let Some(spare) = self.spare.as_deref_mut() {
            spare.made += 1;
            spare.lost.tokens = spare.lost.tokens.saturating_add(charged.tokens);
            spare.lost.cost = spare.lost.cost.saturating_add(charged.cost);
        }
        self.target = target;
        self.body = sent;
        self.sent = false;
        Some(after_ms)
    }

    /// A further attempt leaves now.
    pub fn mark_sent_again(&mut self) {
        self.sent = true;
        self.sent_at = Some(Instant::now());
        self.mark_attempt();
    }

    /// How many were made, the first included.
    pub(super) fn attempts(&self) -> u32 {
        self.spare.as_deref().map_or(1, |spare| spare.made)
    }

    /// What failed attempts may have cost.
    pub(super) fn lost(&self) -> Actual {
        let spare = self.spare.as_deref();
        spare.map_or(Actual::default(), |spare| spare.lost)
    }

    fn charge_for(&self, failure: Failure) -> Actual {
        if !failure.may_have_been_worked_on() {
            return Actual::default();
        }
        let usage = Usage {
            input: self.input_estimate,
            ..Usage::default()
        };
        Actual {
            tokens: usage.input,
            cost: self.cost_of(&usage, None),
        }
    }

    fn record_attempt(
        &self,
        (attempt, failure): (u32, Failure),
        charged: Actual,
        (next, after_ms): (&Target, u64),
    ) {
        let (provider, next_provider) = (&self.target.provider.name, &next.provider.name);
        tracing::warn!(
            request_id = &**self.request_id(),
            %provider, failure = failure.code(), next = %next_provider, after_ms,
            "an attempt failed"
        );
        let status = match failure {
            Failure::Answered(status) => Some(status),
            Failure::NotReached | Failure::Unknown => None,
        };
        let failed = FailedAttempt {
            subject: self.subject.clone(),
            provider: Arc::clone(provider),
            resolved_model: Arc::clone(&self.target.model),
            attempt,
            failure: failure.code(),
            status,
            charged_tokens: charged.tokens,
            charged_nano_usd: charged.cost,
            next_provider: Arc::clone(next_provider),
            next_model: Arc::clone(&next.model),
            after_ms,
        };
        let event = Event::AttemptFailed(Box::new(failed));
        self.record(event);
    }
}
