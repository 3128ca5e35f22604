//! Spans as an `ExportTraceServiceRequest` of OTLP, in protobuf: a dozen messages of the fields
//! below, too few for a code generator and its libraries.

use super::span::{Attribute, Note, Span, Value};

/// One message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

/// What all `spans` are told to come from.
pub(super) struct Source<'s> {
    pub service: &'s str,
    pub version: &'s str,
}

/// The body of one post.
pub(super) fn request(source: &Source<'_>, spans: &[Span]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |resource_spans| {
        resource_spans.message(1, |resource| {
            for (name, value) in [
                ("service.name", source.service),
                ("service.version", source.version),
            ] {
                attribute(resource, 1, name, &Value::Text(value.to_owned()));
            }
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.text(1, "tallygate");
                scope.text(2, source.version);
            });
            for each in spans {
                scope_spans.message(2, |span| write_span(span, each));
            }
        });
    });
    request.0
}

fn write_span(message: &mut Message, span: &Span) {
    message.bytes(1, &span.trace);
    message.bytes(2, &span.id);
    if let Some(parent) = &span.parent {
        message.bytes(4, parent);
    }
    message.text(5, &span.name);
    message.number(6, span.kind as u64);
    message.fixed64(7, span.begun);
    message.fixed64(8, span.ended);
    attributes(message, 9, &span.attributes);
    for note in &span.events {
        message.message(11, |event| write_event(event, span.begun, note));
    }
    if span.left_out > 0 {
        message.number(12, span.left_out.into());
    }
    if span.failed {
        message.message(15, |status| status.number(3, FAILED));
    }
    let remote = if span.parent_is_remote { IS_REMOTE } else { 0 };
    message.fixed32(16, SAMPLED | HAS_REMOTE | remote);
}

const FAILED: u64 = 2;
/// Flags of a span: those of its trace, and whether its parent is in another process.
const SAMPLED: u32 = 0x01;
const HAS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// `begun`: when the request did, from which its events count.
fn write_event(message: &mut Message, begun: u64, note: &Note) {
    let since = u64::try_from(note.at.as_nanos()).unwrap_or(u64::MAX);
    message.fixed64(1, begun.saturating_add(since));
    message.text(2, note.name);
    attributes(message, 3, &note.attributes);
}

fn attributes(message: &mut Message, field: u32, all: &[Attribute]) {
    for (name, value) in all {
        attribute(message, field, name, value);
    }
}

fn attribute(message: &mut Message, field: u32, name: &str, value: &Value) {
    message.message(field, |pair| {
        pair.text(1, name);
        pair.message(2, |any| write_value(any, value));
    });
}

fn write_value(any: &mut Message, value: &Value) {
    match value {
        Value::Word(text) => any.text(1, text),
        Value::Name(text) => any.text(1, text),
        Value::Text(text) => any.text(1, text),
        Value::Flag(flag) => any.number(2, u64::from(*flag)),
        Value::Number(number) => any.number(3, *number),
        Value::Decimal(decimal) => any.fixed64(4, decimal.to_bits()),
        Value::Texts(texts) => any.message(5, |array| {
            for text in texts {
                array.message(1, |any| any.text(1, text));
            }
        }),
    }
}

impl Message {
    fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn number(&mut self, field: u32, number: u64) {
        self.tag(field, VARINT);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u32, number: u64) {
        self.tag(field, FIXED_64);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u32, number: u32) {
        self.tag(field, FIXED_32);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn tag(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    /// Seven bits a byte, the lowest first.
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }
}

const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const DELIMITED: u32 = 2;
const FIXED_32: u32 = 5;

/// How many spans of a post the collector turned down, as its answer says. What is no such
/// answer says nothing.
pub(super) fn turned_down(answer: &[u8]) -> u64 {
    let partial = Fields(answer).find_map(|(field, _, bytes)| (field == 1).then_some(bytes));
    let mut of_partial = Fields(partial.unwrap_or_default());
    let rejected = of_partial.find_map(|(field, number, _)| (field == 1).then_some(number));
    rejected.unwrap_or(0)
}

/// The fields of a message, with their number or their bytes; ends where it cannot be read.
struct Fields<'m>(&'m [u8]);

impl<'m> Iterator for Fields<'m> {
    type Item = (u64, u64, &'m [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let (field, kind) = (tag >> 3, tag & 7);
        if kind == u64::from(VARINT) {
            return Some((field, self.varint()?, &[]));
        }
        let length = match kind {
            kind if kind == u64::from(DELIMITED) => usize::try_from(self.varint()?).ok()?,
            kind if kind == u64::from(FIXED_64) => 8,
            kind if kind == u64::from(FIXED_32) => 4,
            _ => return None,
        };
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some((field, 0, bytes))
    }
}

impl Fields<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::{
        super::span::{Kind, Note, Span},
        *,
    };

    fn bytes_of(message: &[u8], path: &[u64]) -> Vec<u8> {
        let mut found = message.to_vec();
        for wanted in path {
            let bytes = Fields(&found)
                .find(|(field, ..)| field == wanted)
                .unwrap()
                .2;
            found = bytes.to_vec();
        }
        found
    }

    #[test]
    fn a_span_is_written_with_the_numbers_of_the_protocol() {
        let note = Note {
            at: Duration::from_nanos(7),
            name: "tallygate.tool_call",
            attributes: vec![("tallygate.call.delivered", true.into())],
        };
        let span = Span {
            trace: [1; 16],
            id: [2; 8],
            parent: Some([3; 8]),
            parent_is_remote: true,
            name: "POST /v1/chat/completions".to_owned(),
            kind: Kind::Server,
            begun: 1_000,
            ended: 300_000,
            attributes: vec![("tallygate.key", Arc::<str>::from("k1").into())],
            events: vec![note],
            left_out: 300,
            failed: true,
        };
        let source = Source {
            service: "s",
            version: "1",
        };
        let written = request(&source, &[span]);
        let span = bytes_of(&written, &[1, 2, 2]);
        assert_eq!(bytes_of(&span, &[1]), [1; 16]);
        assert_eq!(bytes_of(&span, &[2]), [2; 8]);
        assert_eq!(bytes_of(&span, &[4]), [3; 8]);
        assert_eq!(bytes_of(&span, &[7]), 1_000_u64.to_le_bytes());
        assert_eq!(bytes_of(&span, &[8]), 300_000_u64.to_le_bytes());
        assert_eq!(bytes_of(&span, &[9, 1]), b"tallygate.key");
        assert_eq!(bytes_of(&span, &[9, 2, 1]), b"k1");
        assert_eq!(bytes_of(&span, &[11, 1]), 1_007_u64.to_le_bytes());
        assert_eq!(bytes_of(&span, &[11, 3, 1]), b"tallygate.call.delivered");
        assert_eq!(bytes_of(&span, &[15]), [3 << 3, 2]);
        assert_eq!(bytes_of(&span, &[16]), 0x301_u32.to_le_bytes());
        let number = |wanted| {
            Fields(&span)
                .find(|(field, ..)| *field == wanted)
                .unwrap()
                .1
        };
        assert_eq!((number(6), number(12)), (2, 300));
        assert_eq!(bytes_of(&written, &[1, 1, 1, 1]), b"service.name");
    }

    #[test]
    fn what_a_collector_turned_down_is_read() {
        assert_eq!(turned_down(&[0x0a, 3, 0x08, 0xac, 0x02]), 300);
        for nothing in [&[][..], &[0x0a, 0], &[0x0a, 9, 8], b"<html>", &[0x08, 1]] {
            assert_eq!(turned_down(nothing), 0, "{nothing:?}");
        }
    }
}
