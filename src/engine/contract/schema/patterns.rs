//! The patterns of a schema that a request offers: what matching them may cost, and which of
//! them are left out.
//!
//! Many schema libraries write look-arounds, as for e-mail addresses. They would need an engine
//! that a text can keep busy without end, and calls must not fail for them.

use serde_json::{Value, json};

use super::compile::{SchemaFault, build_offered, fault};

/// What was found in a schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Patterns {
    /// How many the engine cannot have, or only at too high a cost.
    pub left_out: usize,
    /// States that the others have together: what one byte of text may cost at worst.
    pub states: usize,
    seen: usize,
    translated: usize,
}

/// A compiled pattern may have this size, in bytes. Larger ones are left out.
pub(super) const MAX_COMPILED: usize = 16 << 10;
const SMALL_COMPILED: usize = 4 << 10;
/// A state of a compiled pattern has about this size.
const STATE: usize = 32;
/// More patterns in one schema are refused.
const MAX_PATTERNS: usize = 256;
/// So many patterns are tried once more in the spelling of JavaScript, which costs more.
const MAX_TRANSLATED: usize = 16;

impl Patterns {
    /// Takes the patterns out of the schema that are not to be asked.
    ///
    /// # Errors
    /// There are too many.
    pub fn weigh(schema: &mut Value) -> Result<Self, SchemaFault> {
        let mut patterns = Self::default();
        patterns.walk(schema);
        match patterns.seen > MAX_PATTERNS {
            true => Err(fault(format!("it has more than {MAX_PATTERNS} patterns"))),
            false => Ok(patterns),
        }
    }

    fn walk(&mut self, schema: &mut Value) {
        match schema {
            Value::Array(items) => items.iter_mut().for_each(|item| self.walk(item)),
            Value::Object(members) => {
                if let Some(Value::String(pattern)) = members.get("pattern")
                    && !self.takes(pattern)
                {
                    members.shift_remove("pattern");
                    self.left_out += 1;
                }
                if let Some(Value::Object(by_pattern)) = members.get("patternProperties") {
                    // Left out they would turn what they allow into what is not allowed: one
                    // that the engine cannot have makes the schema one that cannot be used.
                    by_pattern
                        .keys()
                        .for_each(|pattern| _ = self.takes(pattern));
                }
                members.values_mut().for_each(|member| self.walk(member));
            }
            _ => {}
        }
    }

    /// Whether the engine can have the pattern, whose states are then counted.
    fn takes(&mut self, pattern: &str) -> bool {
        self.seen += 1;
        if self.seen > MAX_PATTERNS {
            return false;
        }
        let fits = |limit| {
            regex::RegexBuilder::new(pattern)
                .size_limit(limit)
                .build()
                .is_ok()
        };
        if fits(SMALL_COMPILED) {
            self.states += SMALL_COMPILED / STATE;
            return true;
        }
        let taken = fits(MAX_COMPILED) || self.translates(pattern);
        if taken {
            self.states += MAX_COMPILED / STATE;
        }
        taken
    }

    /// JavaScript writes some things otherwise, which the schema library translates.
    fn translates(&mut self, pattern: &str) -> bool {
        self.translated += 1;
        self.translated <= MAX_TRANSLATED && build_offered(&json!({ "pattern": pattern })).is_ok()
    }
}
