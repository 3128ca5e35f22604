//! The end of a permit: what the answer amounted to, booked once, however it ended.

use std::sync::Arc;

use http::StatusCode;

use super::{super::rejection::Rejection, permit::Permit};
use crate::{
    books::{Actual, Reservation},
    engine::{
        chat::Tally,
        pricing::{Usage, UsageReading},
        record::{Closing, Event, Outcome},
        tokens,
    },
};

/// In records only: the client left before its answer ended. As nginx writes it.
const CLIENT_GONE: u16 = 499;

impl Permit {
    /// Settles an answer that the client was given.
    pub fn complete(&mut self, tally: &Tally, outcome: Outcome) {
        self.close(tally, outcome, StatusCode::OK.as_u16());
    }

    /// Settles an answer that became a refusal.
    pub fn refuse(&mut self, tally: &Tally, outcome: Outcome, rejection: Rejection) -> Rejection {
        self.close(tally, outcome, rejection.status().as_u16());
        rejection
    }

    /// The first time only; later ones change nothing.
    fn close(&mut self, tally: &Tally, outcome: Outcome, status: u16) {
        let now_ms = self.clock.now_ms();
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        self.note_end(outcome);
        let (usage, estimated) = match &self.reservation {
            Some(_) => self.usage(tally, outcome),
            None => (Usage::default(), false),
        };
        let lost = self.lost();
        let estimated = estimated || lost.tokens > 0;
        let cost = self.cost_of(&usage, tally.service_tier.as_deref()) + lost.cost;
        let tokens = usage.input + usage.output + lost.tokens;
        let settle = |held: Reservation| held.settle(Actual { tokens, cost }, now_ms);
        let limits = self.reservation.take().map_or_else(Vec::new, settle);
        let reported = tally.usage.is_some();
        let zero_beside_text = reported && usage.output == 0 && tally.written > 0;
        let closing = Closing {
            subject: self.subject.clone(),
            provider: Arc::clone(&self.target.provider.name),
            resolved_model: Arc::clone(&self.target.model),
            answered_model: tally.model.clone(),
            input_tokens: usage.input + lost.tokens,
            cached_tokens: usage.cached_input,
            output_tokens: usage.output,
            reasoning_tokens: usage.reasoning,
            cost_nano_usd: cost,
            estimated,
            usage_suspect: zero_beside_text || tally.usage.is_some_and(|read| read.suspect),
            outcome,
            status,
            tool_calls: tally.tool_calls,
            limits,
            duration_ms: now_ms - self.started_ms,
        };
        let event = Event::RequestSettled(Box::new(closing));
        self.record(event);
    }

    /// Nano-dollars.
    pub(super) fn cost_of(&self, usage: &Usage, tier: Option<&str>) -> u64 {
        match &self.target.rates {
            Some(at) if *usage != Usage::default() => at.rates.cost(usage, tier).nanos(),
            _ => 0,
        }
    }

    /// Reported usage as it is; else a count of what went in and came out. An error answer and
    /// an answer without content cost nothing.
    fn usage(&self, tally: &Tally, outcome: Outcome) -> (Usage, bool) {
        let written = tokens::estimate(tally.written).min(self.covered());
        if let Some(UsageReading { mut usage, .. }) = tally.usage {
            // A report in the middle of an answer that we cut is behind what was written.
            if outcome == Outcome::Cut {
                usage.output = usage.output.max(written);
            }
            return (usage, false);
        }
        let left = outcome == Outcome::ClientGone && self.sent;
        if tally.written == 0 && !left {
            return (Usage::default(), outcome == Outcome::Completed);
        }
        (
            Usage {
                input: self.input_estimate,
                output: written,
                ..Usage::default()
            },
            true,
        )
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.close(&Tally::default(), Outcome::ClientGone, CLIENT_GONE);
    }
}
