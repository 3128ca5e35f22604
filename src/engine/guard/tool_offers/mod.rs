//! May this key offer the tools that a request offers? Decided here is also what only the
//! request can tell: tools that run at the provider are over before we see what they did.

#[cfg(test)]
mod tests;
mod words;

use std::borrow::Cow;

use crate::engine::{
    call::offers::{Asks, Companions, Offers, Patch, Server, Tool, ToolKind},
    chain::Offered,
    contract::Contracts,
    names::clean_name,
    policy::{ALLOW, DENY, OnOffer, ToolRules},
    record::OfferNotes,
};

pub const NOT_ALLOWLISTED: &str = "tool_not_allowlisted";
pub const HOSTED_DENIED: &str = "hosted_tool_denied";
/// How rules name all MCP servers at once.
const ANY_SERVER: &str = "type:mcp";
/// How many names of a kind a record holds.
const NOTED: usize = 64;

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferDenied {
    /// `tool_not_allowlisted` or `hosted_tool_denied`.
    pub code: &'static str,
    /// The rule that says no, as the configuration names it.
    pub rule: &'static str,
    pub message: String,
    /// The member of the request.
    pub param: &'static str,
}

/// What becomes of a request that may be served.
#[derive(Debug, Default)]
pub struct Admitted {
    /// What must differ upstream.
    pub patches: Vec<Patch>,
    /// What the model will be offered.
    pub offered: Offered,
    /// What the ledger is told of it.
    pub notes: OfferNotes,
}

/// Judges every tool, by the rules and contracts that calls are judged by later.
///
/// # Errors
/// The first tool that is not allowed, if the policy refuses such requests; a choice that needs
/// a tool which had to be taken out.
pub fn judge(
    rules: &ToolRules,
    contracts: &Contracts,
    offers: &Offers,
    body: &[u8],
    companions: &impl Companions,
) -> Result<Admitted, OfferDenied> {
    let mut admitted = Admitted::default();
    let bench = Bench {
        rules,
        contracts,
        offers,
    };
    let mut gone = Vec::with_capacity(offers.tools.len());
    let mut first = None;
    for tool in &offers.tools {
        let complaint = bench.complaint(tool);
        let observed = |found: &Complaint<'_>| rules.observes(found.code());
        if complaint.as_ref().is_some_and(observed) {
            note(&mut admitted.notes.observed, &tool.name);
            gone.push(false);
        } else {
            gone.push(complaint.is_some());
            first = first.or(complaint);
        }
    }
    if let Some(first) = first {
        if rules.on_offer == OnOffer::Refuse {
            return Err(bench.refusal(&first, &gone));
        }
        admitted.patches = offers.strip(body, &mut gone, companions);
        bench.check_choice(&first, &gone)?;
    }
    for (tool, gone) in offers.tools.iter().zip(&gone) {
        if *gone {
            note(&mut admitted.notes.stripped, &tool.name);
        } else {
            bench.admit(&mut admitted, tool, body)?;
        }
    }
    Ok(admitted)
}

/// What the tools of one request are judged by.
struct Bench<'a> {
    rules: &'a ToolRules,
    contracts: &'a Contracts,
    offers: &'a Offers,
}

/// A tool, and the rule that speaks against it.
struct Complaint<'a> {
    tool: &'a Tool,
    rule: &'static str,
}

impl Complaint<'_> {
    fn code(&self) -> &'static str {
        if self.tool.is_hosted() {
            HOSTED_DENIED
        } else {
            NOT_ALLOWLISTED
        }
    }
}

