//! What helps a run on: decided where a loop is found or a provider fails, and recorded together
//! with what became of it.

use std::sync::Arc;

use super::permit::Permit;
use crate::{
    books::OpenRun,
    engine::{
        record::{EscalationNote, Event, Outcome},
        run::{Action, Effect, Escalated, Escalation, Looped, Reason},
    },
};

impl Permit {
    /// A call of the answer goes round in circles.
    pub(super) fn trip(&self, run: &Arc<OpenRun>) {
        let (Some(step), Some(facts)) = (self.subject.step, &self.call_guard.facts.run) else {
            return;
        };
        let id = self.escalation_id();
        let at = Looped {
            step,
            routes: self.places,
            id: &id,
        };
        let escalated = run.state_now(|run| run.trip(facts.loops.on_open, at));
        self.record_escalations(escalated);
    }

    /// The request ended so: whether that tells anything of an escalation.
    pub(super) fn note_end(&self, outcome: Outcome) {
        let (Some(run), Some(step)) = (&self.run, self.subject.step) else {
            return;
        };
        if self.attempts() > 1 {
            let helped = outcome == Outcome::Completed;
            let escalation = Escalation {
                id: self.escalation_id(),
                reason: Reason::ProviderFailure,
                action: Action::AlternativeStrategy,
                step,
            };
            let effect = if helped {
                Effect::Helped
            } else {
                Effect::Failed
            };
            self.record_escalations([(escalation, effect)]);
        }
        if outcome == Outcome::Completed
            && let Some(escalated) = run.state_now(|run| run.succeed(step))
        {
            self.record_escalations([escalated]);
            self.books.note_run(run);
        }
    }

    pub(super) fn record_escalations(&self, all: impl IntoIterator<Item = Escalated>) {
        for (escalation, outcome) in all {
            let note = EscalationNote {
                subject: self.subject.clone(),
                escalation: escalation.id,
                reason: escalation.reason,
                action: escalation.action,
                outcome,
            };
            let event = Event::Escalation(Box::new(note));
            self.record(event);
        }
    }

    fn escalation_id(&self) -> String {
        format!("esc_{}", self.request_id.trim_start_matches("req_"))
    }
}
