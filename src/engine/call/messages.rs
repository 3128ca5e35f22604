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
    /// Files that the provider has and we do not: nobody here knows their size.
    pub unseen: u64,
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
    /// What a tool gave, in an item of the Responses API.
    output: Option<&'a RawValue>,
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
                    output: None,
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
                    } else if name == "output" {
                        message.twice |= message.output.is_some();
                        message.output = Some(raw);
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
    #[serde(borrow, default, rename = "type")]
    kind: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    file_data: Option<&'a RawValue>,
    #[serde(default)]
    file_id: Option<IgnoredAny>,
    #[serde(default)]
    file_url: Option<IgnoredAny>,
}

impl Content {
    fn add(&mut self, message: &Message<'_>) {
        self.bytes += message.other_bytes as u64;
        self.carries_tools |= message.carries_tools;
        if message.twice {
            self.fault = Some("A message holds its content twice.".to_owned());
        }
        if let Some(name) = message.misspelt {
            self.fault = Some(format!(
                "A message holds a member that some readers take for {name:?}, although it is \
                 spelled otherwise."
            ));
        }
        for raw in [message.content, message.output].into_iter().flatten() {
            self.add_content(raw.get());
        }
    }

    fn add_content(&mut self, text: &str) {
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
        if let Ok(parts) = serde_json::from_str::<Vec<Part<'_>>>(text) {
            parts.into_iter().for_each(|part| self.add_part(part));
        } else if let Ok(part) = serde_json::from_str::<Part<'_>>(text) {
            // What a computer shows is one picture; what else it says are bytes.
            self.add_part(part);
            self.bytes += text.len() as u64;
        } else {
            // Forms we do not know are counted as the bytes they are.
            self.bytes += text.len() as u64;
        }
    }

    /// The same sums over `more`, too.
    pub(super) fn append(&mut self, more: Self) {
        self.messages += more.messages;
        self.chars += more.chars;
        self.bytes += more.bytes;
        self.images += more.images;
        self.media_bytes += more.media_bytes;
        self.unseen += more.unseen;
        self.texts.extend(more.texts);
        self.carries_tools |= more.carries_tools;
        self.fault = self.fault.take().or(more.fault);
    }

    fn add_part(&mut self, part: Part<'_>) {
        for text in [part.text, part.refusal].into_iter().flatten() {
            self.add_text(text.into_owned());
        }
        let shown = matches!(
            part.kind.as_deref(),
            Some("input_image" | "computer_screenshot")
        );
        let image = part.image_url.is_some() || shown;
        self.images += u64::from(image);
        let elsewhere = part.file_id.is_some() || part.file_url.is_some();
        self.unseen += u64::from(elsewhere && !image);
        let media = [part.input_audio, part.file, part.file_data];
        for media in media.into_iter().flatten() {
            self.media_bytes += media.get().len() as u64;
        }
    }

    pub(super) fn add_text(&mut self, text: String) {
        self.bytes += text.len() as u64;
        self.chars += text.chars().count() as u64;
        self.texts.push(text);
    }
}
