//! Layer 3: does the policy allow the tool, by its name or by the scope of its contract?

use super::{CallGuard, Finding, Proposal, wrapper};
use crate::engine::policy::{ALLOW, DENY};

pub const CODE: &str = "tool_not_allowlisted";

pub(super) fn ask(guard: &CallGuard, proposal: &Proposal<'_>) -> Vec<Finding> {
    // What a wrapper does is what the calls in it do, and they are asked one by one. MCP servers
    // were judged by their hosts when the request offered them; a call names none.
    let elsewhere = wrapper::is_bare(guard, proposal)
        || (proposal.tool == "type:mcp" && guard.offered.has_type("mcp"));
    match guard.rules.rule_against(&guard.contracts, &proposal.tool) {
        Some(DENY) => vec![Finding::no(DENY, "This key's policy denies this tool.")],
        Some(_) if !elsewhere => {
            let message = "This key's policy does not allow this tool.";
            vec![Finding::no(ALLOW, message)]
        }
        _ => Vec::new(),
    }
}
