//! What usage costs: integer rates, resolved once from the price table.

use super::money::Money;

/// Tokens of one answer, as the provider bills them. `cached_input`, `cache_write` and
/// `input_audio` are parts of `input`; `output_audio` and `reasoning` are parts of `output`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub input: u64,
    pub cached_input: u64,
    pub cache_write: u64,
    pub input_audio: u64,
    pub output: u64,
    pub output_audio: u64,
    pub reasoning: u64,
}

/// The prices of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rates {}

impl Rates {
    /// The exact cost of `usage`, rounded up once to a nano-dollar. `service_tier` is the one
    /// the answer names.
    pub fn cost(&self, _usage: &Usage, _service_tier: Option<&str>) -> Money {
        Money::ZERO
    }

    /// An upper bound: `input` and `output` tokens at the dearest rate that can apply.
    pub fn worst(&self, _input: u64, _output: u64) -> Money {
        Money::ZERO
    }
}
