//! What is known of a request's spans while it runs.

use std::{sync::Arc, time::Duration};

use super::span::{Attribute, Note, word};
use crate::{
    config::Provider,
    engine::{
        call::Api,
        record::{Closing, Event, JudgedCall, Opening, Outcome, Subject},
    },
};

/// What happened beyond this is only counted. A span of megabytes would help nobody.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Notes {
    pub route: Option<&'static str>,
    /// What the client got; 0 if it had left by then.
    pub status: u16,
    pub subject: Subject,
    pub stream: bool,
    pub output_cap: Option<u64>,
    /// The request whose parked answer this one was given.
    pub resumes: Option<Arc<str>>,
    /// Why it was refused.
    pub code: Option<&'static str>,
    pub rule: Option<String>,
    pub outcome: Option<Outcome>,
    pub cost_nano_usd: u64,
    pub first_piece: Option<Duration>,
    pub attempts: Vec<Attempt>,
    pub happened: Vec<Note>,
    pub left_out: u32,
}

/// One attempt at a provider. Times are since the request began.
#[derive(Debug)]
pub(super) struct Attempt {
    pub provider: Arc<Provider>,
    /// `None`: something was fetched that it keeps.
    pub asked: Option<(Api, Arc<str>)>,
    pub sent: Duration,
    /// `None`: with the request.
    pub ended: Option<Duration>,
    /// What the provider answered; 0 if it did not.
    pub status: u16,
    pub failure: Option<&'static str>,
    pub used: Option<Used>,
}

/// What an attempt amounted to.
#[derive(Debug)]
pub(super) struct Used {
    pub answered_model: Option<String>,
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    pub reasoning_tokens: u64,
    pub cost_nano_usd: u64,
    pub estimated: bool,
}

impl Notes {
    /// Takes in what goes to the ledger. `at`: since the request began.
    pub fn observe(&mut self, at: Duration, event: &Event) {
        match event {
            Event::RequestStarted(opening) => self.started(at, opening),
            Event::AttemptFailed(failed) => {
                let used = Used::charged(failed.charged_tokens, failed.charged_nano_usd);
                if let Some(attempt) = self.attempts.last_mut() {
                    attempt.ended = Some(at);
                    attempt.status = failed.status.unwrap_or_default();
                    attempt.failure = Some(failed.failure);
                    attempt.used = Some(used);
                }
            }
            Event::RequestSettled(closing) => self.settled(at, closing),
            Event::RequestRefused(refused) => {
                self.subject = refused.subject.clone();
                self.rule.clone_from(&refused.rule);
                self.code = Some(refused.code);
            }
            Event::CallJudged(call) => self.judged(at, call),
            Event::Escalation(note) => self.happened(
                at,
                "tallygate.escalation",
                vec![
                    ("tallygate.escalation.reason", word(note.reason).into()),
                    ("tallygate.escalation.action", word(note.action).into()),
                    ("tallygate.escalation.outcome", word(note.outcome).into()),
                ],
            ),
            Event::RunReported(report) => self.subject = report.subject.clone(),
            _ => {}
        }
    }

    fn started(&mut self, at: Duration, opening: &Opening) {
        self.subject = opening.subject.clone();
        self.stream = opening.stream;
        self.output_cap = opening.output_cap;
        self.resumes.clone_from(&opening.resumes);
        for warning in &opening.warnings {
            let code = vec![("tallygate.code", (*warning).into())];
            self.happened(at, "tallygate.warning", code);
        }
        for (name, tools) in [
            ("tallygate.tools.stripped", &opening.tools.stripped),
            ("tallygate.tools.observed", &opening.tools.observed),
        ] {
            if !tools.is_empty() {
                self.happened(at, name, vec![("tallygate.tools", tools.clone().into())]);
            }
        }
    }

    fn settled(&mut self, at: Duration, closing: &Closing) {
        self.outcome = Some(closing.outcome);
        self.cost_nano_usd = closing.cost_nano_usd;
        // What attempts in vain were charged stands in the same sum.
        let lost = |of: fn(&Used) -> u64| -> u64 {
            let used = self.attempts.iter().filter_map(|one| one.used.as_ref());
            used.map(of).sum()
        };
        let (tokens, cost) = (
            lost(|used| used.input_tokens),
            lost(|used| used.cost_nano_usd),
        );
        let last = self.attempts.last_mut();
        if let Some(attempt) = last.filter(|attempt| attempt.ended.is_none()) {
            attempt.ended = Some(at);
            attempt.used = Some(Used {
                answered_model: closing.answered_model.clone(),
                input_tokens: closing.input_tokens.saturating_sub(tokens),
                cached_tokens: closing.cached_tokens,
                output_tokens: closing.output_tokens,
                reasoning_tokens: closing.reasoning_tokens,
                cost_nano_usd: closing.cost_nano_usd.saturating_sub(cost),
                estimated: closing.estimated,
            });
        }
    }

    fn judged(&mut self, at: Duration, call: &JudgedCall) {
        let verdict = &call.verdict;
        let results = verdict.results.iter();
        let guards: Vec<String> = results
            .map(|result| format!("{}: {}", result.code, word(result.outcome)))
            .collect();
        let mut attributes = vec![
            ("gen_ai.tool.name", verdict.tool.clone().into()),
            ("tallygate.call.delivered", call.delivered.into()),
            ("tallygate.call.guards", guards.into()),
        ];
        attributes.extend(verdict.blocked.map(|code| ("tallygate.code", code.into())));
        let approval = verdict.approval.clone();
        attributes.extend(approval.map(|id| ("tallygate.approval.id", id.into())));
        self.happened(at, "tallygate.tool_call", attributes);
    }

    pub fn happened(&mut self, at: Duration, name: &'static str, attributes: Vec<Attribute>) {
        if self.happened.len() < MOST {
            self.happened.push(Note {
                at,
                name,
                attributes,
            });
        } else {
            self.left_out += 1;
        }
    }
}

impl Used {
    fn charged(tokens: u64, cost_nano_usd: u64) -> Self {
        Self {
            answered_model: None,
            input_tokens: tokens,
            cached_tokens: 0,
            output_tokens: 0,
            reasoning_tokens: 0,
            cost_nano_usd,
            estimated: tokens > 0,
        }
    }
}
