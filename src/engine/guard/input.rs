//! May a request hold what it holds?

use crate::engine::{call::Content, policy::InputRules};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFault {
    TooLong {
        chars: u64,
        limit: u64,
    },
    /// The index of the pattern; what was found is never repeated.
    Unsupported {
        pattern: usize,
    },
}

/// # Errors
/// The first rule that says no.
pub fn judge(rules: &InputRules, content: &Content) -> Result<(), InputFault> {
    if let Some(limit) = rules.max_chars.filter(|limit| content.chars > *limit) {
        return Err(InputFault::TooLong {
            chars: content.chars,
            limit,
        });
    }
    match position(&rules.unsupported_patterns, content) {
        Some(pattern) => Err(InputFault::Unsupported { pattern }),
        None => Ok(()),
    }
}

/// `true` if a sensitive pattern was found: recorded, not refused.
pub fn is_sensitive(rules: &InputRules, content: &Content) -> bool {
    position(&rules.sensitive_patterns, content).is_some()
}

fn position(patterns: &[Box<str>], content: &Content) -> Option<usize> {
    patterns
        .iter()
        .position(|pattern| content.texts.iter().any(|text| text.contains(&**pattern)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::call::ChatRequest;

    fn content(text: &str) -> Content {
        let body =
            serde_json::json!({"model": "m", "messages": [{"role": "user", "content": text}]});
        ChatRequest::read(body.to_string().as_bytes())
            .unwrap()
            .content
    }

    #[test]
    fn length_is_counted_in_characters_exactly_at_the_edge() {
        let rules = InputRules {
            max_chars: Some(4),
            ..InputRules::default()
        };
        assert_eq!(judge(&rules, &content("\u{e9}\u{e9}\u{e9}\u{e9}")), Ok(()));
        assert_eq!(
            judge(&rules, &content("12345")),
            Err(InputFault::TooLong { chars: 5, limit: 4 })
        );
    }

    #[test]
    fn patterns_are_found_in_the_decoded_text() {
        let rules = InputRules {
            unsupported_patterns: vec!["<binary>".into()],
            sensitive_patterns: vec!["SECRET=".into()],
            ..InputRules::default()
        };
        assert_eq!(
            judge(&rules, &content("a <binary> b")),
            Err(InputFault::Unsupported { pattern: 0 })
        );
        assert!(is_sensitive(&rules, &content("SECRET=x")));
    }
}
