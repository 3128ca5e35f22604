//! Layer 6: are the values plausible? Valid is not the same as plausible.
//!
//! A rule speaks of one place. What it asks of a list, it asks of each element. A place that is
//! missing or null breaks the rule, unless the rule says `required = false`.

mod hosts;
mod paths;
mod rule;
#[cfg(test)]
mod tests;

pub use self::{
    hosts::HostPattern,
    paths::is_plain as is_plain_path,
    rule::{ArgumentRule, Bound, Conditions, Scalar, WholePattern},
};
use super::{CallGuard, Content, Finding, FindingKind, Json, Proposal, pointer::Found};

pub(super) const CODE: &str = "argument_denied";

pub(super) fn ask(guard: &CallGuard, proposal: &Proposal<'_>) -> Vec<Finding> {
    let Some(contract) = guard.contracts.find(&proposal.tool) else {
        return Vec::new();
    };
    let finding = |(index, rule): (usize, &ArgumentRule)| {
        let (member, reason) = match &proposal.content {
            Ok(Content::Json(arguments)) => judge(rule, arguments)?,
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

/// The member of the rule that is broken, and how.
fn judge(rule: &ArgumentRule, arguments: &Json) -> Option<(&'static str, String)> {
    match rule.at.find(arguments) {
        Found::Nothing | Found::Value(Json::Null) => {
            rule.required.then(|| ("required", "is missing".to_owned()))
        }
        Found::Ambiguous => Some(("at", "stands there in another spelling".to_owned())),
        Found::Value(value) => rule.must.breach(value),
    }
}
