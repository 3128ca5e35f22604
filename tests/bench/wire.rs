//! Just enough HTTP/1.1, read without a socket: where a message ends and what its body says.
//! The load generator reads answers with it and the mock provider reads requests, so both stay
//! cheaper than any proxy between them. It trusts its peers and is no parser for the outside world.

use anyhow::{Result, bail};
use memchr::memmem;

/// A request or an answer while it arrives.
#[derive(Default)]
pub struct Message {
    head: Vec<u8>,
    status: u16,
    body: Body,
}

#[derive(Default)]
enum Body {
    /// The head has not ended yet.
    #[default]
    Unknown,
    Sized(usize),
    Chunked(Chunk),
}

/// Where in the chunked framing the next byte stands.
enum Chunk {
    Size(usize),
    Extension(usize),
    Data(usize),
    /// The line end after a chunk's data.
    DataEnd,
    /// The empty line (we send no trailers) after the last chunk.
    LastLine,
}

impl Message {
    /// Takes what arrived and hands body bytes on; true once the message is whole.
    pub fn feed(&mut self, bytes: &[u8], mut on_body: impl FnMut(&[u8])) -> Result<bool> {
        if !matches!(self.body, Body::Unknown) {
            return self.body.feed(bytes, &mut on_body);
        }
        let before = self.head.len();
        self.head.extend_from_slice(bytes);
        let Some(end) = memmem::find(&self.head, b"\r\n\r\n") else {
            return Ok(false);
        };
        self.status = status(&self.head);
        self.body = framing(&self.head[..end]);
        self.body.feed(&bytes[end + 4 - before..], &mut on_body)
    }

    /// Of an answer; 0 for a request or before the head has ended.
    pub fn status(&self) -> u16 {
        self.status
    }
}

impl Body {
    fn feed(&mut self, bytes: &[u8], on_body: &mut impl FnMut(&[u8])) -> Result<bool> {
        match self {
            Self::Unknown => Ok(false),
            Self::Sized(left) => {
                let taken = bytes.len().min(*left);
                on_body(&bytes[..taken]);
                *left -= taken;
                Ok(*left == 0)
            }
            Self::Chunked(state) => state.feed(bytes, on_body),
        }
    }
}

impl Chunk {
    fn feed(&mut self, mut bytes: &[u8], on_body: &mut impl FnMut(&[u8])) -> Result<bool> {
        while let Some((&byte, rest)) = bytes.split_first() {
            let (next, unread) = match *self {
                Self::Data(left) => {
                    let (data, unread) = bytes.split_at(bytes.len().min(left));
                    on_body(data);
                    match left - data.len() {
                        0 => (Self::DataEnd, unread),
                        left => (Self::Data(left), unread),
                    }
                }
                Self::Size(0) if byte == b'\r' => (Self::Extension(0), rest),
                Self::Size(size) => match (byte as char).to_digit(16) {
                    Some(digit) => (Self::Size(size * 16 + digit as usize), rest),
                    None => (Self::Extension(size), rest),
                },
                Self::Extension(0) if byte == b'\n' => (Self::LastLine, rest),
                Self::Extension(size) if byte == b'\n' => (Self::Data(size), rest),
                Self::Extension(size) => (Self::Extension(size), rest),
                Self::DataEnd if byte == b'\n' => (Self::Size(0), rest),
                Self::DataEnd => (Self::DataEnd, rest),
                Self::LastLine if byte == b'\n' => return Ok(true),
                Self::LastLine if byte == b'\r' => (Self::LastLine, rest),
                Self::LastLine => bail!("a trailer where none was expected"),
            };
            *self = next;
            bytes = unread;
        }
        Ok(false)
    }
}

fn status(head: &[u8]) -> u16 {
    std::str::from_utf8(head)
        .ok()
        .and_then(|text| text.strip_prefix("HTTP/1.1 "))
        .and_then(|text| text.get(..3)?.parse().ok())
        .unwrap_or(0)
}

fn framing(head: &[u8]) -> Body {
    let mut body = Body::Sized(0);
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            body = Body::Chunked(Chunk::Size(0));
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse().ok());
            body = Body::Sized(length.unwrap_or(0));
        }
    }
    body
}

/// Puts a body into one HTTP chunk, behind what `out` already holds.
pub fn write_chunk(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}
