//! How a refused offer is told: which tool, by which rule, and what would be allowed.

use std::fmt::Write as _;

use super::{Bench, Complaint, DENY, OfferDenied};
use crate::engine::{names::clean_name, policy::Pattern};

/// How many names a message tells; the rest it counts.
const TOLD: usize = 8;

impl Bench<'_> {
    /// Names the first tool that is not allowed, the others, and what is.
    pub fn refusal(&self, first: &Complaint<'_>, gone: &[bool]) -> OfferDenied {
        let Complaint { tool, rule } = *first;
        let param = self.offers.param_of(tool);
        let name = clean_name(&tool.name);
        let family = if tool.is_hosted() {
            "which comes from the provider and so is allowed by its name only"
        } else {
            "a tool of the client"
        };
        let mut message = format!(
            "The request offers {name:?}, {family}; this key's policy {} it ({rule}).",
            says(rule)
        );
        let refused = self
            .offers
            .tools
            .iter()
            .zip(gone)
            .filter(|(_, gone)| **gone);
        let others: Vec<String> = refused
            .skip(1)
            .map(|(tool, _)| clean_name(&tool.name))
            .collect();
        if !others.is_empty() {
            let _ = write!(message, " Nor may it offer {}.", told(others.into_iter()));
        }
        let _ = write!(
            message,
            " {} Take it out of {param:?}, or ask the operator to allow {name:?}.",
            self.what_is_allowed(),
        );
        OfferDenied {
            code: first.code(),
            rule,
            message,
            param,
        }
    }

    /// Names a tool that the request's choice cannot do without, be it named there or not.
    pub fn choice_refusal(&self, needed: &Complaint<'_>, by_name: bool) -> OfferDenied {
        let Complaint { tool, rule } = *needed;
        let param = self.offers.choice.member.unwrap_or("tool_choice");
        let name = clean_name(&tool.name);
        let demand = if by_name {
            format!("asks for {name:?}, but")
        } else {
            format!("demands a call, but nothing is left to call: {name:?} was taken out, since")
        };
        let message = format!(
            "The member {param:?} {demand} this key's policy {} it ({rule}). {} Choose another \
             tool, or leave the choice to the model.",
            says(rule),
            self.what_is_allowed(),
        );
        OfferDenied {
            code: needed.code(),
            rule,
            message,
            param,
        }
    }

    fn what_is_allowed(&self) -> String {
        match &self.rules.allow {
            None => "Allowed is every tool of the client that tools.deny does not name.".to_owned(),
            Some(allow) if allow.is_empty() => "No tool is allowed.".to_owned(),
            Some(allow) => format!("Allowed: {}.", told(allow.iter().map(pattern_text))),
        }
    }
}

fn says(rule: &str) -> &'static str {
    if rule == DENY {
        "denies"
    } else {
        "does not allow"
    }
}

fn pattern_text(pattern: &Pattern) -> String {
    match pattern {
        Pattern::Exact(name) => name.to_string(),
        Pattern::Prefix(stem) => format!("{stem}*"),
    }
}

/// The first names, and how many more there are.
fn told(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(TOLD);
    let mut text = names.take(TOLD).collect::<Vec<_>>().join(", ");
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}
