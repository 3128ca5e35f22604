//! Layer 9: must a person decide?

use super::{CallGuard, Finding, FindingKind, Proposal};

pub const CODE: &str = "needs_human_approval";

pub(super) fn ask(guard: &CallGuard, proposal: &Proposal<'_>) -> Vec<Finding> {
    let rule = guard
        .rules
        .approval_rule(&guard.contracts, &proposal.tool, guard.facts.tainted);
    let pause = |rule: &str| Finding {
        kind: FindingKind::Pause,
        ..Finding::no(rule, "A person must decide on this call.")
    };
    rule.map(pause).into_iter().collect()
}
