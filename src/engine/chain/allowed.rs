//! Layer 3: does the policy allow the tool, by its name or by the scope of its contract?

use super::{CallGuard, Finding, Proposal, wrapper};

pub(super) const CODE: &str = "tool_not_allowlisted";

pub(super) fn ask(guard: &CallGuard, proposal: &Proposal<'_>) -> Vec<Finding> {
    let (rules, contracts) = (&guard.rules, &guard.contracts);
    if rules.denies(contracts, &proposal.tool) {
        let message = "This key's policy denies this tool.";
        return vec![Finding::no("tools.deny", message)];
    }
    // What a wrapper does is what the calls in it do, and they are asked one by one. MCP servers
    // were judged by their hosts when the request offered them; a call names none.
    let elsewhere = wrapper::is_bare(guard, proposal)
        || (proposal.tool == "type:mcp" && guard.offered.has_type("mcp"));
    if elsewhere || rules.allows(contracts, &proposal.tool) {
        return Vec::new();
    }
    let message = "This key's policy does not allow this tool.";
    vec![Finding::no("tools.allow", message)]
}
