//! One piece of an answer, a stream's chunk or a whole body, read in one pass without a tree.
//!
//! Every member is either known here, and then read as what it is, or looked through for calls.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    strict::{self, Name, Unreadable, is_nothing},
    suspect::{self, Marks},
};

/// What is read of a chunk or body. Members that are not named here stay as they came; one
/// that is named and stands there twice makes the whole unreadable.
#[derive(Debug, Default)]
pub struct Chunk<'a> {
    pub model: Option<Cow<'a, str>>,
    pub service_tier: Option<Cow<'a, str>>,
    pub usage: Option<&'a RawValue>,
    pub error: Option<&'a RawValue>,
    pub choices: Option<Vec<Choice<'a>>>,
    choices_seen: Option<()>,
    groq_usage: Option<&'a RawValue>,
    /// Filling that hides how long the text is.
    pub obfuscation: Option<&'a RawValue>,
    /// Of members that are not named here.
    pub marks: Marks,
}

#[derive(Debug, Default)]
pub struct Choice<'a> {
    pub index: Option<&'a RawValue>,
    pub delta: Option<Delta<'a>>,
    /// Where a whole body has its text.
    pub message: Option<Delta<'a>>,
    pub finish_reason: Option<Cow<'a, str>>,
    /// It tells single tokens, which may be those of a call.
    pub tells_tokens: bool,
    pub marks: Marks,
}

#[derive(Debug, Default)]
pub struct Delta<'a> {
    pub role: Option<&'a RawValue>,
    pub content: Option<&'a RawValue>,
    pub refusal: Option<&'a RawValue>,
    pub reasoning: Option<&'a RawValue>,
    pub reasoning_content: Option<&'a RawValue>,
    pub tool_calls: Option<&'a RawValue>,
    pub function_call: Option<&'a RawValue>,
    /// Something else is said: sound, a signature, an annotation.
    pub says_more: bool,
    pub marks: Marks,
}

/// Members that tell single tokens of what was written.
pub const TOKEN_MEMBERS: [&str; 2] = ["logprobs", "token_ids"];

impl<'a> Chunk<'a> {
    /// # Errors
    /// Not strictly JSON, or a member that matters of the wrong type or twice.
    pub fn read(data: &'a [u8]) -> Result<Self, Unreadable> {
        strict::read(data)
    }

    /// An error that SDKs would raise: neither null nor empty.
    pub fn error(&self) -> Option<&'a RawValue> {
        self.error.filter(|error| !is_nothing(error.get()))
    }

    /// The usage object, if it says something.
    pub fn usage(&self) -> Option<&'a RawValue> {
        self.usage
            .filter(|usage| usage.get() != "null")
            .or(self.groq_usage)
    }

    /// `true` if it gives the client something to show, or to keep.
    pub fn says(&self) -> bool {
        self.choices().iter().any(Choice::says)
    }

    pub fn choices(&self) -> &[Choice<'a>] {
        self.choices.as_deref().unwrap_or_default()
    }
}

impl Choice<'_> {
    pub fn finish(&self) -> Option<&str> {
        self.finish_reason.as_deref().filter(|why| !why.is_empty())
    }

    pub fn says(&self) -> bool {
        let mut parts = self.delta.iter().chain(&self.message);
        parts.any(|part| part.has_text() || part.says_more)
    }

    /// A call, a piece of one, or something that must not leave as it came.
    pub fn needs_a_look(&self) -> bool {
        let parts = self.delta.iter().chain(&self.message);
        self.marks.any()
            || parts
                .into_iter()
                .any(|part| part.holds_call() || part.marks.any())
    }
}

impl Delta<'_> {
    pub fn holds_call(&self) -> bool {
        let some = self.tool_calls.is_some_and(|raw| !is_nothing(raw.get()));
        // An empty `function_call` makes one SDK forget the `tool_calls`.
        some || self.function_call.is_some_and(|raw| raw.get() != "null")
    }

    /// `true` if it is more than the empty members that some dialects always send.
    pub fn proposes(&self) -> bool {
        let some = |raw: Option<&RawValue>| raw.is_some_and(|raw| !is_nothing(raw.get()));
        some(self.tool_calls) || some(self.function_call)
    }

    /// Text that stands in the answer itself.
    pub fn has_content(&self) -> bool {
        self.content.is_some_and(|raw| !is_nothing(raw.get()))
    }

    pub fn has_text(&self) -> bool {
        let texts = [
            self.content,
            self.refusal,
            self.reasoning,
            self.reasoning_content,
        ];
        texts
            .into_iter()
            .flatten()
            .any(|raw| !is_nothing(raw.get()))
    }

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
        let calls = self.tool_calls.map_or(0, |raw| match raw.get() {
            "null" => 0,
            calls => calls.len().saturating_sub(2),
        });
        (text + calls) as u64
    }
}

