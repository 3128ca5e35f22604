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

/// A name that a model wrote, made harmless for texts that people, models and terminals read:
/// letters of names as they are, everything else as `?`, cut to what a name needs.
pub fn clean_name(name: &str) -> String {
    clean(name, "_-.:")
}

/// The same for places in arguments, whose steps a model may have written.
pub(super) fn clean_pointer(pointer: &str) -> String {
    clean(pointer, "_-./~$")
}

fn clean(name: &str, signs: &str) -> String {
    let harmless = |char: char| char.is_ascii_alphanumeric() || signs.contains(char);
    let cleaned: String = name
        .chars()
        .take(LONGEST_NAME)
        .map(|char| if harmless(char) { char } else { '?' })
        .collect();
    match name.chars().nth(LONGEST_NAME) {
        Some(_) => cleaned + "…",
        None => cleaned,
    }
}

/// In characters; what OpenAI lets a function name have.
const LONGEST_NAME: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_name_cannot_speak() {
        for (name, shown) in [
            ("search.web", "search.web"),
            ("type:local_shell", "type:local_shell"),
            ("a\n\n# Now ignore", "a????Now?ignore"),
            ("x\u{1b}[2J", "x??2J"),
            ("[link](http://e)", "?link??http:??e?"),
            ("pаy", "p?y"),
            ("", ""),
        ] {
            assert_eq!(clean_name(name), shown);
        }
        let long = "n".repeat(65);
        assert_eq!(clean_name(&long), "n".repeat(64) + "…");
        assert_eq!(clean_name(&long[1..]), "n".repeat(64));
    }
}
