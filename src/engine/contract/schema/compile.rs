//! From the text of a schema to something that can be asked, within bounds.

use jsonschema::{PatternOptions, ValidationOptions, Validator};
use serde_json::Value;

use super::{
    patterns::{MAX_COMPILED, Patterns},
    shape::Shape,
};
use crate::engine::json::{Extent, Fault, Json};

/// A schema, ready to be asked.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    shape: Shape,
    /// Only those of clients are weighed; an operator's are what was asked for.
    patterns: Patterns,
}

/// Why a schema cannot be used. Ends without a full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaFault {
    /// A JSON Pointer into the schema, empty for the whole.
    pub place: String,
    pub message: String,
}

/// Steps that judging one call may take: values of the schema, with what each reference leads to
/// in its place, times values of the arguments. A step is some nanoseconds, so this is some tens
/// of milliseconds.
const MAX_WORK: usize = 10_000_000;
/// The same for patterns: their states times the bytes of all texts.
const MAX_MATCHING: usize = 200_000_000;
/// How deep a schema that refers to itself may take us: its own depth times the arguments'.
const MAX_RECURSION: usize = 1_024;
/// Longer schemas are not taken from requests, in bytes.
const MAX_OFFERED_BYTES: usize = 64 << 10;
/// A compiled pattern of the operator's may have this size, in bytes.
const MAX_PATTERN: usize = 1 << 20;

impl Schema {
    /// A schema of the operator's own: formats count, and nothing in it may be without effect.
    ///
    /// # Errors
    /// What cannot be used, and where.
    pub fn compile(text: &str) -> Result<Self, SchemaFault> {
        let (value, shape) = read(text)?;
        let options = jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN))
            .should_validate_formats(true)
            .should_ignore_unknown_formats(false);
        Ok(Self {
            validator: build(&options, &value)?,
            shape,
            patterns: Patterns::default(),
        })
    }

    /// A schema that a request offers.
    ///
    /// # Errors
    /// As `compile`.
    pub fn offered(text: &str) -> Result<Self, SchemaFault> {
        if text.len() > MAX_OFFERED_BYTES {
            return Err(fault("it is too large (at most 64 KiB)"));
        }
        let (mut value, shape) = read(text)?;
        let patterns = Patterns::weigh(&mut value)?;
        // What is wrong with it would be told in the client's own words.
        let unusable = |_| fault("it is no valid JSON Schema");
        Ok(Self {
            validator: build_offered(&value).map_err(unusable)?,
            shape,
            patterns,
        })
    }

    pub fn validator(&self) -> &Validator {
        &self.validator
    }

    /// How many patterns are not asked.
    pub fn left_out(&self) -> usize {
        self.patterns.left_out
    }

    /// Whether judging these arguments is bounded in work and depth.
    pub fn has_bounds_for(&self, arguments: &Json) -> bool {
        let Extent {
            values,
            depth,
            text,
        } = arguments.extent();
        let work = self.shape.unfolded.saturating_mul(values);
        let matching = self.patterns.states.saturating_mul(text);
        let recursion = match self.shape.cyclic {
            true => self.shape.depth.saturating_mul(depth),
            false => self.shape.depth,
        };
        work <= MAX_WORK && matching <= MAX_MATCHING && recursion <= MAX_RECURSION
    }

    /// Whether the first thing that is wrong can be looked for in bounded time.
    pub fn explains(&self) -> bool {
        !self.shape.cyclic && self.shape.unfolded <= MAX_EXPLAINED
    }
}

/// In larger ones what is wrong is not looked for: the search tries every alternative.
const MAX_EXPLAINED: usize = 10_000;

fn read(text: &str) -> Result<(Value, Shape), SchemaFault> {
    let schema = Json::parse(text).map_err(|found| fault(syntax(found)))?;
    if !matches!(schema, Json::Object(_) | Json::Bool(_)) {
        return Err(fault("it is no JSON object"));
    }
    let shape = Shape::of(&schema)?;
    let value = schema.to_value();
    Ok((
        value.ok_or_else(|| fault("it holds a number beyond all use"))?,
        shape,
    ))
}

pub(super) fn build_offered(schema: &Value) -> Result<Validator, SchemaFault> {
    let options = jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_COMPILED))
        .should_validate_formats(false);
    build(&options, schema)
}

/// A library that fails on some schema must not take the process along.
fn build(options: &ValidationOptions<'_>, schema: &Value) -> Result<Validator, SchemaFault> {
    let build = std::panic::AssertUnwindSafe(|| options.build(schema));
    match std::panic::catch_unwind(build) {
        Ok(built) => built.map_err(|error| SchemaFault {
            place: place(&error),
            message: told(&error),
        }),
        Err(_) => Err(fault("it cannot be compiled")),
    }
}

/// Where in the schema: the meta-schema finds its faults in the schema as its instance, the
/// compiler names the schema's own path.
fn place(error: &jsonschema::ValidationError<'_>) -> String {
    match error.instance_path().as_str() {
        "" => error.schema_path().as_str().to_owned(),
        place => place.to_owned(),
    }
}

fn told(error: &jsonschema::ValidationError<'_>) -> String {
    let text = error.to_string();
    if text.ends_with("is not a \"regex\"") {
        return "is no pattern that takes linear time (no look-around, no back-references)"
            .to_owned();
    }
    // What follows is advice to programmers.
    let mut text = text.split(". ").next().unwrap_or_default().to_owned();
    if let Some((at, _)) = text.char_indices().nth(MAX_TOLD) {
        text.truncate(at);
        text.push('…');
    }
    text
}

const MAX_TOLD: usize = 300;

pub(super) fn fault(message: impl Into<String>) -> SchemaFault {
    SchemaFault {
        place: String::new(),
        message: message.into(),
    }
}

fn syntax(fault: Fault) -> &'static str {
    match fault {
        Fault::Duplicate => "an object has the same member twice",
        Fault::Deep => "it nests deeper than 64 levels",
        Fault::Large => "it is larger than 1 MiB or 100000 values",
        Fault::Incomplete | Fault::Syntax | Fault::Trailing | Fault::Surrogate | Fault::Number => {
            "it is not valid JSON"
        }
    }
}
