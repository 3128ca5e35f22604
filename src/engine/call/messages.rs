//! What the messages of a request amount to: text, and the parts a tokenizer does not see.

use std::fmt;

use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{misspelt, offers::CARRIERS};

/// Sums over all messages, and their texts for pattern rules and exact counts.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Content {
    pub messages: u64,
    /// Unicode characters in all texts.
    pub chars: u64,
    /// Bytes of everything that is text or JSON for the model, names and calls included.
    pub bytes: u64,
    pub images: u64,
    /// Bytes of audio and files, as base64.
    pub media_bytes: u64,
    /// The texts, in order.
    pub texts: Vec<String>,
    /// A message holds tools of its own.
    pub(super) carries_tools: bool,
    /// Why the messages cannot be read, if so.
    pub(super) fault: Option<String>,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Messages;
        impl<'de> Visitor<'de> for Messages {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of messages")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content, A::Error> {
                let mut content = Content::default();
                while let Some(message) = seq.next_element::<Message<'de>>()? {
                    content.messages += 1;
                    content.add(&message);
                }
                Ok(content)
            }

            fn visit_unit<E>(self) -> Result<Content, E> {
                Ok(Content::default())
            }
        }
        deserializer.deserialize_any(Messages)
    }
}

/// One message: its content raw, everything else by its length alone.
struct Message<'a> {
    content: Option<&'a RawValue>,
    other_bytes: usize,
    twice: bool,
    misspelt: Option<&'static str>,
    carries_tools: bool,
}

impl<'de> Deserialize<'de> for Message<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Message<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a message object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut message = Message {
                    content: None,
                    other_bytes: 0,
                    twice: false,
                    misspelt: None,
                    carries_tools: false,
                };
                while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                    let raw: &RawValue = map.next_value()?;
                    if name == "content" {
                        message.twice |= message.content.is_some();
                        message.content = Some(raw);
                    } else {
                        let taken_for = misspelt(&name, &["content"]);
                        let taken_for = taken_for.or_else(|| misspelt(&name, CARRIERS));
                        message.misspelt = message.misspelt.or(taken_for);
                        message.carries_tools |= CARRIERS.contains(&&*name);
                        message.other_bytes += name.len() + raw.get().len();
                    }
                }
                Ok(message)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// A content part, by the members that say what it costs.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    refusal: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    image_url: Option<IgnoredAny>,
    #[serde(borrow, default)]
    input_audio: Option<&'a RawValue>,
    #[serde(borrow, default)]
    file: Option<&'a RawValue>,
}

impl Content {
    fn add(&mut self, message: &Message<'_>) {
        self.bytes += message.other_bytes as u64;
        self.carries_tools |= message.carries_tools;
        if message.twice {
            self.fault = Some("A message holds the member \"content\" twice.".to_owned());
        }
        if let Some(name) = message.misspelt {
            self.fault = Some(format!(
                "A message holds a member that some readers take for {name:?}, although it is \
                 spelled otherwise."
            ));
        }
        let Some(raw) = message.content else { return };
        let text = raw.get();
        if text == "null" {
            return;
        }
        if text.starts_with('"') {
            match serde_json::from_str::<String>(text) {
                Ok(text) => self.add_text(text),
                Err(_) => self.fault = Some("A message's content is not valid text.".to_owned()),
            }
            return;
        }
        match serde_json::from_str::<Vec<Part<'_>>>(text) {
            Ok(parts) => parts.into_iter().for_each(|part| self.add_part(part)),
            // Forms we do not know are counted as the bytes they are.
            Err(_) => self.bytes += text.len() as u64,
        }
    }

    fn add_part(&mut self, part: Part<'_>) {
        for text in [part.text, part.refusal].into_iter().flatten() {
            self.add_text(text.into_owned());
        }
        self.images += u64::from(part.image_url.is_some());
        for media in [part.input_audio, part.file].into_iter().flatten() {
            self.media_bytes += media.get().len() as u64;
        }
    }

    fn add_text(&mut self, text: String) {
        self.bytes += text.len() as u64;
        self.chars += text.chars().count() as u64;
        self.texts.push(text);
    }
}
