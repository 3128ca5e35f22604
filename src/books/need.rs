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
    pub rates: Option<Arc<Rates>>,
}

impl Need {
    /// In `unit`, with answers of up to `cap` tokens.
    pub(super) fn amount(&self, unit: Unit, cap: u64) -> u64 {
        let output = cap.saturating_mul(self.choices);
        match unit {
            Unit::Requests => 1,
            Unit::Tokens => self.input_tokens.saturating_add(output),
            Unit::Cost => self.rates.as_ref().map_or(0, |rates| {
                rates.worst(self.input_tokens, output, self.audio).nanos()
            }),
        }
    }

    pub(super) fn floor(&self) -> u64 {
        self.min_output.min(self.output_cap.unwrap_or(0))
    }
}
