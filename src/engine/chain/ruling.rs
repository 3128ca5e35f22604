//! What people decided about the paused calls of one answer.
//!
//! Each ruling lets one call pass, or not: that of its tool with exactly its arguments. A call
//! for which there is none stays blocked.

use super::{Block, Judgement, approval};
use crate::engine::names::clean_name;

/// What became of one approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// `apr_…`.
    pub approval: String,
    pub tool: String,
    /// SHA-256 of the canonical arguments, in hexadecimal.
    pub digest: String,
    pub outcome: Ruled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruled {
    Approve,
    Reject {
        reason: String,
    },
    /// Nobody decided in time.
    Expire,
    /// Nobody has decided yet. Holds how to do it.
    Wait {
        place: String,
    },
    /// Approved, and another delivery has used that up.
    Spent,
}

impl Ruled {
    /// As the state of an approval is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Approve => "approved",
            Self::Reject { .. } => "rejected",
            Self::Expire => "expired",
            Self::Wait { .. } => "pending",
            Self::Spent => "used",
        }
    }
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paused {
    pub tool: String,
    pub digest: String,
    /// As the model wrote them; for whoever has to decide.
    pub arguments: String,
    /// The rule that wants a decision, as the configuration names it.
    pub rule: String,
}

/// The rulings for one pass over an answer; each is used once.
#[derive(Debug)]
pub struct Docket(Option<Vec<Option<Ruling>>>);

impl Docket {
    /// `None`: nobody was asked yet, and paused calls wait.
    pub fn new(rulings: Option<&[Ruling]>) -> Self {
        Self(rulings.map(|rulings| rulings.iter().cloned().map(Some).collect()))
    }

    /// Puts the ruling into a paused judgement; gives back what still has to wait.
    pub fn apply(&mut self, judgement: &mut Judgement, arguments: &str) -> Option<Paused> {
        let rule = judgement.paused.clone()?;
        let Some(rulings) = &mut self.0 else {
            return Some(Paused {
                tool: judgement.tool.clone(),
                digest: judgement.digest.clone(),
                arguments: arguments.to_owned(),
                rule,
            });
        };
        let fits = |ruling: &Option<Ruling>| {
            let fits = |r: &Ruling| r.tool == judgement.tool && r.digest == judgement.digest;
            ruling.as_ref().is_some_and(fits)
        };
        let slot = rulings.iter_mut().find(|slot| fits(slot));
        let ruling = slot.and_then(Option::take);
        judgement.paused = None;
        judgement.blocked = ruling_block(&judgement.tool, rule, ruling.as_ref());
        judgement.approval = ruling.map(|ruling| ruling.approval);
        None
    }
}

/// Why the call does not pass, if so.
fn ruling_block(tool: &str, rule: String, ruling: Option<&Ruling>) -> Option<Block> {
    let tool = clean_name(tool);
    let id = ruling.map_or("", |ruling| ruling.approval.as_str());
    let message = match ruling.map(|ruling| &ruling.outcome) {
        Some(Ruled::Approve) => return None,
        Some(Ruled::Reject { reason }) if reason.is_empty() => {
            format!("A person rejected this call ({id}).")
        }
        Some(Ruled::Reject { reason }) => {
            format!("A person rejected this call ({id}): {}", plain(reason))
        }
        Some(Ruled::Expire) => format!("Nobody approved this call in time ({id})."),
        Some(Ruled::Wait { place }) => format!(
            "Approval pending {id}: a person has to decide on this call, {place}. Send the same \
             request again to get the answer."
        ),
        Some(Ruled::Spent) => format!("The approval {id} was used by another delivery."),
        None => "A person must decide on this call, and none was asked.".to_owned(),
    };
    Some(Block {
        code: approval::CODE,
        tool,
        rule,
        message,
        approval: ruling.map(|ruling| ruling.approval.clone()),
    })
}

/// A reason as one line that ends.
fn plain(reason: &str) -> String {
    let line: String = reason
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .take(LONGEST_REASON)
        .collect();
    let line = line.trim();
    if line.ends_with(['.', '!', '?']) {
        line.to_owned()
    } else {
        format!("{line}.")
    }
}

/// In characters.
const LONGEST_REASON: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn paused(tool: &str, digest: &str) -> Judgement {
        Judgement {
            tool: tool.to_owned(),
            results: Vec::new(),
            arguments: "{}".to_owned(),
            digest: digest.to_owned(),
            blocked: None,
            paused: Some("contract.approval".to_owned()),
            approval: None,
            taken: None,
            inner: Vec::new(),
        }
    }

    fn ruling(tool: &str, digest: &str, outcome: Ruled) -> Ruling {
        Ruling {
            approval: "apr_1".to_owned(),
            tool: tool.to_owned(),
            digest: digest.to_owned(),
            outcome,
        }
    }

    #[test]
    fn one_approval_lets_one_call_pass() {
        let mut docket = Docket::new(Some(&[ruling("pay", "a", Ruled::Approve)]));
        let (mut first, mut second) = (paused("pay", "a"), paused("pay", "a"));
        assert_eq!(docket.apply(&mut first, "{}"), None);
        assert_eq!(docket.apply(&mut second, "{}"), None);
        assert_eq!(first.blocked, None);
        assert_eq!(first.approval.as_deref(), Some("apr_1"));
        assert_eq!(second.blocked.unwrap().code, "needs_human_approval");
    }

    #[test]
    fn other_arguments_or_another_tool_are_another_approval() {
        for (tool, digest) in [("pay", "b"), ("refund", "a")] {
            let mut docket = Docket::new(Some(&[ruling("pay", "a", Ruled::Approve)]));
            let mut call = paused(tool, digest);
            docket.apply(&mut call, "{}");
            assert!(call.blocked.is_some(), "{tool} {digest}");
        }
    }

    #[test]
    fn before_anybody_was_asked_the_call_waits() {
        let mut call = paused("pay", "a");
        let waits = Docket::new(None).apply(&mut call, "{\"x\":1}").unwrap();
        assert_eq!(waits.arguments, "{\"x\":1}");
        assert!(call.blocked.is_none() && call.paused.is_some());
    }

    #[test]
    fn every_other_outcome_blocks_and_says_why() {
        let cases = [
            (
                Ruled::Reject {
                    reason: "too\nmuch".into(),
                },
                "rejected this call (apr_1): too much.",
            ),
            (
                Ruled::Reject {
                    reason: String::new(),
                },
                "rejected this call (apr_1).",
            ),
            (Ruled::Expire, "Nobody approved"),
            (
                Ruled::Wait {
                    place: "in the console".into(),
                },
                "Approval pending apr_1",
            ),
            (Ruled::Spent, "used by another delivery"),
        ];
        for (outcome, words) in cases {
            let mut docket = Docket::new(Some(&[ruling("pay", "a", outcome)]));
            let mut call = paused("pay", "a");
            docket.apply(&mut call, "{}");
            let message = call.blocked.unwrap().message;
            assert!(message.contains(words), "{message}");
        }
    }
}
