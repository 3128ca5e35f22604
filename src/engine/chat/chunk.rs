//! One piece of an answer, a stream's chunk or a whole body, as far as it has to be understood.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// What is read of a chunk or body. Members that are not named here stay as they came; one
/// that is named and stands there twice makes the whole unreadable.
#[derive(Debug, Deserialize)]
pub struct Chunk<'a> {
    #[serde(borrow, default)]
    pub model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub service_tier: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow, default)]
    pub x_groq: Option<Groq<'a>>,
}

#[derive(Debug, Deserialize)]
pub struct Groq<'a> {
    #[serde(borrow, default)]
    pub usage: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub struct Choice<'a> {
    #[serde(borrow, default)]
    pub delta: Option<Delta<'a>>,
    /// Where a whole body has its text.
    #[serde(borrow, default)]
    pub message: Option<Delta<'a>>,
    #[serde(borrow, default)]
    pub finish_reason: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
pub struct Delta<'a> {
    #[serde(borrow, default)]
    pub content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub refusal: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub reasoning: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub reasoning_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub tool_calls: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    pub function_call: Option<&'a RawValue>,
}

/// A member that is there, also when it is null.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl<'a> Chunk<'a> {
    /// # Errors
    /// Not JSON, not UTF-8, or a member that matters of the wrong type or twice.
    pub fn read(data: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(data)
    }

    /// An error that SDKs would raise: neither null nor empty.
    pub fn error(&self) -> Option<&'a RawValue> {
        self.error
            .filter(|error| !matches!(error.get(), "null" | "{}" | "false" | "\"\""))
    }

    /// The usage object, if it says something.
    pub fn usage(&self) -> Option<&'a RawValue> {
        let groq = self.x_groq.as_ref().and_then(|groq| groq.usage);
        self.usage.filter(|usage| usage.get() != "null").or(groq)
    }

    pub fn choices(&self) -> &[Choice<'a>] {
        self.choices.as_deref().unwrap_or_default()
    }
}

impl Delta<'_> {
    /// Bytes of all that a model wrote here, as JSON: what an estimate counts.
    pub fn written(&self) -> u64 {
        let texts = [
            self.content,
            self.refusal,
            self.reasoning_content,
            self.function_call,
        ];
        let texts = texts
            .into_iter()
            .flatten()
            .filter(|raw| raw.get() != "null");
        let text: usize = texts.map(|raw| raw.get().len().saturating_sub(2)).sum();
        let calls: usize = self
            .tool_calls
            .iter()
            .flatten()
            .map(|raw| raw.get().len())
            .sum();
        (text + calls) as u64
    }
}
