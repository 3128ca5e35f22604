//! Layer 8: does the run go round in circles?

use super::{CallGuard, Finding, Proposal, judge::digest};
use crate::engine::run::{Made, Stop};

pub const CODE: &str = "loop_detected";

pub(super) fn ask(guard: &CallGuard, proposal: &Proposal<'_>) -> Vec<Finding> {
    let Some(run) = guard.facts.run.as_ref().filter(|run| run.looks_for_loops()) else {
        return Vec::new();
    };
    let contract = guard.contracts.find(&proposal.tool);
    if contract.is_some_and(|contract| contract.pollable) {
        return Vec::new();
    }
    let call = Made {
        tool: proposal.tool.clone(),
        digest: digest(proposal),
    };
    let no = |stop: Stop| Finding::no(stop.rule, stop.message);
    run.check_loops(&call).err().map(no).into_iter().collect()
}
