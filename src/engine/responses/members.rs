//! A JSON object taken apart strictly: every member once, its text as it came.

use std::{borrow::Cow, collections::BTreeSet, fmt};

use serde::{
    Deserialize,
    de::{Deserializer, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// The members of one object, in order. A member that stands there twice, at any depth, makes
/// the object unreadable: clients disagree on which of two counts.
#[derive(Debug, Clone, Default)]
pub struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    /// # Errors
    /// Not an object, nested too deep, not text, or a member twice.
    pub fn read(raw: &RawValue) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<Strict>(raw.get())?;
        serde_json::from_str(raw.get())
    }

    pub fn get(&self, name: &str) -> Option<&RawValue> {
        let member = self.0.iter().find(|(known, _)| known == name);
        member
            .map(|(_, raw)| &**raw)
            .filter(|raw| raw.get() != "null")
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// A member that is a string, decoded; `None` if it is absent, null or something else.
    pub fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// A string as its text, anything else as its JSON.
    pub fn text_or_json(&self, name: &str) -> Option<String> {
        let raw = self.get(name)?.get();
        Some(serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned()))
    }

    /// Puts a string in the place of a member, or at the end.
    pub fn set_text(&mut self, name: &str, text: &str) {
        let Ok(raw) = serde_json::value::to_raw_value(text) else {
            return;
        };
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, value)) => *value = raw,
            None => self.0.push((name.to_owned(), raw)),
        }
    }

    pub fn without(&self, names: &[&str]) -> Self {
        let kept = self
            .0
            .iter()
            .filter(|(name, _)| !names.contains(&name.as_str()));
        Self(kept.cloned().collect())
    }

    pub fn to_json(&self) -> String {
        let mut json = String::from("{");
        for (name, raw) in &self.0 {
            if json.len() > 1 {
                json.push(',');
            }
            json.push_str(&quoted(name));
            json.push(':');
            json.push_str(raw.get());
        }
        json.push('}');
        json
    }
}

/// A text as a JSON string.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Members::default();
                while let Some(member) = map.next_entry::<String, Box<RawValue>>()? {
                    members.0.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// Any JSON in which no object holds a member twice and every string is text.
struct Strict;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Strict)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            if !seen.insert(name.into_owned()) {
                return Err(A::Error::custom("a member stands there twice"));
            }
            map.next_value::<Self>()?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Option<Members> {
        Members::read(serde_json::from_str(json).ok()?).ok()
    }

    #[test]
    fn members_keep_their_order_and_the_text_of_numbers() {
        let json = r#"{"b":1.10,"a":[1e2,{"c":null}],"n":null}"#;
        assert_eq!(read(json).unwrap().to_json(), json);
        assert!(read(json).unwrap().get("n").is_none());
    }

    #[test]
    fn a_member_twice_at_any_depth_or_a_string_that_is_no_text_is_not_read() {
        for json in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"x":[{"a":1,"a":2}]}"#,
            r#"{"a":"\ud800"}"#,
            "[1]",
        ] {
            assert!(read(json).is_none(), "{json}");
        }
    }
}
