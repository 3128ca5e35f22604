//! The event before, for the one that comes next: most differ from it in their text alone.
//!
//! Where all other bytes are the same and the text is a plain JSON string, the two mean the same
//! but for that text, which cannot be a call. So the fate of the first is that of the second, and
//! nothing is parsed. That holds as long as no other event came between: the stream forgets its
//! pattern as soon as it reads one in full.

use std::ops::Range;

use serde_json::value::RawValue;

use super::chunk::{Chunk, Delta};
use crate::engine::sse::Event;

/// Longer events are not kept, and longer texts are read in full, where their bounds are. Bytes.
const LONGEST: usize = 64 << 10;

/// An event that has passed, and where its texts stand.
#[derive(Debug, Default)]
pub struct Repeat {
    /// All its bytes; none: there is no such event.
    event: Vec<u8>,
    /// From left to right.
    texts: Vec<Text>,
    /// What of it did not leave.
    gap: Option<Range<usize>>,
    /// What else a model wrote in it. Bytes.
    written: u64,
}

/// The inside of a string, as a place in the event.
#[derive(Debug)]
struct Text {
    place: Range<usize>,
    /// The model wrote it, and an estimate counts it.
    counts: bool,
    may_be_empty: bool,
}

/// An event like the one before.
#[derive(Debug, PartialEq, Eq)]
pub struct Again {
    pub end: usize,
    /// What of it stays here, as a place in the bytes that were given.
    pub gap: Option<Range<usize>>,
    /// Bytes of all that the model wrote in it.
    pub written: u64,
}

impl Repeat {
    pub fn forget(&mut self) {
        self.event.clear();
    }

    /// Takes note of an event that leaves, without `gap`, and said nothing but text.
    pub fn learn(
        &mut self,
        bytes: &[u8],
        event: &Event,
        chunk: &Chunk<'_>,
        gap: Option<Range<usize>>,
    ) {
        self.forget();
        let whole = bytes.get(event.bytes.clone()).unwrap_or_default();
        // A carriage return at the end may be half of a line end.
        let plain = event.data.len() == 1 && whole.ends_with(b"\n") && whole.len() <= LONGEST;
        if !plain || chunk.usage().is_some() {
            return;
        }
        let [choice] = chunk.choices() else {
            return;
        };
        let (Some(delta), None, None) = (&choice.delta, &choice.message, choice.finish()) else {
            return;
        };
        self.texts.clear();
        self.texts.extend(texts(whole, chunk, delta));
        if self.texts.iter().all(|text| text.may_be_empty) {
            return;
        }
        self.texts.sort_unstable_by_key(|text| text.place.start);
        let counted = self.texts.iter().filter(|text| text.counts);
        let counted: usize = counted.map(|text| text.place.len()).sum();
        self.written = delta.written().saturating_sub(counted as u64);
        let start = event.bytes.start;
        self.gap = gap.map(|gap| gap.start - start..gap.end - start);
        self.event.extend_from_slice(whole);
    }

    /// The event that begins at `from`, if it is whole and the one before with other texts.
    pub fn again(&self, bytes: &[u8], from: usize) -> Option<Again> {
        if self.event.is_empty() {
            return None;
        }
        let mut again = Again {
            end: from,
            gap: None,
            written: self.written,
        };
        let mut known = 0;
        for text in &self.texts {
            self.skip(known..text.place.start, bytes, &mut again)?;
            let size = plain_text(bytes.get(again.end..)?)?;
            if size == 0 && !text.may_be_empty {
                return None;
            }
            again.end += size;
            again.written += if text.counts { size as u64 } else { 0 };
            known = text.place.end;
        }
        self.skip(known..self.event.len(), bytes, &mut again)?;
        Some(again)
    }

    /// Goes past what has to stand there as it stood before.
    fn skip(&self, known: Range<usize>, bytes: &[u8], again: &mut Again) -> Option<()> {
        let same = self.event.get(known.clone())?;
        if !bytes.get(again.end..)?.starts_with(same) {
            return None;
        }
        if let Some(gap) = self.gap.clone().filter(|gap| known.contains(&gap.start)) {
            let start = again.end + (gap.start - known.start);
            again.gap = Some(start..start + gap.len());
        }
        again.end += same.len();
        Some(())
    }
}

