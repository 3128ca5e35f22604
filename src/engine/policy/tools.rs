//! `[tools]` of a policy: which tools may be offered and called, and by whose leave.

use super::Pattern;
use crate::engine::contract::{Approval, Contracts, Effect};

/// `[tools]`: what a policy says of tools. `deny` wins over `allow`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolRules {
    /// Names, `prefix-*`, or scopes of contracts. `None`: every function that is offered, but no
    /// hosted type and no MCP server, which run out of our sight.
    pub allow: Option<Vec<Pattern>>,
    /// Names, `prefix-*`, scopes or effects.
    pub deny: Vec<Pattern>,
    /// Calls of tools without a `[tools.…]` contract are blocked.
    pub require_contract: bool,
    /// A person decides on each call of these: names, `prefix-*`, scopes or effects.
    pub require_approval: Vec<Pattern>,
    /// Codes of layers that judge and record, but let pass.
    pub observe: Vec<&'static str>,
    pub on_offer: OnOffer,
    pub on_block: OnBlock,
    pub batch: Batch,
}

/// What becomes of a request that offers a tool that is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnOffer {
    #[default]
    Refuse,
    /// The tool is left out of what goes upstream.
    Strip,
}

/// How a blocked call is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBlock {
    /// The reason stands in the answer in place of the call.
    #[default]
    Replace,
    Error,
}

/// What becomes of the siblings of a blocked call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Batch {
    /// They are withheld too.
    #[default]
    All,
    /// The allowed ones go on.
    Each,
}

impl ToolRules {
    /// Whether a tool may be offered and called. `name` is a tool's name (`search.web`,
    /// `namespace.name`), a type (`type:web_search`) or an MCP server (`mcp:host`).
    pub fn allows(&self, contracts: &Contracts, name: &str) -> bool {
        self.rule_against(contracts, name).is_none()
    }

    /// The list that speaks against a tool, if one does: `tools.deny` or `tools.allow`.
    pub fn rule_against(&self, contracts: &Contracts, name: &str) -> Option<&'static str> {
        if self.denies(contracts, name) {
            return Some(DENY);
        }
        (!self.lists(contracts, name)).then_some(ALLOW)
    }

    /// Whether this layer only judges and records.
    pub fn observes(&self, code: &str) -> bool {
        self.observe.contains(&code)
    }

    /// The rule by which a person decides on calls of this tool, if one does. `tainted`: data
    /// from outside stands in the conversation.
    pub fn approval_rule(
        &self,
        contracts: &Contracts,
        name: &str,
        tainted: bool,
    ) -> Option<&'static str> {
        if is_listed(&self.require_approval, contracts, name) {
            return Some("tools.require_approval");
        }
        match contracts.find(name).map(|contract| contract.approval) {
            Some(Approval::Always) => Some("contract.approval"),
            Some(Approval::WhenTainted) if tainted => Some("contract.approval"),
            _ => None,
        }
    }

    /// The deny list also catches other spellings, since a client may be less exact than we are.
    pub fn denies(&self, contracts: &Contracts, name: &str) -> bool {
        is_listed(&self.deny, contracts, name)
    }

    fn lists(&self, contracts: &Contracts, name: &str) -> bool {
        let family = ["type:", "mcp:"].into_iter().find(|f| name.starts_with(f));
        let Some(allow) = &self.allow else {
            return family.is_none();
        };
        let contract = contracts.find(name);
        let scope = contract.and_then(|contract| contract.scope.as_deref());
        allow.iter().any(|entry| {
            let (Pattern::Exact(text) | Pattern::Prefix(text)) = entry;
            // `*` is every function; what runs at the provider must be named as such.
            let named = family.is_none_or(|family| text.starts_with(family))
                && entry.matches(name)
                && (contract.is_some() || !is_scope(contracts, entry));
            named || scope.is_some_and(|scope| entry.matches(scope))
        })
    }
}

/// The lists as the configuration names them.
pub const ALLOW: &str = "tools.allow";
pub const DENY: &str = "tools.deny";

/// Whether a list entry speaks of a scope and so not of a tool that merely has that name: a
/// client that offers a tool named `search:read` must not gain what the scope allows.
fn is_scope(contracts: &Contracts, entry: &Pattern) -> bool {
    let scoped = match entry {
        Pattern::Exact(_) => true,
        Pattern::Prefix(prefix) => prefix.contains(':'),
    };
    scoped && contracts.scopes().any(|scope| entry.matches(scope))
}