/// A structure that is read member by member.
trait ByMember<'de>: Default {
    fn member<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

impl<'de> ByMember<'de> for Chunk<'de> {
    fn member<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "model" => text(&mut self.model, "model", map),
            "service_tier" => text(&mut self.service_tier, "service_tier", map),
            "usage" => raw(&mut self.usage, "usage", map),
            "error" => raw(&mut self.error, "error", map),
            "choices" => {
                once(self.choices_seen.as_ref(), "choices")?;
                self.choices_seen = Some(());
                self.choices = map.next_value()?;
                Ok(())
            }
            "obfuscation" => {
                self.obfuscation = Some(unknown(name, &mut self.marks, map)?);
                Ok(())
            }
            "x_groq" => {
                let value = unknown(name, &mut self.marks, map)?;
                let groq = serde_json::from_str::<Groq<'de>>(value.get()).unwrap_or_default();
                self.groq_usage = groq.usage;
                Ok(())
            }
            _ => unknown(name, &mut self.marks, map).map(|_| ()),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Groq<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

impl<'de> ByMember<'de> for Choice<'de> {
    fn member<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "index" => raw(&mut self.index, "index", map),
            "delta" => part(&mut self.delta, "delta", map),
            "message" => part(&mut self.message, "message", map),
            "finish_reason" => text(&mut self.finish_reason, "finish_reason", map),
            _ => {
                let value = unknown(name, &mut self.marks, map)?;
                self.tells_tokens |= TOKEN_MEMBERS.contains(&name) && value.get() != "null";
                Ok(())
            }
        }
    }
}

impl<'de> ByMember<'de> for Delta<'de> {
    fn member<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "role" => raw(&mut self.role, "role", map),
            "tool_calls" => raw(&mut self.tool_calls, "tool_calls", map),
            "function_call" => raw(&mut self.function_call, "function_call", map),
            "content" => said(&mut self.content, "content", &mut self.marks, map),
            "refusal" => said(&mut self.refusal, "refusal", &mut self.marks, map),
            "reasoning" => said(&mut self.reasoning, "reasoning", &mut self.marks, map),
            "reasoning_content" => said(
                &mut self.reasoning_content,
                "reasoning_content",
                &mut self.marks,
                map,
            ),
            _ => {
                let value = unknown(name, &mut self.marks, map)?;
                self.says_more |= !is_nothing(value.get());
                Ok(())
            }
        }
    }
}

/// A member that stays as it came if nothing in it looks like a call.
fn unknown<'de, A: MapAccess<'de>>(
    name: &str,
    marks: &mut Marks,
    map: &mut A,
) -> Result<&'de RawValue, A::Error> {
    let value: &RawValue = map.next_value()?;
    marks.add(suspect::look(name, value.get()));
    Ok(value)
}

fn raw<'de, A: MapAccess<'de>>(
    place: &mut Option<&'de RawValue>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    once(place.as_ref(), name)?;
    *place = Some(map.next_value()?);
    Ok(())
}

/// What a model says: a text, or a list of parts.
fn said<'de, A: MapAccess<'de>>(
    place: &mut Option<&'de RawValue>,
    name: &'static str,
    marks: &mut Marks,
    map: &mut A,
) -> Result<(), A::Error> {
    once(place.as_ref(), name)?;
    *place = Some(unknown(name, marks, map)?);
    Ok(())
}

fn text<'de, A: MapAccess<'de>>(
    place: &mut Option<Cow<'de, str>>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    once(place.as_ref(), name)?;
    // Null is a value too: a second one is refused all the same.
    let value = map.next_value::<Option<Name<'de>>>()?;
    *place = Some(value.map_or(Cow::Borrowed(""), |Name(text)| text));
    Ok(())
}

fn part<'de, A: MapAccess<'de>>(
    place: &mut Option<Delta<'de>>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    once(place.as_ref(), name)?;
    *place = Some(map.next_value::<Option<_>>()?.unwrap_or_default());
    Ok(())
}

fn once<T, E: Error>(place: Option<&T>, name: &'static str) -> Result<(), E> {
    match place {
        Some(_) => Err(E::duplicate_field(name)),
        None => Ok(()),
    }
}

macro_rules! reads_by_member {
    ($($name:ident),*) => {$(
        impl<'de> Deserialize<'de> for $name<'de> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map(Reading(PhantomData::<$name<'de>>))
            }
        }
    )*};
}
reads_by_member!(Chunk, Choice, Delta);

struct Reading<T>(PhantomData<T>);

impl<'de, T: ByMember<'de>> Visitor<'de> for Reading<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut value = T::default();
        while let Some(Name(name)) = map.next_key()? {
            value.member(&name, &mut map)?;
        }
        Ok(value)
    }
}
