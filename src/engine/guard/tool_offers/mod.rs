//! May this key offer the tools that a request offers? Decided here is also what only the
//! request can tell: tools that run at the provider are over before we see what they did.

use std::{borrow::Cow, fmt::Write as _};

use crate::engine::{
    call::offers::{Asks, Companions, Offers, Patch, Server, Tool, ToolKind},
    chain::{Offered, clean_name},
    policy::{Contracts, OnOffer, Pattern, ToolRules},
    record::OfferNotes,
};

pub const NOT_ALLOWLISTED: &str = "tool_not_allowlisted";
pub const HOSTED_DENIED: &str = "hosted_tool_denied";
/// How many names a message tells; the rest it counts.
const TOLD: usize = 8;
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
    let mut gone = vec![false; offers.tools.len()];
    for (tool, gone) in offers.tools.iter().zip(gone.iter_mut()) {
        match bench.complaint(tool) {
            Some(found) if rules.observes(found.code()) => {
                note(&mut admitted.notes.observed, &tool.name);
            }
            Some(_) => *gone = true,
            None => {}
        }
    }
    if gone.contains(&true) {
        if rules.on_offer == OnOffer::Refuse {
            return Err(bench.refusal(&gone));
        }
        admitted.patches = offers.strip(body, &mut gone, companions);
        bench.check_choice(&gone)?;
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

/// What speaks against a tool.
enum Complaint {
    /// The rule that says no to a tool that the client runs.
    Client(&'static str),
    /// The same for a type or a server.
    Hosted(&'static str),
}

impl Complaint {
    fn code(&self) -> &'static str {
        match self {
            Self::Client(_) => NOT_ALLOWLISTED,
            Self::Hosted(_) => HOSTED_DENIED,
        }
    }

    fn rule(&self) -> &'static str {
        let (Self::Client(rule) | Self::Hosted(rule)) = self;
        rule
    }
}

impl Bench<'_> {
    fn complaint(&self, tool: &Tool) -> Option<Complaint> {
        match &tool.kind {
            ToolKind::Function { .. } | ToolKind::Custom { .. } => {
                self.rule_against(&tool.name).map(Complaint::Client)
            }
            ToolKind::Type => self.rule_against(&tool.name).map(Complaint::Hosted),
            ToolKind::Server(index) => {
                let server = self.offers.servers.get(*index);
                let rule = server.map_or(Some(ALLOW), |server| self.rule_against_server(server));
                rule.map(Complaint::Hosted)
            }
        }
    }

    fn rule_against(&self, name: &str) -> Option<&'static str> {
        if self.rules.denies(self.contracts, name) {
            Some(DENY)
        } else {
            (!self.rules.allows(self.contracts, name)).then_some(ALLOW)
        }
    }

    /// A server passes if its name is allowed, or if the request limits it to tools that are
    /// (`mcp:host/tool`). A denied tool of it is denied under its own name, too.
    fn rule_against_server(&self, server: &Server) -> Option<&'static str> {
        let denies = |name: &str| self.rules.denies(self.contracts, name);
        let allows = |name: &str| self.rules.allows(self.contracts, name);
        let tools = server.tools.as_deref().unwrap_or_default();
        let full = |tool: &str| format!("{}/{tool}", server.name);
        let denied = |tool: &Box<str>| denies(tool) || denies(&full(tool));
        if denies(&server.name) || tools.iter().any(denied) {
            return Some(DENY);
        }
        let each = !tools.is_empty() && tools.iter().all(|tool| allows(&full(tool)));
        (!each && !allows(&server.name)).then_some(ALLOW)
    }

    /// Adds a tool that stays to what calls are judged by.
    fn admit(&self, admitted: &mut Admitted, tool: &Tool, body: &[u8]) -> Result<(), OfferDenied> {
        match &tool.kind {
            ToolKind::Function { schema } | ToolKind::Custom { schema } => {
                let custom = matches!(tool.kind, ToolKind::Custom { .. });
                let schema = schema.clone().and_then(|span| body.get(span));
                let schema = schema.and_then(|bytes| std::str::from_utf8(bytes).ok());
                let offered = &mut admitted.offered;
                offered.add(tool.namespace(), tool.bare(), custom, schema);
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

    /// Names the first tool that is not allowed, and what is.
    fn refusal(&self, gone: &[bool]) -> OfferDenied {
        let refused = self
            .offers
            .tools
            .iter()
            .zip(gone)
            .filter(|(_, gone)| **gone);
        let names: Vec<&str> = refused.clone().map(|(tool, _)| &*tool.name).collect();
        let first = refused.map(|(tool, _)| tool).next();
        let complaint = first.and_then(|tool| self.complaint(tool));
        let code = complaint.as_ref().map_or(NOT_ALLOWLISTED, Complaint::code);
        let rule = complaint.as_ref().map_or(ALLOW, Complaint::rule);
        let param = first.map_or("tools", |tool| self.offers.param_of(tool));
        let name = names.first().copied().unwrap_or_default();
        let mut message = match complaint {
            Some(Complaint::Hosted(_)) => format!(
                "The request offers {:?}, which runs at the provider, where Tallygate cannot \
                 judge what it does; ",
                clean_name(name)
            ),
            _ => format!("The request offers the tool {:?}; ", clean_name(name)),
        };
        let says = if rule == DENY {
            "denies it"
        } else {
            "does not allow it"
        };
        let _ = write!(message, "this key's policy {says} ({rule}).");
        if names.len() > 1 {
            let others = names.get(1..).unwrap_or_default();
            let _ = write!(
                message,
                " Nor may it offer {}.",
                told(others.iter().map(|n| clean_name(n)))
            );
        }
        let _ = write!(
            message,
            " {} Take it out of {param:?}, or ask the operator to allow {:?}.",
            self.what_is_allowed(),
            clean_name(name)
        );
        OfferDenied {
            code,
            rule,
            message,
            param,
        }
    }

    fn what_is_allowed(&self) -> String {
        match &self.rules.allow {
            None => "Every function is allowed that tools.deny does not name; what runs at the \
                     provider must be named in tools.allow."
                .to_owned(),
            Some(allow) if allow.is_empty() => "No tool is allowed.".to_owned(),
            Some(allow) => format!("Allowed: {}.", told(allow.iter().map(pattern_text))),
        }
    }

    /// A choice that needs what was taken out cannot be kept, and without it the request means
    /// something else.
    fn check_choice(&self, gone: &[bool]) -> Result<(), OfferDenied> {
        let choice = &self.offers.choice;
        let mut taken = self
            .offers
            .tools
            .iter()
            .zip(gone)
            .filter(|(_, gone)| **gone);
        let needed = taken.find(|(tool, _)| choice.names(tool, self.offers));
        let callable = |(tool, gone): (&Tool, &bool)| {
            !gone && matches!(self.offers.param_of(tool), "tools" | "functions")
        };
        let nothing_left = choice.forces && !self.offers.tools.iter().zip(gone).any(callable);
        let name = match needed {
            Some((tool, _)) => &*tool.name,
            None if nothing_left => self.offers.tools.first().map_or("", |tool| &*tool.name),
            None => return Ok(()),
        };
        let hosted = name.starts_with("type:") || name.starts_with("mcp:");
        let rule = self.rule_against(name).unwrap_or(ALLOW);
        Err(OfferDenied {
            code: if hosted {
                HOSTED_DENIED
            } else {
                NOT_ALLOWLISTED
            },
            rule,
            message: format!(
                "The request's tool choice needs {:?}, which this key's policy does not let it \
                 offer ({rule}). {} Choose another tool, or leave the choice to the model.",
                clean_name(name),
                self.what_is_allowed()
            ),
            param: choice.member.unwrap_or("tool_choice"),
        })
    }
}

/// Records a name, as far as names are of use there.
fn note(names: &mut Vec<String>, name: &str) {
    if names.len() < NOTED {
        names.push(clean_name(name));
    }
}

const ALLOW: &str = "tools.allow";
const DENY: &str = "tools.deny";

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