impl<'a> Bench<'a> {
    fn complaint(&self, tool: &'a Tool) -> Option<Complaint<'a>> {
        let server = match tool.kind {
            ToolKind::Server(index) => self.offers.servers.get(index),
            _ => None,
        };
        let rule = match server {
            Some(server) => self.rule_against_server(server),
            None => self.rules.rule_against(self.contracts, &tool.name),
        };
        rule.map(|rule| Complaint { tool, rule })
    }

    /// A server passes if its name is allowed, or every server is (`type:mcp`), or if the request
    /// holds it to tools that are (`mcp:host/tool`). A denied tool of it is denied under its own
    /// name, too.
    fn rule_against_server(&self, server: &Server) -> Option<&'static str> {
        let denies = |name: &str| self.rules.denies(self.contracts, name);
        let allows = |name: &str| self.rules.allows(self.contracts, name);
        let tools = server.tools.as_deref().unwrap_or_default();
        let full = |tool: &str| format!("{}/{tool}", server.name);
        let denied = |tool: &str| denies(tool) || denies(&full(tool));
        if denies(&server.name) || denies(ANY_SERVER) || tools.iter().any(|tool| denied(tool)) {
            return Some(DENY);
        }
        let each = !tools.is_empty() && tools.iter().all(|tool| allows(&full(tool)));
        (!each && !allows(&server.name) && !allows(ANY_SERVER)).then_some(ALLOW)
    }

    /// Adds a tool that stays to what calls are judged by.
    fn admit(&self, admitted: &mut Admitted, tool: &Tool, body: &[u8]) -> Result<(), OfferDenied> {
        match &tool.kind {
            ToolKind::Function { schema } => {
                let schema = schema.clone().and_then(|span| body.get(span));
                let schema = schema.and_then(|bytes| std::str::from_utf8(bytes).ok());
                let offered = &mut admitted.offered;
                offered.add(tool.namespace(), tool.bare(), false, schema);
            }
            ToolKind::Custom => {
                let offered = &mut admitted.offered;
                offered.add(tool.namespace(), tool.bare(), true, None);
            }
            ToolKind::Type => {
                let kind = tool.name.strip_prefix("type:").unwrap_or_default();
                admitted.offered.add_type(kind);
            }
            ToolKind::Server(index) => {
                admitted.offered.add_type("mcp");
                if let Some(server) = self.offers.servers.get(*index) {
                    self.make_ask(admitted, tool, server)?;
                }
            }
        }
        Ok(())
    }

    /// A server whose tools run unasked would run them unjudged.
    fn make_ask(
        &self,
        admitted: &mut Admitted,
        tool: &Tool,
        server: &Server,
    ) -> Result<(), OfferDenied> {
        let Asks::Not(span) = &server.asks else {
            return Ok(());
        };
        if self.rules.on_offer == OnOffer::Refuse {
            return Err(OfferDenied {
                code: HOSTED_DENIED,
                rule: "tools.on_offer",
                message: format!(
                    "The MCP server {:?} would run calls that nobody was asked about: its \
                     require_approval is not \"always\". Tallygate judges each call before it \
                     runs. Set require_approval to \"always\", or ask the operator for \
                     tools.on_offer = \"strip\", which does so.",
                    clean_name(&server.name)
                ),
                param: self.offers.param_of(tool),
            });
        }
        admitted.patches.push(Patch {
            at: span.clone(),
            text: Cow::Borrowed("\"always\""),
        });
        note(&mut admitted.notes.made_to_ask, &server.name);
        Ok(())
    }

    /// A choice that needs what was taken out cannot be kept, and without it the request means
    /// something else.
    fn check_choice(&self, first: &Complaint<'_>, gone: &[bool]) -> Result<(), OfferDenied> {
        let choice = &self.offers.choice;
        let tools = || self.offers.tools.iter().zip(gone);
        let mut taken = tools().filter(|(_, gone)| **gone).map(|(tool, _)| tool);
        let needed = taken.find(|tool| choice.names(tool, self.offers));
        let callable = |(tool, gone): (&Tool, &bool)| {
            !gone && matches!(self.offers.param_of(tool), "tools" | "functions")
        };
        let none_left = choice.forces && !tools().any(callable);
        match needed.and_then(|tool| self.complaint(tool)) {
            Some(complaint) => Err(self.choice_refusal(&complaint, true)),
            // One that is allowed went with another in the same entry.
            None if needed.is_some() => Err(self.choice_refusal(first, true)),
            None if none_left => Err(self.choice_refusal(first, false)),
            None => Ok(()),
        }
    }
}

/// Records a name, as far as names are of use there.
fn note(names: &mut Vec<String>, name: &str) {
    if names.len() < NOTED {
        names.push(clean_name(name));
    }
}