/// The strings that may differ: what is said, and the filling that hides how long it is.
fn texts<'a>(
    whole: &'a [u8],
    chunk: &'a Chunk<'_>,
    delta: &'a Delta<'_>,
) -> impl Iterator<Item = Text> + 'a {
    let members = [
        (delta.content, true, false),
        (delta.refusal, true, false),
        (delta.reasoning_content, true, false),
        (delta.reasoning, false, false),
        (chunk.obfuscation, false, true),
    ];
    members
        .into_iter()
        .filter_map(|(raw, counts, may_be_empty)| {
            let place = inside(whole, raw?)?;
            let text = Text {
                place,
                counts,
                may_be_empty,
            };
            (may_be_empty || !text.place.is_empty()).then_some(text)
        })
}

/// Where the inside of `raw`, a string borrowed from `whole`, stands in it.
fn inside(whole: &[u8], raw: &RawValue) -> Option<Range<usize>> {
    let text = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    let start = text.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let place = start..start + text.len();
    (whole.get(place.clone())? == text.as_bytes()).then_some(place)
}

/// How long the inside of a JSON string is whose end follows; `None` if there is none, or if it
/// holds what only a full reading can judge.
fn plain_text(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(at) == Some(&b'"') {
            break;
        }
        at += escape(bytes.get(at + 1..)?)?;
    }
    let text = bytes.get(..at).filter(|text| text.len() <= LONGEST)?;
    let plain = std::str::from_utf8(text).is_ok() && !text.iter().any(|byte| *byte < b' ');
    plain.then_some(at)
}

/// How long an escape is whose backslash stands before; halves of surrogate pairs are not read.
fn escape(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => Some(2),
        [b'u', a, b, c, d, ..] => {
            let hex = [a, b, c, d].into_iter().all(u8::is_ascii_hexdigit);
            let surrogate = matches!(
                (a, b),
                (b'd' | b'D', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F')
            );
            (hex && !surrogate).then_some(6)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::sse::next_event;

    fn learned(event: &str) -> Repeat {
        let found = next_event(event.as_bytes(), 0).unwrap();
        let data = found.data(event.as_bytes());
        let mut repeat = Repeat::default();
        repeat.learn(event.as_bytes(), &found, &Chunk::read(&data).unwrap(), None);
        repeat
    }

    fn event(text: &str) -> String {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    }

    #[test]
    fn another_text_is_recognised_and_counted() {
        let repeat = learned(&event("a"));
        for (text, size) in [("b", 1), ("\u{e9}", 2), (r"\n\u00e9\/", 10), ("}]}", 3)] {
            let event = event(text);
            let again = repeat.again(event.as_bytes(), 0).unwrap();
            assert_eq!((again.end, again.written), (event.len(), size), "{text}");
        }
    }

    #[test]
    fn anything_else_is_read_in_full() {
        let repeat = learned(&event("a"));
        for text in [
            "",
            "\"",
            r"\ud800",
            r"\x",
            "\t",
            "\",\"content\":\"b",
            "\n\n",
        ] {
            assert_eq!(repeat.again(event(text).as_bytes(), 0), None, "{text:?}");
        }
        let long = event(&"a".repeat(LONGEST + 1));
        assert_eq!(repeat.again(long.as_bytes(), 0), None);
        let short = event("b");
        for cut in 0..short.len() {
            assert_eq!(repeat.again(&short.as_bytes()[..cut], 0), None);
        }
        let invalid = event("?").replace('?', "\u{80}").into_bytes();
        let invalid: Vec<u8> = invalid.into_iter().filter(|byte| *byte != 0xc2).collect();
        assert_eq!(repeat.again(&invalid, 0), None);
    }

    #[test]
    fn only_text_is_learned() {
        for event in [
            "data: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":[\"a\"]}}]}\n\n",
            "data: {\"choices\":[{\"message\":{\"content\":\"a\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"total_tokens\":1}}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\r",
        ] {
            assert!(learned(event).event.is_empty(), "{event}");
        }
        assert!(learned(&event(&"a".repeat(LONGEST))).event.is_empty());
    }
}
