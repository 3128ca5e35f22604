//! Layer 5: do the arguments fit the JSON Schema of the contract, else the one offered?

use super::{CallGuard, Finding, Proposal};

pub(super) const CODE: &str = "schema_invalid";

/// A schema, ready to be asked.
#[derive(Debug)]
pub struct Schema {}

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaFault {
    pub message: String,
}

/// A schema that a request offers.
#[derive(Debug)]
pub(super) struct OfferedSchema {
    text: Box<str>,
}

impl OfferedSchema {
    pub fn new(text: &str) -> Self {
        Self { text: text.into() }
    }
}

pub(super) fn ask(_: &CallGuard, _: &Proposal<'_>) -> Vec<Finding> {
    Vec::new()
}
