//! What is read at all: JSON that every client reads the same way. Anything else is refused as a
//! whole, since a client may still make a call of what we cannot parse.

use std::borrow::Cow;

use memchr::memmem;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::engine::call::{MAX_DEPTH, depth};

/// Not JSON that we can judge: broken, not UTF-8, too deep, a member twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

/// Reads a whole text into `T`, strictly.
///
/// # Errors
/// Not UTF-8, nested deeper than `MAX_DEPTH`, half a surrogate pair, or no `T`.
pub fn read<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T, Unreadable> {
    let text = std::str::from_utf8(data).map_err(|_| Unreadable)?;
    // No text with fewer brackets can be deeper.
    let brackets = memchr::memchr2_iter(b'{', b'[', data).take(MAX_DEPTH + 1);
    if brackets.count() > MAX_DEPTH && depth(data) > MAX_DEPTH {
        return Err(Unreadable);
    }
    if escapes_surrogates(data) {
        // Decodes every string, also those that nobody else here looks into.
        serde_json::from_str::<Strings>(text).map_err(|_| Unreadable)?;
    }
    serde_json::from_str(text).map_err(|_| Unreadable)
}

fn escapes_surrogates(data: &[u8]) -> bool {
    memmem::find_iter(data, b"\\u")
        .any(|at| matches!(data.get(at + 2..at + 4), Some([b'd' | b'D', b'8'..=b'f'])))
}

/// Any value whose strings are all whole.
struct Strings;

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Strings {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

/// A member's name, decoded; borrowed where it holds no escape.
#[derive(Debug, Deserialize)]
pub struct Name<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// A JSON object taken apart one level deep. Values keep their text, numbers too.
#[derive(Debug, Clone, Default)]
pub struct Members<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Members<'a> {
    /// # Errors
    /// Not an object.
    pub fn read(text: &'a str) -> Result<Self, Unreadable> {
        serde_json::from_str(text).map_err(|_| Unreadable)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    pub fn take(&mut self, name: &str) -> Option<Cow<'a, str>> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    /// In the place of the one that is there, else at the end. `value` is JSON.
    pub fn set(&mut self, name: &'static str, value: impl Into<Cow<'a, str>>) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, place)) => *place = value.into(),
            None => self.0.push((name.into(), value.into())),
        }
    }

    /// At the end, whatever else is there.
    pub fn push(&mut self, name: &str, value: &str) {
        self.0
            .push((name.to_owned().into(), value.to_owned().into()));
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&str, &str) -> bool) {
        self.0.retain(|(name, value)| keep(name, value));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    pub fn into_owned(self) -> Members<'static> {
        let owned = |(name, value): (Cow<'_, str>, Cow<'_, str>)| {
            (name.into_owned().into(), value.into_owned().into())
        };
        Members(self.0.into_iter().map(owned).collect())
    }

    pub fn to_json(&self) -> String {
        let mut json = String::with_capacity(self.size());
        json.push('{');
        for (at, (name, value)) in self.iter().enumerate() {
            json.push_str(if at == 0 { "" } else { "," });
            json.push_str(&quoted(name));
            json.push(':');
            json.push_str(value);
        }
        json.push('}');
        json
    }

    fn size(&self) -> usize {
        let members = self
            .iter()
            .map(|(name, value)| name.len() + value.len() + 4);
        members.sum::<usize>() + 2
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Taking;
        impl<'de> Visitor<'de> for Taking {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    let value: &RawValue = map.next_value()?;
                    members.push((name, Cow::Borrowed(value.get())));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Taking)
    }
}

/// A JSON list of values that stand as text already.
pub fn list<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let mut json = String::from("[");
    for (at, value) in values.into_iter().enumerate() {
        json.push_str(if at == 0 { "" } else { "," });
        json.push_str(value);
    }
    json.push(']');
    json
}

/// `text` as a JSON string.
pub fn quoted(text: impl Serialize) -> String {
    serde_json::to_string(&text).unwrap_or_else(|_| "\"\"".to_owned())
}

/// Null, or what readers take for nothing: no call can be in it.
pub fn is_nothing(raw: &str) -> bool {
    match raw {
        "null" | "[]" | "{}" | "\"\"" | "false" | "0" => true,
        _ => serde_json::from_str::<Hollow>(raw).is_ok(),
    }
}

/// An empty list or object, however it is spaced.
struct Hollow;

impl<'de> Deserialize<'de> for Hollow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Empty;
        impl<'de> Visitor<'de> for Empty {
            type Value = Hollow;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an empty list or object")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Hollow, A::Error> {
                match seq.next_element::<IgnoredAny>()? {
                    None => Ok(Hollow),
                    Some(_) => Err(serde::de::Error::custom("not empty")),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Hollow, A::Error> {
                match map.next_key::<IgnoredAny>()? {
                    None => Ok(Hollow),
                    Some(_) => Err(serde::de::Error::custom("not empty")),
                }
            }
        }
        deserializer.deserialize_any(Empty)
    }
}
