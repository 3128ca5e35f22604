//! What the operator knows of tools: `[tools.…]`, compiled when the configuration loads. Rules
//! are plain values here; the layers of `chain` ask them.

mod arguments;
mod schema;

use std::{collections::HashMap, sync::Arc};

pub use self::{
    arguments::{
        ArgumentRule, Bound, Conditions, HostPattern, Scalar, WholePattern, is_plain_path,
    },
    schema::{Schema, SchemaFault},
};
use super::{json::Pointer, run::OrderRules};

/// `[tools.NAME]`: what the operator knows of a tool, whoever offers it.
#[derive(Debug, Clone, Default)]
pub struct Contract {
    pub scope: Option<Box<str>>,
    pub effect: Option<Effect>,
    /// Absent: the schema that the request offers is asked.
    pub schema: Option<Arc<Schema>>,
    /// Each must be there and equal the tenant of the key.
    pub tenant_arguments: Vec<Pointer>,
    pub arguments: Vec<ArgumentRule>,
    pub approval: Approval,
    pub output: Output,
    pub order: OrderRules,
    /// Asked again and again on purpose: no loop.
    pub pollable: bool,
    /// Whether the same call may pass again in its run. Absent: the policy says.
    pub idempotent: Option<bool>,
}

impl Contract {
    /// Whether what a run did before can decide on a call of the tool.
    pub fn needs_run(&self) -> bool {
        !self.order.is_empty() || self.idempotent.is_some()
    }

    /// Whether data from outside can decide on it.
    pub fn minds_taint(&self) -> bool {
        self.approval == Approval::WhenTainted || self.order.never_after_untrusted
    }
}

/// Whether a person decides on each call of the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Approval {
    #[default]
    Never,
    Always,
    /// Once the result of an untrusted tool stands in the conversation.
    WhenTainted,
}

/// What the results of a tool are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    #[default]
    Trusted,
    /// Data from outside, which may try to command the model.
    Untrusted,
}

/// What a call of the tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Read,
    Write,
    ExternalWrite,
    Billing,
}

impl Effect {
    pub const NAMES: &[(&'static str, Self)] = &[
        ("read", Self::Read),
        ("write", Self::Write),
        ("external_write", Self::ExternalWrite),
        ("billing", Self::Billing),
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::ExternalWrite => "external_write",
            Self::Billing => "billing",
        }
    }
}

/// All contracts, by the name that a call must have: `search.web`, `namespace.name`,
/// `type:local_shell`.
#[derive(Debug, Clone, Default)]
pub struct Contracts {
    by_name: HashMap<Box<str>, Contract>,
}

impl Contracts {
    pub fn new(contracts: impl IntoIterator<Item = (Box<str>, Contract)>) -> Self {
        Self {
            by_name: contracts.into_iter().collect(),
        }
    }

    pub fn find(&self, name: &str) -> Option<&Contract> {
        self.by_name.get(name)
    }

    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        self.by_name.values().filter_map(|c| c.scope.as_deref())
    }

    /// Whether the results of some tool are data from outside.
    pub fn any_untrusted(&self) -> bool {
        self.by_name.values().any(|c| c.output == Output::Untrusted)
    }
}
