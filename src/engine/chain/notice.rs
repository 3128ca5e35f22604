//! The words in which a blocked call is told, to people, to the model, and to programs.

use serde_json::{Value, json};

use super::Block;

/// The text that stands in the answer in place of the blocked calls. Names code and tool; can
/// be shown to a person and fed back to the model.
pub fn notice(blocks: &[Block], decision: &str) -> String {
    let reasons: Vec<String> = blocks
        .iter()
        .map(|block| format!("{} ({}): {}", block.tool, block.code, block.message))
        .collect();
    format!(
        "Blocked by Tallygate: {} Decision {decision}.",
        reasons.join(" ")
    )
}

/// The `guard` object beside what was replaced, for programs.
pub fn guard_object(blocks: &[Block], policy: &str, decision: &str) -> Value {
    let Some(first) = blocks.first() else {
        return Value::Null;
    };
    json!({ "code": first.code, "rule": first.rule, "policy": policy, "decision": decision })
}
