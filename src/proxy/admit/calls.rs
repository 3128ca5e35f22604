//! What a permit knows of the calls in its answer: how they are judged, what became of each, and
//! whose the ids are that the provider keeps.

use std::{pin::Pin, sync::Arc};

use super::permit::Permit;
use crate::{
    books::Refusal,
    engine::{
        chat::{CallRules, Judged, Tally},
        record::{Event, JudgedCall},
        responses::OwnIds,
    },
    store::{Owned, Owner},
};

/// Done once what was counted is on disk.
pub type Remembered = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

impl Permit {
    /// How the calls of this request's answer are judged and told.
    pub fn call_rules(&self) -> CallRules {
        CallRules {
            policy: Arc::clone(&self.call_guard.policy),
            judge: Arc::new(self.call_guard.clone()),
            delivery: self.delivery,
            decision: self.decision(),
            // Where nobody could wait, nobody is asked.
            rulings: self.pausing.is_none().then(|| Arc::from([])),
        }
    }

    /// Notes whose an answer is that the provider keeps, before the client has its end.
    pub fn own(&self, own: OwnIds, tally: &Tally) {
        let usage = tally.usage.map(|read| read.usage);
        let owned = |id, tokens| Owned {
            id,
            owner: Owner {
                key: Arc::clone(&self.key),
                provider: Arc::clone(&self.target.provider.name),
                tokens,
                unanswered: None,
            },
        };
        let output = usage.map(|usage| usage.output);
        let mut all: Vec<Owned> = own.items.into_iter().map(|id| owned(id, output)).collect();
        all.extend(own.notices.into_iter().map(|id| {
            let mut ours = owned(id, Some(0));
            ours.owner.provider = "".into();
            ours
        }));
        all.extend(own.response.map(|id| {
            let total = usage.map(|usage| usage.input.saturating_add(usage.output));
            let mut response = owned(id, total);
            if !own.unanswered.is_empty() {
                response.owner.unanswered = serde_json::to_string(&own.unanswered).ok();
            }
            response
        }));
        self.books.own(all);
    }

    /// Writes down what became of a call: its names, codes and digest, never its arguments.
    pub fn record_call(&mut self, judged: &Judged) {
        if judged.delivered {
            self.unwritten |= self.call_guard.must_be_remembered(&judged.judgement);
        } else {
            self.call_guard.give_back(&judged.judgement);
        }
        self.note_in_run(judged);
        let mut call = JudgedCall::of(&self.subject, &judged.judgement);
        call.delivered = judged.delivered;
        let event = Event::CallJudged(Box::new(call));
        self.record(event);
    }

    /// Set if calls were judged that a crash must not forget: done once they are on disk. What
    /// follows them waits for that.
    pub fn remembered(&mut self) -> Option<Remembered> {
        if !std::mem::take(&mut self.unwritten) {
            return None;
        }
        let books = self.books.clone();
        Some(Box::pin(async move { books.flushed().await }))
    }

    /// What the run has to remember of a call.
    fn note_in_run(&self, judged: &Judged) {
        let Some(run) = &self.run else { return };
        let code = judged.judgement.blocked.as_ref().map(|block| block.code);
        match code {
            Some("loop_detected") => self.trip(run),
            Some(code @ "run_tool_calls_exceeded") => {
                run.state_now(|run| run.ended = Some(code.to_owned()));
            }
            _ => {}
        }
        self.books.note_run(run);
    }
}
