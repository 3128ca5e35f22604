//! Server-sent events: bytes in, whole events out, each with the place of its bytes.
//!
//! Lines end in LF, CRLF or CR; a blank line ends an event. What an event means is not decided
//! here.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

/// An event's lines, taken apart. Ranges are into the bytes given to `next_event`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// All its bytes, the ending blank line included.
    pub bytes: Range<usize>,
    /// The values of its `data:` lines.
    pub data: Vec<Range<usize>>,
    /// It holds lines that are neither `data:` nor comments.
    pub other_lines: bool,
    pub comments: bool,
}

impl Event {
    /// The event's data as one text; borrowed when it stands on one line.
    pub fn data<'a>(&self, bytes: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
        let line = |range: &Range<usize>| bytes.get(range.clone()).unwrap_or_default();
        match self.data.as_slice() {
            [] => std::borrow::Cow::Borrowed(&[]),
            [one] => std::borrow::Cow::Borrowed(line(one)),
            many => many
                .iter()
                .map(line)
                .collect::<Vec<_>>()
                .join(&b'\n')
                .into(),
        }
    }
}

/// The first whole event at or after `from`; `None` if its blank line has not come yet.
pub fn next_event(bytes: &[u8], from: usize) -> Option<Event> {
    let mut event = Event {
        bytes: from..from,
        ..Event::default()
    };
    let mut at = from;
    loop {
        let (line, next) = next_line(bytes, at)?;
        if line.is_empty() {
            event.bytes.end = next;
            return Some(event);
        }
        event.add(bytes, line);
        at = next;
    }
}

impl Event {
    fn add(&mut self, bytes: &[u8], line: Range<usize>) {
        let text = bytes.get(line.clone()).unwrap_or_default();
        if text.first() == Some(&b':') {
            self.comments = true;
            return;
        }
        let colon = memchr::memchr(b':', text).unwrap_or(text.len());
        if text.get(..colon) != Some(b"data") {
            self.other_lines = true;
            return;
        }
        let space = usize::from(text.get(colon + 1) == Some(&b' '));
        let start = (line.start + colon + 1 + space).min(line.end);
        self.data.push(start..line.end);
    }
}

/// The beginning of an event whose end has not come. At the beginning of a stream a byte order
/// mark is taken off, in how many pieces it may come: it makes one SDK lose the first event, and
/// others read an event where we would see none.
#[derive(Debug, Default)]
pub struct Unfinished {
    rest: BytesMut,
    /// So many bytes of the mark have come; all of them: the stream has begun.
    mark: usize,
}

const MARK: &[u8] = b"\xef\xbb\xbf";

impl Unfinished {
    /// `piece` with what came before it; `None` while no event can have ended. A large event that
    /// comes in small pieces is looked at once, not once for each piece.
    pub fn join(&mut self, piece: Bytes) -> Option<Bytes> {
        let piece = self.without_mark(piece);
        let Some(&last) = self.rest.last() else {
            return (!piece.is_empty()).then_some(piece);
        };
        let ended = may_end(last, &piece);
        self.rest.extend_from_slice(&piece);
        ended.then(|| self.rest.split().freeze())
    }

    fn without_mark(&mut self, mut piece: Bytes) -> Bytes {
        while let (Some(expected), Some(&byte)) = (MARK.get(self.mark), piece.first()) {
            if byte == *expected {
                self.mark += 1;
                piece.advance(1);
                continue;
            }
            // No mark: what looked like its beginning belongs to the stream.
            let begun = MARK.get(..self.mark).unwrap_or_default();
            self.mark = MARK.len();
            if !begun.is_empty() {
                piece = [begun, &piece].concat().into();
            }
        }
        piece
    }

    pub fn keep(&mut self, rest: &[u8]) {
        self.rest.extend_from_slice(rest);
    }

    pub fn size(&self) -> usize {
        self.rest.len()
    }
}

/// Whether a line of `piece`, which comes behind `before`, may be blank.
fn may_end(before: u8, piece: &[u8]) -> bool {
    let is_end = |byte: u8| byte == b'\n' || byte == b'\r';
    let mut ends = memchr::memchr2_iter(b'\n', b'\r', piece);
    ends.any(|at| {
        let previous = match at.checked_sub(1) {
            Some(at) => piece.get(at).copied().unwrap_or_default(),
            None => before,
        };
        let crlf = previous == b'\r' && piece.get(at) == Some(&b'\n');
        is_end(previous) && !crlf
    })
}