/// Whether a list that protects names the tool: by its name in any spelling, its scope or effect.
fn is_listed(list: &[Pattern], contracts: &Contracts, name: &str) -> bool {
    let contract = contracts.find(name);
    let scope = contract.and_then(|contract| contract.scope.as_deref());
    let effect = contract
        .and_then(|contract| contract.effect)
        .map(Effect::name);
    let folded = fold(name);
    list.iter().any(|entry| {
        entry.matches(name)
            || entry.folded().matches(&folded)
            || scope.is_some_and(|scope| entry.matches(scope))
            || effect.is_some_and(|effect| entry.matches(effect))
    })
}

/// What careless readers make of a name: lower case, without white space and what cannot be
/// seen, without the prefix that some models put before every function.
fn fold(name: &str) -> String {
    let visible: String = name
        .chars()
        .filter(|char| !char.is_whitespace() && !char.is_control() && !is_invisible(*char))
        .flat_map(char::to_lowercase)
        .collect();
    match visible.strip_prefix("functions.") {
        Some(bare) => bare.to_owned(),
        None => visible,
    }
}

fn is_invisible(char: char) -> bool {
    matches!(char, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::contract::Contract;

    fn rules(allow: Option<&[&str]>, deny: &[&str]) -> ToolRules {
        let read = |names: &[&str]| names.iter().map(|n| Pattern::parse(n).unwrap()).collect();
        ToolRules {
            allow: allow.map(read),
            deny: read(deny),
            ..ToolRules::default()
        }
    }

    fn contracts() -> Contracts {
        let contract = |scope: &str, effect| Contract {
            scope: Some(scope.into()),
            effect: Some(effect),
            ..Contract::default()
        };
        Contracts::new([
            ("search.web".into(), contract("search:read", Effect::Read)),
            ("pay".into(), contract("money:write", Effect::Billing)),
        ])
    }

    #[test]
    fn a_tool_is_allowed_by_its_name_a_prefix_or_its_scope() {
        let contracts = contracts();
        let rules = rules(Some(&["get_weather", "crm.*", "search:read"]), &[]);
        for name in ["get_weather", "crm.find", "search.web"] {
            assert!(rules.allows(&contracts, name), "{name}");
        }
        for name in ["get_weather2", "crm", "pay", "Get_Weather", ""] {
            assert!(!rules.allows(&contracts, name), "{name}");
        }
    }

    #[test]
    fn a_tool_that_calls_itself_like_a_scope_gains_nothing() {
        let contracts = contracts();
        for allow in ["search:read", "search:*"] {
            let rules = rules(Some(&[allow]), &[]);
            assert!(!rules.allows(&contracts, "search:read"), "{allow}");
            assert!(rules.allows(&contracts, "search.web"), "{allow}");
        }
        // Without such a contract it is a name like any other.
        assert!(rules(Some(&["a:b"]), &[]).allows(&contracts, "a:b"));
    }

    #[test]
    fn deny_wins_and_knows_scopes_effects_and_other_spellings() {
        let contracts = contracts();
        let all: Option<&[&str]> = Some(&["*"]);
        for (deny, name) in [
            ("delete_account", "delete_account"),
            ("delete_account", "Delete_Account"),
            ("delete_account", "delete_account\u{200b}"),
            ("delete_account", " delete_account"),
            ("delete_account", "functions.delete_account"),
            ("delete_*", "delete_account"),
            ("search:read", "search.web"),
            ("billing", "pay"),
            ("type:*", "type:local_shell"),
        ] {
            assert!(
                !rules(all, &[deny]).allows(&contracts, name),
                "{deny} {name}"
            );
            assert!(
                !rules(None, &[deny]).allows(&contracts, name),
                "{deny} {name}"
            );
        }
        assert!(rules(all, &["delete"]).allows(&contracts, "delete_account"));
    }

    #[test]
    fn what_runs_at_the_provider_must_be_named() {
        let contracts = contracts();
        for name in ["type:web_search", "mcp:mcp.example"] {
            assert!(!rules(None, &[]).allows(&contracts, name), "{name}");
            assert!(!rules(Some(&["*"]), &[]).allows(&contracts, name), "{name}");
            assert!(
                !rules(Some(&["t*", "m*"]), &[]).allows(&contracts, name),
                "{name}"
            );
            assert!(rules(Some(&[name]), &[]).allows(&contracts, name), "{name}");
        }
        assert!(rules(Some(&["type:*"]), &[]).allows(&contracts, "type:mcp"));
        assert!(!rules(Some(&["type:*"]), &[]).allows(&contracts, "mcp:host"));
    }

    #[test]
    fn an_empty_allow_list_allows_nothing_and_an_absent_one_every_function() {
        assert!(!rules(Some(&[]), &[]).allows(&Contracts::default(), "f"));
        assert!(rules(None, &[]).allows(&Contracts::default(), "f"));
    }
}
