//! Walks JSON in place and tells where things stand, so that pieces can be cut out of the bytes.
//!
//! For text that serde has already read as JSON: it follows the structure and does not check it
//! again. On anything else it still ends, and finds nothing that is not there.

use std::{borrow::Cow, ops::Range};

/// From a byte to the one behind the last.
pub type Span = Range<usize>;

#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    body: &'a [u8],
    at: usize,
}

/// A name or a text that is no Unicode, such as half a surrogate pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotText;

impl<'a> Cursor<'a> {
    /// Before the value that begins at `at`, or behind white space there.
    pub fn new(body: &'a [u8], at: usize) -> Self {
        Self { body, at }
    }

    /// The first byte of the value to come; 0 at the end.
    pub fn first(&mut self) -> u8 {
        self.at = skip_space(self.body, self.at);
        self.body.get(self.at).copied().unwrap_or_default()
    }

    /// In JSON, what begins like `null` is `null`.
    pub fn is_null(&mut self) -> bool {
        self.first() == b'n'
    }

    /// Steps over a value.
    pub fn skip(&mut self) -> Span {
        let first = self.first();
        let start = self.at;
        self.at = match first {
            b'"' => (super::skip_string(self.body, start) + 1).min(self.body.len()),
            b'{' | b'[' => self.behind_brackets(start),
            _ => self.behind_scalar(start),
        };
        start..self.at
    }

    /// Steps over a value: its text if it is a string, else `None`.
    pub fn string(&mut self) -> Result<Option<Cow<'a, str>>, NotText> {
        let is_string = self.first() == b'"';
        let span = self.skip();
        if is_string {
            decode(self.body, span).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Steps over an object and shows each member: its name, and this cursor before its value,
    /// which is skipped if `each` leaves it. Anything but an object has no members.
    pub fn object<E: From<NotText>>(
        &mut self,
        mut each: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), E>,
    ) -> Result<Span, E> {
        self.walk(b'{', |cursor| {
            let name = decode(cursor.body, cursor.skip())?;
            if cursor.first() == b':' {
                cursor.at += 1;
            }
            cursor.first();
            let before = cursor.at;
            each(cursor, name)?;
            if cursor.at == before {
                cursor.skip();
            }
            Ok(())
        })
    }

    /// Steps over an array and shows each element, as `object` does.
    pub fn array<E>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Span, E> {
        self.walk(b'[', |cursor| {
            let before = cursor.at;
            each(cursor)?;
            if cursor.at == before {
                cursor.skip();
            }
            Ok(())
        })
    }

    fn walk<E>(
        &mut self,
        open: u8,
        mut each: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Span, E> {
        if self.first() != open {
            return Ok(self.skip());
        }
        let start = self.at;
        self.at += 1;
        loop {
            let before = match self.first() {
                0 => return Ok(start..self.at),
                b'}' | b']' => {
                    self.at += 1;
                    return Ok(start..self.at);
                }
                b',' => {
                    self.at += 1;
                    continue;
                }
                _ => self.at,
            };
            each(self)?;
            if self.at <= before {
                self.at = before + 1;
            }
        }
    }

    fn behind_brackets(&self, start: usize) -> usize {
        let (mut depth, mut at) = (0_usize, start);
        while let Some(&byte) = self.body.get(at) {
            match byte {
                b'"' => at = super::skip_string(self.body, at),
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            at += 1;
            if depth == 0 {
                break;
            }
        }
        at.min(self.body.len())
    }

    fn behind_scalar(&self, start: usize) -> usize {
        let ends = |byte: &u8| matches!(byte, b',' | b':' | b'}' | b']') || is_space(*byte);
        let rest = self.body.get(start..).unwrap_or_default();
        start + rest.iter().position(ends).unwrap_or(rest.len())
    }
}

/// The bytes of a span.
pub fn slice(body: &[u8], span: Span) -> &[u8] {
    body.get(span).unwrap_or_default()
}

/// Where the next byte that is no white space stands, from `at` on.
pub fn skip_space(body: &[u8], at: usize) -> usize {
    let rest = body.get(at..).unwrap_or_default();
    let space = rest.iter().take_while(|byte| is_space(**byte)).count();
    at + space
}

/// Behind the last byte before `at` that is no white space.
pub fn skip_space_back(body: &[u8], at: usize) -> usize {
    let before = body.get(..at).unwrap_or_default();
    let space = before.iter().rev().take_while(|byte| is_space(**byte));
    before.len() - space.count()
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The text of a string that stands at `span` with its quotes.
fn decode(body: &[u8], span: Span) -> Result<Cow<'_, str>, NotText> {
    let quoted = slice(body, span);
    let inner = quoted
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    match inner {
        Some(plain) if memchr::memchr(b'\\', plain).is_none() => std::str::from_utf8(plain)
            .map(Cow::Borrowed)
            .map_err(|_| NotText),
        _ => serde_json::from_slice(quoted)
            .map(Cow::Owned)
            .map_err(|_| NotText),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Rebuilds a value with the cursor alone.
    fn rebuild(cursor: &mut Cursor<'_>) -> Value {
        match cursor.first() {
            b'{' => {
                let mut members = serde_json::Map::new();
                let read: Result<Span, NotText> = cursor.object(|cursor, name| {
                    members.insert(name.into_owned(), rebuild(cursor));
                    Ok(())
                });
                read.unwrap();
                members.into()
            }
            b'[' => {
                let mut elements = Vec::new();
                let read: Result<Span, NotText> = cursor.array(|cursor| {
                    elements.push(rebuild(cursor));
                    Ok(())
                });
                read.unwrap();
                elements.into()
            }
            _ => {
                let body = cursor.body;
                serde_json::from_slice(slice(body, cursor.skip())).unwrap()
            }
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[\"\\\\{}\\[\\]:, a\u{e9}\n]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let name = "[\"\\\\a-c,:]{0,3}";
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((name, inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn sees_what_serde_sees(value in json(), pretty in any::<bool>()) {
            let text = if pretty {
                serde_json::to_string_pretty(&value).unwrap()
            } else {
                value.to_string()
            };
            let mut cursor = Cursor::new(text.as_bytes(), 0);
            prop_assert_eq!(rebuild(&mut cursor), value);
            prop_assert_eq!(cursor.at, text.len());
        }

        #[test]
        fn ends_on_whatever_it_is_given(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut cursor = Cursor::new(&bytes, 0);
            let _: Result<Span, NotText> = cursor.object(|cursor, _| cursor.array(|cursor| {
                cursor.string().map(drop)
            }).map(drop));
            prop_assert!(cursor.at <= bytes.len() + 1);
        }
    }

    #[test]
    fn half_a_surrogate_pair_is_no_text() {
        let mut cursor = Cursor::new(br#""\ud800""#, 0);
        assert_eq!(cursor.string(), Err(NotText));
        let mut cursor = Cursor::new(br#"{"\udc00":1}"#, 0);
        assert_eq!(cursor.object(|_, _| Ok::<(), NotText>(())), Err(NotText));
    }
}
