//! JSON as strictly as it can be read, so that no two readers can disagree about it: RFC 8259
//! with nothing around it, no member twice, no lone surrogate, bounded depth and size. The text
//! of numbers is kept: nothing is rounded.

mod decimal;
mod pointer;
mod read;
#[cfg(test)]
mod tests;

pub use self::{
    decimal::Decimal,
    pointer::{Found, Pointer},
};

/// A value as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    Null,
    Bool(bool),
    /// The text of the number.
    Number(Box<str>),
    String(String),
    Array(Vec<Json>),
    /// In the order of the text. No name twice.
    Object(Vec<(String, Json)>),
}

/// How much a value holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub values: usize,
    /// Levels, the value's own included.
    pub depth: usize,
    /// Bytes of all texts and names.
    pub text: usize,
}

impl Extent {
    fn add(&mut self, inner: &Self) {
        self.values += inner.values;
        self.depth = self.depth.max(inner.depth + 1);
        self.text += inner.text;
    }
}

/// Why a text is no JSON that we go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Incomplete,
    Syntax,
    Trailing,
    Deep,
    Large,
    Duplicate,
    Surrogate,
    Number,
}

/// Deeper arrays and objects are refused.
pub const MAX_DEPTH: usize = 64;
/// Longer texts are refused.
pub const MAX_BYTES: usize = 1 << 20;
/// More values in one text are refused.
pub const MAX_VALUES: usize = 100_000;

impl Json {
    /// Reads one whole text.
    ///
    /// # Errors
    /// What is wrong with it; never where, which would tell what stands there.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        read::parse(text)
    }

    /// A member of an object.
    pub fn member(&self, name: &str) -> Option<&Self> {
        let members = self.members()?;
        members.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    pub fn members(&self) -> Option<&[(String, Self)]> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn extent(&self) -> Extent {
        let mut extent = Extent {
            values: 1,
            depth: 1,
            text: 0,
        };
        match self {
            Self::String(text) => extent.text = text.len(),
            Self::Array(items) => items.iter().for_each(|item| extent.add(&item.extent())),
            Self::Object(members) => {
                for (name, value) in members {
                    extent.text += name.len();
                    extent.add(&value.extent());
                }
            }
            _ => {}
        }
        extent
    }

    /// The same value for readers of `serde_json`. `None` if a number is beyond what it holds.
    pub fn to_value(&self) -> Option<serde_json::Value> {
        use serde_json::Value;
        Some(match self {
            Self::Null => Value::Null,
            Self::Bool(bool) => Value::Bool(*bool),
            Self::Number(text) => Value::Number(serde_json::from_str(text).ok()?),
            Self::String(text) => Value::String(text.clone()),
            Self::Array(items) => {
                Value::Array(items.iter().map(Self::to_value).collect::<Option<_>>()?)
            }
            Self::Object(members) => Value::Object(
                members
                    .iter()
                    .map(|(name, value)| Some((name.clone(), value.to_value()?)))
                    .collect::<Option<_>>()?,
            ),
        })
    }
}

/// As short as it can be written, members in their order, numbers as they came.
impl std::fmt::Display for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        write(self, &mut text, Form::AsCame);
        f.write_str(&text)
    }
}

/// The one text of all spellings of a value: members sorted by their bytes, no white space,
/// strings escaped as little as can be, numbers as `-15e-1`: digits without zeros at either
/// end, and the power of ten. So 1, 1.0 and 10e-1 are one number, as are 0 and -0.
pub fn canonical(value: &Json) -> String {
    let mut text = String::new();
    write(value, &mut text, Form::Canonical);
    text
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    AsCame,
    Canonical,
}

fn write(value: &Json, out: &mut String, form: Form) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(true) => out.push_str("true"),
        Json::Bool(false) => out.push_str("false"),
        Json::Number(text) => match Decimal::parse(text) {
            Some(number) if form == Form::Canonical => out.push_str(&number.to_string()),
            _ => out.push_str(text),
        },
        Json::String(text) => write_string(text, out),
        Json::Array(items) => {
            write_list(out, ['[', ']'], items, |item, out| write(item, out, form))
        }
        Json::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            if form == Form::Canonical {
                members.sort_by(|(one, _), (other, _)| one.cmp(other));
            }
            write_list(out, ['{', '}'], members, |(name, value), out| {
                write_string(name, out);
                out.push(':');
                write(value, out, form);
            });
        }
    }
}

fn write_list<T>(
    out: &mut String,
    [open, close]: [char; 2],
    items: impl IntoIterator<Item = T>,
    write: impl Fn(T, &mut String),
) {
    out.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(item, out);
    }
    out.push(close);
}

fn write_string(text: &str, out: &mut String) {
    use std::fmt::Write as _;
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Writing to a String cannot fail.
            control if control < ' ' => _ = write!(out, "\\u{:04x}", u32::from(control)),
            other => out.push(other),
        }
    }
    out.push('"');
}

impl Fault {
    /// For people and models; says nothing of the content.
    pub fn message(self) -> &'static str {
        match self {
            Self::Incomplete => "The arguments are cut off before their end.",
            Self::Syntax => "The arguments are not valid JSON.",
            Self::Trailing => "Something follows the JSON value of the arguments.",
            Self::Deep => "The arguments are nested too deep (at most 64 levels).",
            Self::Large => "The arguments are too large (at most 1 MiB and 100000 values).",
            Self::Duplicate => "An object in the arguments has the same member twice.",
            Self::Surrogate => "A text in the arguments holds half a character (a lone surrogate).",
            Self::Number => "A number in the arguments has an exponent beyond all use.",
        }
    }
}
