//! Reads what a provider says it used, in all the forms they have; nonsense is no usage.

use serde_json::Value;

use super::Usage;

/// A usage object, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageReading {
    pub usage: Usage,
    /// The members contradict each other; the dearer reading was taken.
    pub suspect: bool,
}

impl UsageReading {
    /// `None` when the object says nothing that can be billed.
    pub fn of(value: &Value) -> Option<Self> {
        let count = |names: &[&str]| names.iter().find_map(|name| integer(value.get(name)?));
        let detail = |group: &[&str], name: &str| {
            group
                .iter()
                .find_map(|group| integer(value.get(group)?.get(name)?))
                .unwrap_or(0)
        };
        let input_details = &["prompt_tokens_details", "input_tokens_details"];
        let output_details = &["completion_tokens_details", "output_tokens_details"];
        let input = count(&["prompt_tokens", "input_tokens"])?;
        let said = count(&["completion_tokens", "output_tokens"]);
        // Some providers leave thinking out of the output and show it in the total alone.
        let hidden = count(&["total_tokens"]).and_then(|total| total.checked_sub(input));
        let output = said.into_iter().chain(hidden).max()?;
        let cached = detail(input_details, "cached_tokens")
            .max(count(&["prompt_cache_hit_tokens"]).unwrap_or(0));
        let reasoning = detail(output_details, "reasoning_tokens");
        let usage = Usage {
            input,
            cached_input: cached.min(input),
            cache_write: detail(input_details, "cache_write_tokens"),
            input_audio: detail(input_details, "audio_tokens"),
            output,
            output_audio: detail(output_details, "audio_tokens"),
            reasoning: reasoning.min(output),
        };
        let suspect = cached > input || reasoning > output;
        Some(Self { usage, suspect })
    }
}

/// A count that is written as an integral number, negative ones and texts being none.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be integral and in range"
)]
fn integer(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let float = value.as_f64()?;
        (float.fract() == 0.0 && (0.0..9e15).contains(&float)).then_some(float as u64)
    })
}
