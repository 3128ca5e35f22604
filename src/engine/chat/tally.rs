//! What an answer amounted to, for settling and the record.

use serde_json::Value;

use super::chunk::Chunk;
use crate::engine::pricing::UsageReading;

#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub usage: Option<UsageReading>,
    pub model: Option<String>,
    pub service_tier: Option<String>,
    /// Bytes of text and calls received, for an estimate.
    pub written: u64,
    pub tool_calls: u64,
    pub finished: bool,
    /// An error that the provider sent, or that we found.
    pub error: Option<Value>,
}

impl Tally {
    /// Takes in a chunk of a stream, or a whole body.
    pub fn add(&mut self, chunk: &Chunk<'_>) {
        if let Some(usage) = chunk.usage() {
            // The last report counts; cumulative ones must not be added up.
            let value = serde_json::from_str(usage.get()).unwrap_or(Value::Null);
            self.usage = UsageReading::of(&value).or(self.usage);
        }
        if self.model.is_none() {
            self.model = chunk
                .model
                .as_deref()
                .filter(|model| !model.is_empty())
                .map(Into::into);
        }
        if let Some(tier) = chunk
            .service_tier
            .as_deref()
            .filter(|tier| !tier.is_empty())
        {
            self.service_tier = Some(tier.to_owned());
        }
        for choice in chunk.choices() {
            self.finished |= choice.finish().is_some();
            // A message beside a delta repeats the text so far.
            let part = choice.delta.as_ref().or(choice.message.as_ref());
            self.written += part.map_or(0, |part| part.written());
        }
    }
}
