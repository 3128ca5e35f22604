//! Layer 4: do the arguments that name a tenant name the authenticated one? Missing is no.

use super::{CallGuard, Content, Finding, Proposal};
use crate::engine::json::{Found, Json, Pointer};

pub const CODE: &str = "cross_tenant_denied";

pub(super) fn ask(guard: &CallGuard, proposal: &Proposal<'_>) -> Vec<Finding> {
    let Some(contract) = guard.contracts.find(&proposal.tool) else {
        return Vec::new();
    };
    let finding = |pointer: &Pointer| {
        let problem = match &proposal.content {
            Ok(Content::Json(arguments)) => problem(pointer.find(arguments), &guard.tenant)?,
            Ok(Content::Text) | Err(_) => "cannot be looked for in free text",
        };
        Some(Finding::no(
            format!("contract.tenant_arguments {pointer}"),
            format!("The argument {pointer} must be this key's tenant and {problem}."),
        ))
    };
    contract
        .tenant_arguments
        .iter()
        .filter_map(finding)
        .collect()
}

fn problem(found: Found<'_>, tenant: &str) -> Option<&'static str> {
    match found {
        Found::Value(Json::String(named)) if named == tenant => None,
        Found::Value(Json::String(_)) => Some("is another"),
        Found::Value(_) => Some("is no text"),
        Found::Nothing => Some("is missing"),
        Found::Ambiguous => Some("stands there in another spelling"),
    }
}
