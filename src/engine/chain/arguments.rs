//! Layer 6: are the values plausible? Valid is not the same as plausible.
//!
//! A rule speaks of one place. What it asks of a list, it asks of each element. A place that is
//! missing or null breaks the rule, unless the rule says `required = false`.

use super::{CallGuard, Content, Finding, FindingKind, Proposal};
use crate::engine::contract::ArgumentRule;

pub const CODE: &str = "argument_denied";

pub(super) fn ask(guard: &CallGuard, proposal: &Proposal<'_>) -> Vec<Finding> {
    let Some(contract) = guard.contracts.find(&proposal.tool) else {
        return Vec::new();
    };
    let finding = |(index, rule): (usize, &ArgumentRule)| {
        let (member, reason) = match &proposal.content {
            Ok(Content::Json(arguments)) => rule.breach(arguments)?,
            Ok(Content::Text) | Err(_) => ("at", "cannot be looked for in free text".to_owned()),
        };
        let kind = if rule.observe {
            FindingKind::Observed
        } else {
            FindingKind::No
        };
        let name = format!("contract.arguments[{index}].{member}");
        let message = format!("The argument {} {reason}.", rule.at);
        Some(Finding {
            kind,
            ..Finding::no(name, message)
        })
    };
    contract
        .arguments
        .iter()
        .enumerate()
        .filter_map(finding)
        .collect()
}
