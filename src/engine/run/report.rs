//! What a caller says afterwards of a run, and what it is told in return.

use serde::{Deserialize, Serialize};

use super::{Action, Effect, Escalated, Escalation, Reason, Run};

/// How a run went, by the word of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    Success,
    Failure,
    Abandoned,
}

/// The body of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    pub outcome: RunOutcome,
    /// Why it failed, where that asks for an escalation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReportReason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportReason {
    /// Whoever checked the result turned it down.
    VerifierFailure,
}

impl Report {
    /// # Errors
    /// One sentence for the caller.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let report: Self = serde_json::from_slice(body).map_err(|_| FORM.to_owned())?;
        match (report.outcome, report.reason) {
            (RunOutcome::Failure, _) | (_, None) => Ok(report),
            _ => Err("A \"reason\" is for the outcome \"failure\".".to_owned()),
        }
    }
}

const FORM: &str = "The body must be {\"outcome\": \"success\" | \"failure\" | \"abandoned\"}, with \
                    \"reason\": \"verifier_failure\" if a verifier turned the result down.";

impl Run {
    /// Ends what an earlier report began. A result that a verifier turned down asks the client
    /// for more context; `id` is the escalation's.
    pub fn report(&mut self, report: Report, id: &str) -> Vec<Escalated> {
        let effect = match report.outcome {
            RunOutcome::Success => Effect::Helped,
            RunOutcome::Failure | RunOutcome::Abandoned => Effect::Failed,
        };
        let ended = self.turned_down.take().map(|known| (known, effect));
        let mut told: Vec<_> = ended.into_iter().collect();
        if report.reason == Some(ReportReason::VerifierFailure) {
            let escalation = Escalation {
                id: id.to_owned(),
                reason: Reason::VerifierFailure,
                action: Action::ExpandContext,
                step: self.steps,
            };
            self.turned_down = Some(escalation.clone());
            told.push((escalation, Effect::Pending));
        }
        told
    }
}
