//! The words in which a blocked call is told, to people, to the model, and to programs.

use serde_json::{Value, json};

use super::{Block, approval};

/// The text that stands in the answer in place of the blocked calls. Names code and tool; can
/// be shown to a person and fed back to the model.
pub fn notice(blocks: &[Block], decision: &str) -> String {
    let reasons: Vec<String> = blocks
        .iter()
        .map(|block| format!("\"{}\" ({}): {}", block.tool, block.code, block.message))
        .collect();
    let begun = match blocks.iter().all(|block| block.code == approval::CODE) {
        true => "Held by Tallygate",
        false => "Blocked by Tallygate",
    };
    format!("{begun}: {} Decision {decision}.", reasons.join(" "))
}

/// The `guard` object beside what was replaced, for programs. `policy` is `id@version`. A tool's
/// name stands in the text alone.
pub fn guard_object(blocks: &[Block], policy: &str, decision: &str) -> Value {
    let Some(first) = blocks.first() else {
        return Value::Null;
    };
    let (policy, version) = match policy.rsplit_once('@') {
        Some((id, version)) => (id, version.parse::<u32>().ok()),
        None => (policy, None),
    };
    let mut guard = json!({
        "code": first.code,
        "rule": first.rule,
        "policy": policy,
        "version": version,
        "decision": decision,
    });
    let approvals: Vec<&str> = blocks
        .iter()
        .filter_map(|b| b.approval.as_deref())
        .collect();
    if let (false, Some(guard)) = (approvals.is_empty(), guard.as_object_mut()) {
        guard.insert("approvals".to_owned(), approvals.into());
    }
    guard
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::names::clean_name;

    fn block(tool: &str) -> Block {
        Block {
            code: "tool_not_allowlisted",
            tool: clean_name(tool),
            rule: "tools.allow".to_owned(),
            message: "This key's policy does not allow this tool.".to_owned(),
            approval: None,
        }
    }

    #[test]
    fn the_notice_names_tool_code_reason_and_decision() {
        assert_eq!(
            notice(&[block("delete_account"), block("pay")], "dec_1"),
            "Blocked by Tallygate: \"delete_account\" (tool_not_allowlisted): This key's policy \
             does not allow this tool. \"pay\" (tool_not_allowlisted): This key's policy does not \
             allow this tool. Decision dec_1."
        );
    }

    #[test]
    fn programs_get_the_parts() {
        assert_eq!(
            guard_object(&[block("pay")], "basic@3", "dec_1"),
            json!({
                "code": "tool_not_allowlisted", "rule": "tools.allow",
                "policy": "basic", "version": 3, "decision": "dec_1",
            })
        );
        assert_eq!(guard_object(&[], "basic@3", "dec_1"), Value::Null);
    }
}
