//! What a request may use at most, in every unit that a limit counts.

use std::sync::Arc;

use crate::engine::{budget::Unit, pricing::Rates};

/// What a request may use at most, as a function of its output cap.
#[derive(Debug, Clone)]
pub struct Need {
    pub input_tokens: u64,
    /// Per answer. `None`: no limit needs one, and none is set.
    pub output_cap: Option<u64>,
    pub min_output: u64,
    pub choices: u64,
    /// Sound can come in or go out.
    pub audio: bool,
    /// Of each place that may answer: the dearest counts. Empty: nobody counts money.
    pub rates: Vec<Arc<Rates>>,
    /// So many attempts may have to be paid.
    pub attempts: u64,
}

impl Need {
    /// In `unit`, with answers of up to `cap` tokens.
    pub(super) fn amount(&self, unit: Unit, cap: u64) -> u64 {
        let output = cap.saturating_mul(self.choices);
        match unit {
            Unit::Requests => 1,
            Unit::Tokens => {
                let once = self.input_tokens.saturating_add(output);
                once.saturating_mul(self.attempts)
            }
            Unit::Cost => {
                let worst =
                    |rates: &Arc<Rates>| rates.worst(self.input_tokens, output, self.audio).nanos();
                let dearest = self.rates.iter().map(worst).max().unwrap_or(0);
                dearest.saturating_mul(self.attempts)
            }
        }
    }

    pub(super) fn floor(&self) -> u64 {
        self.min_output.min(self.output_cap.unwrap_or(0))
    }
}
