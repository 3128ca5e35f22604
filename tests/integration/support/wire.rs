//! HTTP/1.1 by hand, for both sides: tests decide about exact bytes, so no library may tidy them.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Start line and headers as they came, names in lower case.
#[derive(Debug, Clone, Default)]
pub struct Head {
    pub start_line: String,
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(each, _)| each == name)
            .map(|(_, value)| value.as_str())
    }

    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split("\r\n");
        let start_line = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Self {
            start_line,
            headers,
        }
    }
}

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

impl Framing {
    pub fn of_request(head: &Head) -> Self {
        Self::named(head).unwrap_or(Self::Length(0))
    }

    pub fn of_response(head: &Head, to_method: &str) -> Self {
        let status = head.start_line.split(' ').nth(1).unwrap_or_default();
        if to_method == "HEAD" || matches!(status, "204" | "304") {
            return Self::Length(0);
        }
        Self::named(head).unwrap_or(Self::UntilClose)
    }

    fn named(head: &Head) -> Option<Self> {
        match head.header("transfer-encoding") {
            Some(_) => Some(Self::Chunked),
            None => Some(Self::Length(head.header("content-length")?.parse().ok()?)),
        }
    }
}

/// One connection and what was read ahead of need.
pub struct Wire {
    pub stream: TcpStream,
    buffer: BytesMut,
}

impl Wire {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    /// `None`: closed before a byte of it came.
    pub async fn read_head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head = Head::parse(&self.buffer[..end]);
                self.buffer.advance(end + 4);
                return Ok(Some(head));
            }
            if self.fill().await? == 0 {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(cut())
                };
            }
        }
    }

    /// The next bytes of the body as they arrive: of a chunked body, a chunk. `None`: it has
    /// ended as its framing says. An error: it was cut.
    pub async fn next_piece(&mut self, framing: &mut Framing) -> io::Result<Option<Bytes>> {
        match framing {
            Framing::Length(0) => Ok(None),
            Framing::Length(left) => {
                if self.buffer.is_empty() && self.fill().await? == 0 {
                    return Err(cut());
                }
                let size = self.buffer.len().min(*left);
                *left -= size;
                Ok(Some(self.buffer.split_to(size).freeze()))
            }
            Framing::Chunked => {
                let chunk = self.read_chunk().await?;
                if chunk.is_none() {
                    *framing = Framing::Length(0);
                }
                Ok(chunk)
            }
            Framing::UntilClose => {
                if self.buffer.is_empty() && self.fill().await? == 0 {
                    return Ok(None);
                }
                Ok(Some(self.buffer.split().freeze()))
            }
        }
    }

    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Returns when the other side has closed. Bytes that come are kept for the next read.
    pub async fn closed(&mut self) {
        while !matches!(self.fill().await, Ok(0) | Err(_)) {}
    }

    /// Closes with a reset instead of an orderly end.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream)
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
    }

    async fn read_chunk(&mut self) -> io::Result<Option<Bytes>> {
        let line = loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                break self.buffer.split_to(end + 2);
            }
            self.fill_or_cut().await?;
        };
        let digits = String::from_utf8_lossy(&line);
        let digits = digits
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned();
        let size = usize::from_str_radix(&digits, 16)
            .unwrap_or_else(|_| panic!("{digits:?} is no chunk size"));
        while self.buffer.len() < size + 2 {
            self.fill_or_cut().await?;
        }
        let chunk = self.buffer.split_to(size).freeze();
        self.buffer.advance(2);
        Ok((size > 0).then_some(chunk))
    }

    async fn fill_or_cut(&mut self) -> io::Result<()> {
        if self.fill().await? == 0 {
            Err(cut())
        } else {
            Ok(())
        }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.buffer).await
    }
}

fn cut() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, wanted)
}
