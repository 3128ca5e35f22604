//! Layer 5: do the arguments fit the JSON Schema of the contract, else the one offered?
//!
//! The contract's schema is the operator's: formats count, and what cannot be used stops the
//! start. The one offered is the client's, read when a call is judged by it: formats are notes,
//! a pattern that the linear-time engine cannot have is left out with a warning in the record,
//! and any other schema that cannot be used blocks the call. Both are bounded in size, depth and
//! work, and never lead out of their own text.

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use jsonschema::error::ValidationErrorKind;

use super::{CallGuard, Content, Finding, FindingKind, Proposal};
use crate::engine::{
    contract::{Schema, SchemaFault},
    json::Json,
    names::clean_pointer,
};

pub const CODE: &str = "schema_invalid";

/// A schema that a request offers, compiled when first asked.
#[derive(Debug)]
pub(super) struct OfferedSchema {
    text: Box<str>,
    compiled: OnceLock<Result<Schema, SchemaFault>>,
}

impl OfferedSchema {
    pub fn new(text: &str) -> Self {
        Self {
            text: text.into(),
            compiled: OnceLock::new(),
        }
    }

    fn get(&self) -> Result<&Schema, &SchemaFault> {
        self.compiled
            .get_or_init(|| Schema::offered(&self.text))
            .as_ref()
    }
}

pub(super) fn ask(guard: &CallGuard, proposal: &Proposal<'_>) -> Vec<Finding> {
    let contract = guard.contracts.find(&proposal.tool);
    let contract = contract.and_then(|contract| contract.schema.as_deref());
    match (&proposal.content, contract) {
        (Ok(Content::Json(arguments)), Some(schema)) => {
            let rule = CONTRACT.to_owned();
            judge(schema, arguments, &rule).into_iter().collect()
        }
        (Ok(Content::Json(arguments)), None) => by_offered(guard, proposal, arguments),
        (Ok(Content::Text), Some(_)) => {
            let message = "The tool's contract has a schema, which free text cannot fit.";
            vec![Finding::no(CONTRACT.to_owned(), message)]
        }
        (Ok(Content::Text) | Err(_), _) => Vec::new(),
    }
}

fn by_offered(guard: &CallGuard, proposal: &Proposal<'_>, arguments: &Json) -> Vec<Finding> {
    let call = proposal.call;
    let tool = guard.offered.find(call.namespace.as_deref(), &call.name);
    let mut findings = Vec::new();
    for schema in tool.into_iter().flat_map(|tool| &tool.schemas) {
        match schema.get() {
            Ok(schema) => {
                findings.extend(not_asked(schema.left_out()));
                findings.extend(judge(schema, arguments, OFFERED));
            }
            Err(fault) => findings.push(Finding::no(
                OFFERED,
                format!(
                    "The schema that the request offers cannot be used: {}.",
                    fault.message
                ),
            )),
        }
    }
    findings
}

fn not_asked(patterns: usize) -> Option<Finding> {
    (patterns > 0).then(|| Finding {
        kind: FindingKind::Observed,
        ..Finding::no(format!("{OFFERED}: {patterns} patterns not asked"), "")
    })
}

/// A library that fails on some schema must not let a call through, nor end the connection.
fn judge(schema: &Schema, arguments: &Json, rule: &str) -> Option<Finding> {
    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        judge_in_bounds(schema, arguments)
    }));
    let unavailable = |message: &str| Finding {
        kind: FindingKind::Unavailable,
        ..Finding::no(rule, message)
    };
    match judged {
        Ok(Ok(None)) => None,
        Ok(Ok(Some(message))) => Some(Finding::no(rule, message)),
        Ok(Err(TooMuch)) => Some(unavailable(
            "The arguments are too much to be checked by the tool's schema.",
        )),
        Err(_) => Some(unavailable("The tool's schema could not be asked.")),
    }
}

/// The arguments with this schema would take longer, or nest deeper, than we grant.
struct TooMuch;

fn judge_in_bounds(schema: &Schema, arguments: &Json) -> Result<Option<String>, TooMuch> {
    if !schema.has_bounds_for(arguments) {
        return Err(TooMuch);
    }
    let Some(instance) = arguments.to_value() else {
        return Ok(Some(
            "A number in the arguments is too large for the tool's schema.".to_owned(),
        ));
    };
    if schema.validator().is_valid(&instance) {
        return Ok(None);
    }
    if !schema.explains() {
        return Ok(Some(
            "The arguments do not fit the tool's schema.".to_owned(),
        ));
    }
    Ok(schema.validator().validate(&instance).err().map(|error| {
        let place = clean_pointer(error.instance_path().as_str());
        let place = if place.is_empty() {
            "the top".to_owned()
        } else {
            place
        };
        format!(
            "The arguments do not fit the tool's schema at {place}: {}.",
            reason(error.kind())
        )
    }))
}

/// What a keyword asks for, with names of members but never a value.
fn reason(kind: &ValidationErrorKind) -> String {
    let first = |names: &[String]| {
        names
            .first()
            .map(|name| clean_pointer(name))
            .unwrap_or_default()
    };
    match kind {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().map(clean_pointer).unwrap_or_default();
            format!("{name:?} is required")
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            format!("{:?} is not a member it may have", first(unexpected))
        }
        kind => format!("the rule {:?} is broken", kind.keyword()),
    }
}

const CONTRACT: &str = "contract.schema";
const OFFERED: &str = "offered schema";