/// A line without its ending, and where the next one begins.
fn next_line(bytes: &[u8], at: usize) -> Option<(Range<usize>, usize)> {
    let end = at + memchr::memchr2(b'\n', b'\r', bytes.get(at..)?)?;
    let crlf = bytes.get(end) == Some(&b'\r') && bytes.get(end + 1) == Some(&b'\n');
    Some((at..end, end + if crlf { 2 } else { 1 }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn datas(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(event) = next_event(bytes, at) {
            if !event.data.is_empty() {
                found.push(event.data(bytes).into_owned());
            }
            at = event.bytes.end;
        }
        found
    }

    #[test]
    fn all_line_ends_and_spacings_give_the_same_data() {
        for bytes in [
            &b"data: a\n\ndata: b\n\n"[..],
            b"data:a\r\n\r\ndata:b\r\n\r\n",
            b"data: a\r\rdata: b\r\r",
            b": note\n\nevent: x\ndata: a\nid: 1\n\n\ndata: b\n\n",
        ] {
            assert_eq!(datas(bytes), [b"a".to_vec(), b"b".to_vec()]);
        }
        assert_eq!(datas(b"data: a\ndata: b\n\n"), [b"a\nb".to_vec()]);
        assert_eq!(datas(b"data:  a\n\n"), [b" a".to_vec()]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_stream_in_whatever_pieces_it_comes() {
        for (text, expected) in [
            (&b"\xef\xbb\xbfdata: a\n\n"[..], &b"data: a\n\n"[..]),
            (b"\xef\xbb\xbf\ndata: a\n\n", b"\ndata: a\n\n"),
            (b"\xef\xbb\xbf\xef\xbb\xbfa\n\n", b"\xef\xbb\xbfa\n\n"),
            (b"\xef\xbb:a\n\n", b"\xef\xbb:a\n\n"),
            (b"\xef\xef\xbb\xbf\n\n", b"\xef\xef\xbb\xbf\n\n"),
            (b"data: \xef\xbb\xbf\n\n", b"data: \xef\xbb\xbf\n\n"),
        ] {
            for size in 1..=text.len() {
                let (mut unfinished, mut seen) = (Unfinished::default(), Vec::new());
                for piece in text.chunks(size) {
                    seen.extend(
                        unfinished
                            .join(Bytes::copy_from_slice(piece))
                            .unwrap_or_default(),
                    );
                }
                seen.extend_from_slice(&unfinished.rest);
                assert_eq!(seen, expected, "{text:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn data_without_its_blank_line_is_never_given_out() {
        assert_eq!(datas(b"data: a\n"), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn an_event_ends_in_whatever_pieces_it_comes() {
        for text in [
            "data: a\n\ndata: b\n\n",
            "data: a\r\n\r\ndata: b\r\n\r\n",
            "data: a\r\rdata: b\r\r",
            "data: a\ndata: b\n\r\n:c\r\n\n",
        ] {
            let whole = events(text.as_bytes());
            for size in 1..text.len() {
                let (mut unfinished, mut found) = (Unfinished::default(), Vec::new());
                for piece in text.as_bytes().chunks(size) {
                    let Some(bytes) = unfinished.join(Bytes::copy_from_slice(piece)) else {
                        continue;
                    };
                    let mut at = 0;
                    while let Some(event) = next_event(&bytes, at) {
                        at = event.bytes.end;
                        found.push(event.data(&bytes).into_owned());
                    }
                    unfinished.keep(&bytes[at..]);
                }
                found.retain(|data| !data.is_empty());
                assert_eq!(found, whole, "{text:?} in pieces of {size}");
            }
        }
    }

    fn events(bytes: &[u8]) -> Vec<Vec<u8>> {
        let (mut at, mut found) = (0, Vec::new());
        while let Some(event) = next_event(bytes, at) {
            at = event.bytes.end;
            found.push(event.data(bytes).into_owned());
        }
        found.retain(|data| !data.is_empty());
        found
    }

    proptest! {
        #[test]
        fn every_byte_belongs_to_one_event_or_to_the_rest(bytes in "[dat: \n\r{}x]{0,80}") {
            let bytes = bytes.as_bytes();
            let mut at = 0;
            while let Some(event) = next_event(bytes, at) {
                prop_assert_eq!(event.bytes.start, at);
                prop_assert!(event.bytes.end > at);
                at = event.bytes.end;
            }
        }
    }
}
