//! Members that this API does not have, looked through for calls: a client library, or code on
//! top of one, may know a place that we do not. Also for the text of calls that failed, which
//! some providers send along and some agents run.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::strict::Name;

/// What stands in a place where nothing of the kind belongs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// Something that may be read as a call.
    pub call: bool,
    /// Text that a model wrote for a call, kept by a provider for debugging.
    pub leak: bool,
}

impl Marks {
    pub fn any(self) -> bool {
        self.call || self.leak
    }

    pub fn add(&mut self, other: Self) {
        self.call |= other.call;
        self.leak |= other.leak;
    }
}

/// Looks at a member and all that is in it. `value` is JSON.
pub fn look(name: &str, value: &str) -> Marks {
    let place = Place::of("", name);
    match value.as_bytes().first() {
        Some(b'{' | b'[') => {}
        // A text is a call only under a name that says so; numbers never are.
        Some(b'"') if matches!(place, Place::Call | Place::Kind | Place::Leak) => {}
        _ => return Marks::default(),
    }
    let mut reader = serde_json::Deserializer::from_str(value);
    // What cannot be read here could not be read before: a reader may see anything in it.
    InPlace(place, name)
        .deserialize(&mut reader)
        .unwrap_or(Marks {
            call: true,
            leak: true,
        })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Plain,
    /// Whatever is in it is a call.
    Call,
    /// An object in it is a call; a text is not.
    Function,
    /// Names the kind of what stands beside it.
    Kind,
    Leak,
    /// Counts, which clients add up and never run.
    Usage,
}

impl Place {
    fn of(parent: &str, name: &str) -> Self {
        match name {
            "usage" => return Self::Usage,
            "type" => return Self::Kind,
            "failed_generation" | "__verbose" | "raw_output" | "raw_response" => {
                return Self::Leak;
            }
            "raw" if parent == "metadata" => return Self::Leak,
            _ => {}
        }
        if name.len() < SHORTEST {
            return Self::Plain;
        }
        let name = folded(name);
        if CALLS.iter().any(|call| name.contains(call)) {
            Self::Call
        } else if name == "function" {
            Self::Function
        } else {
            Self::Plain
        }
    }

    fn of_text(self) -> Marks {
        Marks {
            call: self == Self::Call,
            leak: self == Self::Leak,
        }
    }
}

const CALLS: [&str; 3] = ["toolcall", "functioncall", "tooluse"];
/// A shorter name holds none of them, nor `function`: folding adds no such letters. Bytes.
const SHORTEST: usize = "tooluse".len();

/// Some readers compare names without regard to case, others turn `toolCalls` into `tool_calls`.
fn folded(name: &str) -> String {
    let mut folded = String::with_capacity(name.len());
    for char in name.chars() {
        match char {
            '_' | '-' | '.' => {}
            '\u{17f}' => folded.push('s'),
            char if char.is_ascii() => folded.push(char.to_ascii_lowercase()),
            char => folded.extend(char.to_lowercase()),
        }
    }
    folded
}

/// A value in its place, under a parent's name.
struct InPlace<'n>(Place, &'n str);

impl<'de> DeserializeSeed<'de> for InPlace<'_> {
    type Value = Marks;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Marks, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for InPlace<'_> {
    type Value = Marks;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Marks, E> {
        Ok(Marks::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Marks, E> {
        Ok(Marks::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Marks, E> {
        Ok(Marks::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Marks, E> {
        Ok(Marks::default())
    }

    fn visit_unit<E>(self) -> Result<Marks, E> {
        Ok(Marks::default())
    }

    fn visit_str<E>(self, text: &str) -> Result<Marks, E> {
        let mut marks = if text.is_empty() {
            Marks::default()
        } else {
            self.0.of_text()
        };
        if self.0 == Place::Kind {
            let kind = folded(text);
            marks.call = kind == "function"
                || kind.ends_with("call")
                || CALLS.iter().any(|call| kind.contains(call));
        }
        Ok(marks)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Marks, A::Error> {
        let mut marks = Marks::default();
        while let Some(inner) = seq.next_element_seed(InPlace(self.0, self.1))? {
            marks.add(inner);
            marks.leak |= self.0 == Place::Leak;
        }
        Ok(marks)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Marks, A::Error> {
        let mut marks = Marks::default();
        if self.0 == Place::Usage {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(marks);
        }
        while let Some(Name(name)) = map.next_key()? {
            marks.call |= matches!(self.0, Place::Call | Place::Function);
            marks.leak |= self.0 == Place::Leak;
            let place = Place::of(self.1, &name);
            marks.add(map.next_value_seed(InPlace(place, &name))?);
        }
        Ok(marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(call: bool, leak: bool) -> Marks {
        Marks { call, leak }
    }

    #[test]
    fn calls_are_found_wherever_they_hide() {
        for (name, value) in [
            ("toolCalls", r#"[{"name":"rm"}]"#),
            ("Tool_Calls", r#"[{}, 1, {"a":1}]"#),
            ("x", r#"{"y":[{"tool_calls":[{"id":"c"}]}]}"#),
            ("x", r#"{"y":{"function":{"name":"rm"}}}"#),
            ("content", r#"[{"type":"tool_use","name":"rm"}]"#),
            ("x", r#"[{"type":"tool\u005fcall"}]"#),
            ("x", r#"{"tool\u005fcalls":"rm"}"#),
            ("tool_call", r#""rm -rf""#),
            ("provider", r#"{"functionCall":{"name":"rm"}}"#),
        ] {
            assert!(look(name, value).call, "{name} {value}");
        }
    }

    #[test]
    fn what_is_no_call_is_left_alone() {
        for (name, value) in [
            ("tool_calls", "null"),
            ("tool_calls", "[]"),
            ("tool_calls", r#""""#),
            ("tool_calls_executed", "3"),
            (
                "usage",
                r#"{"server_tool_use_details":{"web_search_requests":1}}"#,
            ),
            ("x", r#"{"usage":{"tool_use":{"n":1}}}"#),
            ("content", r#"[{"type":"text","text":"tool_calls"}]"#),
            ("content", r#""function_call tool_calls""#),
            (
                "annotations",
                r#"[{"type":"url_citation","url_citation":{"url":"u"}}]"#,
            ),
            (
                "reasoning_details",
                r#"[{"type":"reasoning.text","text":"a"}]"#,
            ),
        ] {
            assert_eq!(look(name, value), Marks::default(), "{name} {value}");
        }
    }

    #[test]
    fn texts_of_failed_calls_are_found() {
        for (name, value) in [
            ("failed_generation", r#""rm -rf""#),
            ("__verbose", r#"{"content":"rm"}"#),
            ("x_groq", r#"{"id":"r","failed_generation":"rm"}"#),
            ("metadata", r#"{"raw":"rm"}"#),
        ] {
            assert_eq!(look(name, value), marks(false, true), "{name} {value}");
        }
        assert_eq!(look("metadata", r#"{"a":"b"}"#), Marks::default());
    }
}
