//! A span, and what stands in it.

use std::{fmt, sync::Arc, time::Duration};

use serde::Serialize;

use super::context::{SpanId, TraceId};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub trace: TraceId,
    pub id: SpanId,
    pub parent: Option<SpanId>,
    /// The parent is in another process.
    pub parent_is_remote: bool,
    pub name: String,
    pub kind: Kind,
    /// Nanoseconds since 1970.
    pub begun: u64,
    pub ended: u64,
    pub attributes: Vec<Attribute>,
    pub events: Vec<Note>,
    /// Events that had no room.
    pub left_out: u32,
    /// It is marked as failed.
    pub failed: bool,
}

/// As the protocol numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Server = 2,
    Client = 3,
}

/// Something that happened in the course of a span.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Note {
    /// Since the request began.
    pub at: Duration,
    pub name: &'static str,
    pub attributes: Vec<Attribute>,
}

pub(super) type Attribute = (&'static str, Value);

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Word(&'static str),
    Name(Arc<str>),
    Text(String),
    Texts(Vec<String>),
    Number(u64),
    Decimal(f64),
    Flag(bool),
}

/// One of some words, as the ledger writes it.
pub(super) fn word<T: Serialize>(one: T) -> String {
    struct Word<T>(T);
    impl<T: Serialize> fmt::Display for Word<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.serialize(f)
        }
    }
    Word(one).to_string()
}

impl From<&'static str> for Value {
    fn from(word: &'static str) -> Self {
        Self::Word(word)
    }
}

impl From<Arc<str>> for Value {
    fn from(name: Arc<str>) -> Self {
        Self::Name(name)
    }
}

impl From<&Arc<str>> for Value {
    fn from(name: &Arc<str>) -> Self {
        Self::Name(Arc::clone(name))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(texts)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<f64> for Value {
    fn from(decimal: f64) -> Self {
        Self::Decimal(decimal)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}
