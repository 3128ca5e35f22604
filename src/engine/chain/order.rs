//! Layer 7: does the call come in an order, and as often, as the tool's contract lets it in one
//! run?

use super::{CallGuard, Finding, Proposal};

pub const CODE: &str = "sequence_violation";

pub(super) fn ask(guard: &CallGuard, proposal: &Proposal<'_>) -> Vec<Finding> {
    let contract = guard.contracts.find(&proposal.tool);
    let (Some(run), Some(contract)) = (&guard.facts.run, contract) else {
        return Vec::new();
    };
    let checked = run.check_order(&contract.order, guard.facts.tainted, &proposal.tool);
    let no = |stop: crate::engine::run::Stop| Finding::no(stop.rule, stop.message);
    checked.err().map(no).into_iter().collect()
}
