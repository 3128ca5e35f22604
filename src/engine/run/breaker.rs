//! A run's breaker: what a loop does to the run, and what lets it go on. Closed, half-open (the
//! requests after the loop are a trial), or open (every request is refused).

use serde::{Deserialize, Serialize};

use super::{OnOpen, Run};

/// The run was helped on, and whether that helped is not known yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalation {
    pub id: String,
    pub reason: Reason,
    pub action: Action,
    /// The request at which it was decided.
    pub step: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    ProviderFailure,
    LoopDetected,
    VerifierFailure,
}

/// What is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The next requests go to the next route.
    UpgradeModel,
    /// The same model is told to try something else; or another provider was asked.
    AlternativeStrategy,
    /// The client is told to give the model more to go by.
    ExpandContext,
    /// A person has to look.
    HumanReview,
}

/// What became of an escalation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    Pending,
    /// A later request of the run did without what had been the reason.
    Helped,
    Failed,
    /// A user said something new.
    NewInput,
}

/// An escalation as it stands now, for its record.
pub type Escalated = (Escalation, Effect);

/// Where a loop was found.
#[derive(Debug, Clone, Copy)]
pub struct Looped<'a> {
    /// The request, counted from 1 in its run.
    pub step: u64,
    /// Its routes in all.
    pub routes: u32,
    /// The id for an escalation.
    pub id: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    HalfOpen,
    Open,
}

impl BreakerState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

impl Run {
    pub fn breaker(&self) -> BreakerState {
        match (self.open, self.half_open) {
            (true, _) => BreakerState::Open,
            (false, Some(_)) => BreakerState::HalfOpen,
            (false, None) => BreakerState::Closed,
        }
    }

    /// Routes that requests pass over until a user says something new.
    pub fn passed_over(&self) -> u32 {
        self.passed_over
    }

    /// A loop was found. Gives the escalations that it ends and begins. Several in one answer, and
    /// those of requests that were under way at an earlier one, count once.
    pub fn trip(&mut self, on_open: OnOpen, at: Looped<'_>) -> Vec<Escalated> {
        if self.half_open.is_some_and(|since| at.step <= since) {
            return Vec::new();
        }
        let mut told: Vec<_> = self.resolve(Effect::Failed).into_iter().collect();
        let action = match on_open {
            OnOpen::Stop => None,
            OnOpen::Retry => Some(Action::AlternativeStrategy),
            OnOpen::Escalate => Some(Action::HumanReview),
            OnOpen::Fallback => {
                let left = self.passed_over.saturating_add(1) < at.routes;
                self.passed_over += u32::from(left);
                left.then_some(Action::UpgradeModel)
            }
        };
        self.half_open = Some(self.steps.max(at.step));
        self.open = matches!(action, None | Some(Action::HumanReview));
        if let Some(action) = action {
            let escalation = Escalation {
                id: at.id.to_owned(),
                reason: Reason::LoopDetected,
                action,
                step: at.step,
            };
            self.escalation = Some(escalation.clone());
            told.push((escalation, Effect::Pending));
        }
        told
    }

    /// A user said something new: the breaker is half-open if it was not closed, and the first
    /// route is the first again.
    pub(super) fn forgive(&mut self) -> Option<Escalated> {
        if std::mem::take(&mut self.open) {
            self.half_open = Some(self.steps);
        }
        self.passed_over = 0;
        self.resolve(Effect::NewInput)
    }

    /// A whole answer without a loop was given to this request: a trial that succeeds closes the
    /// breaker.
    pub fn succeed(&mut self, step: u64) -> Option<Escalated> {
        if self.open || self.half_open.is_none_or(|since| step <= since) {
            return None;
        }
        self.half_open = None;
        self.resolve(Effect::Helped)
    }

    fn resolve(&mut self, effect: Effect) -> Option<Escalated> {
        self.escalation.take().map(|known| (known, effect))
    }
}
