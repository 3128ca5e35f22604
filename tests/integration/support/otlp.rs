//! What a collector of traces reads: an `ExportTraceServiceRequest` of OTLP in protobuf, by the
//! numbers of opentelemetry-proto 1.

use serde_json::{Map, Value, json};

/// A span as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// In hexadecimal.
    pub trace: String,
    pub id: String,
    /// Empty: none.
    pub parent: String,
    pub name: String,
    /// 2: server, 3: client.
    pub kind: u64,
    pub began: u64,
    pub ended: u64,
    pub attributes: Value,
    /// Name and attributes.
    pub events: Vec<(String, Value)>,
    pub failed: bool,
}

/// All spans of one post.
///
/// # Panics
/// It is no such request.
pub fn spans(body: &[u8]) -> Vec<Span> {
    let of = |message: &[u8], number| all(message, number);
    let resources = of(body, 1);
    let scopes = resources.iter().flat_map(|one| of(one, 2));
    let scopes: Vec<Vec<u8>> = scopes.collect();
    let spans = scopes.iter().flat_map(|one| of(one, 2));
    spans.map(|one| span(&one)).collect()
}

/// What all spans of one post come from.
pub fn resource(body: &[u8]) -> Value {
    let resource = all(&all(body, 1)[0], 1);
    attributes(&resource[0], 1)
}

fn span(message: &[u8]) -> Span {
    let event = |one: Vec<u8>| (text(&one, 2), attributes(&one, 3));
    let status = all(message, 15);
    Span {
        trace: hex::encode(&all(message, 1)[0]),
        id: hex::encode(&all(message, 2)[0]),
        parent: all(message, 4).first().map(hex::encode).unwrap_or_default(),
        name: text(message, 5),
        kind: number(message, 6).unwrap_or_default(),
        began: number(message, 7).unwrap(),
        ended: number(message, 8).unwrap(),
        attributes: attributes(message, 9),
        events: all(message, 11).into_iter().map(event).collect(),
        failed: status.first().and_then(|status| number(status, 3)) == Some(2),
    }
}

fn attributes(message: &[u8], field: u64) -> Value {
    let mut found = Map::new();
    for pair in all(message, field) {
        let before = found.insert(text(&pair, 1), value(&all(&pair, 2)[0]));
        assert_eq!(before, None, "{} twice", text(&pair, 1));
    }
    Value::Object(found)
}

fn value(any: &[u8]) -> Value {
    match fields(any).into_iter().next() {
        Some((1, Part::Bytes(text))) => json!(String::from_utf8(text).unwrap()),
        Some((2, Part::Number(flag))) => json!(flag == 1),
        Some((3, Part::Number(number))) => json!(number),
        Some((4, Part::Number(bits))) => json!(f64::from_bits(bits)),
        Some((5, Part::Bytes(array))) => all(&array, 1).iter().map(|one| value(one)).collect(),
        other => panic!("{other:?} is no value"),
    }
}

fn text(message: &[u8], field: u64) -> String {
    String::from_utf8(all(message, field)[0].clone()).unwrap()
}

fn number(message: &[u8], field: u64) -> Option<u64> {
    let mut found = fields(message).into_iter();
    found.find_map(|(number, part)| match part {
        Part::Number(value) if number == field => Some(value),
        _ => None,
    })
}

fn all(message: &[u8], field: u64) -> Vec<Vec<u8>> {
    let found = fields(message).into_iter();
    let bytes = found.filter_map(|(number, part)| match part {
        Part::Bytes(bytes) if number == field => Some(bytes),
        _ => None,
    });
    bytes.collect()
}

#[derive(Debug)]
enum Part {
    Number(u64),
    Bytes(Vec<u8>),
}

fn fields(mut message: &[u8]) -> Vec<(u64, Part)> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let part = match tag & 7 {
            0 => Part::Number(varint(&mut message)),
            1 => Part::Number(u64::from_le_bytes(
                take(&mut message, 8).try_into().unwrap(),
            )),
            2 => {
                let length = varint(&mut message);
                Part::Bytes(take(&mut message, usize::try_from(length).unwrap()).to_vec())
            }
            5 => {
                let four = u32::from_le_bytes(take(&mut message, 4).try_into().unwrap());
                Part::Number(four.into())
            }
            kind => panic!("no field is of kind {kind}"),
        };
        found.push((tag >> 3, part));
    }
    found
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

fn take<'m>(message: &mut &'m [u8], length: usize) -> &'m [u8] {
    let (bytes, rest) = message.split_at(length);
    *message = rest;
    bytes
}
