//! Layer 2: was the tool offered in this request, and is there a contract where one must be?

use std::collections::{BTreeSet, HashMap};

use super::{Call, CallGuard, CallKind, Finding, Proposal, schema::OfferedSchema, wrapper};

pub const CODE: &str = "unknown_tool";

/// What one request offers to the model. Filled while the request is read.
#[derive(Debug, Default)]
pub struct Offered {
    /// By namespace and name.
    tools: HashMap<(Box<str>, Box<str>), OfferedTool>,
    types: BTreeSet<Box<str>>,
}

/// A tool as the request describes it.
#[derive(Debug, Default)]
pub struct OfferedTool {
    function: bool,
    custom: bool,
    /// Of each time it was offered: a call must fit them all, since we cannot know which of
    /// them the model or the client goes by.
    pub(super) schemas: Vec<OfferedSchema>,
}

impl Offered {
    /// Adds a function, or a custom tool. `schema` is the JSON text of its parameters, as it
    /// came (`null` is none); it is compiled when a call is judged by it.
    pub fn add(&mut self, namespace: Option<&str>, name: &str, custom: bool, schema: Option<&str>) {
        let key = (namespace.unwrap_or_default().into(), name.into());
        let tool = self.tools.entry(key).or_default();
        tool.function |= !custom;
        tool.custom |= custom;
        let schema = schema.filter(|text| text.trim() != "null");
        tool.schemas.extend(schema.map(OfferedSchema::new));
    }

    /// Adds a type whose calls are items of that type, such as `local_shell`.
    pub fn add_type(&mut self, kind: &str) {
        self.types.insert(kind.into());
    }

    pub fn find(&self, namespace: Option<&str>, name: &str) -> Option<&OfferedTool> {
        self.tools
            .get(&(namespace.unwrap_or_default().into(), name.into()))
    }

    pub fn has_type(&self, kind: &str) -> bool {
        self.types.contains(kind)
    }

    fn holds(&self, call: &Call) -> bool {
        let tool = || self.find(call.namespace.as_deref(), &call.name);
        match &call.kind {
            CallKind::Item(kind) => self.has_type(kind),
            CallKind::Function => tool().is_some_and(|tool| tool.function),
            CallKind::Custom => tool().is_some_and(|tool| tool.custom),
        }
    }
}

pub(super) fn ask(guard: &CallGuard, proposal: &Proposal<'_>) -> Vec<Finding> {
    if wrapper::is_bare(guard, proposal) {
        return Vec::new();
    }
    if !guard.offered.holds(proposal.call) {
        let message = "The model was not offered this tool.";
        return vec![Finding::no(CODE, message)];
    }
    if guard.rules.require_contract && guard.contracts.find(&proposal.tool).is_none() {
        let message = "The configuration has no contract for this tool.";
        return vec![Finding::no("tools.require_contract", message)];
    }
    Vec::new()
}
