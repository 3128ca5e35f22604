//! What a request offers to the model, in every form that providers take it, as one list.
//!
//! Chat and Responses use it the same way:
//! 1. `Offers::member` for each member that can hold tools (`tools`, `functions`) or is one by
//!    itself (`WHOLE`, such as `web_search_options`); `Offers::items` for `messages` or `input`
//!    if an item carries tools of its own; `Offers::choice` for `tool_choice`, `function_call`.
//! 2. `Offers::check`, when all is read: no name twice, and choices name what is offered.
//! 3. `guard::tool_offers::judge` decides, with what `strip` would leave.
//!
//! All spans are byte ranges of the body, which must be JSON already. Forms:
//! `{type:function,function:{name,parameters}}`, `{type:custom,custom:{name}}`, the same flat,
//! legacy `functions[]`, `{type:namespace,name,tools[]}`, `{type:mcp,…}`, any other type by its
//! name, `functionDeclarations` in both spellings, tools without a type, and an object in place
//! of the list. What reads in two ways is refused, since we cannot know which one counts.

mod choice;
mod definition;
mod fault;
mod kinds;
mod mcp;
mod strip;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

pub use self::choice::Choice;
use self::fault::{Fault, Members};
pub use self::mcp::{Asks, Server};
pub use self::strip::{Companions, NoCompanions, Patch};
use super::{
    InvalidRequest, MAX_DEPTH,
    cursor::{Cursor, Span, slice},
    depth, invalid, member_value, misspelt,
};

/// Members of a request that are a hosted tool by themselves, whatever they hold, or that can
/// bring tools which we never see, as a stored `prompt` does. Rules know them by `type_of`.
pub const WHOLE: &[&str] = &[
    "web_search_options",
    "prompt",
    "mcp_servers",
    "data_sources",
    "dataSources",
    "search_parameters",
    "search_settings",
    "enable_search",
    "compound_custom",
    "cached_content",
    "cachedContent",
    "connectors",
    "tool_resources",
    "tool_config",
    "toolConfig",
    "multi_agent",
    "additionalModelRequestFields",
    "extra_body",
];
/// The type that stands for one of `WHOLE`: `type:web_search` for `web_search_options`.
fn type_of(member: &'static str) -> &'static str {
    match member {
        "web_search_options" | "search_parameters" | "enable_search" => "web_search",
        "dataSources" => "data_sources",
        "cachedContent" => "cached_content",
        "toolConfig" => "tool_config",
        other => other,
    }
}

/// Members of a message or an input item that carry tools.
pub const CARRIERS: &[&str] = &[
    "tools",
    "functions",
    "functionDeclarations",
    "function_declarations",
];
/// More tools than this in one request are a mistake; those count that a server is held to, and
/// those that a choice names.
const MAX_TOOLS: usize = 1024;

/// All that is offered, in order.
#[derive(Debug, Default)]
pub struct Offers {
    pub tools: Vec<Tool>,
    /// The servers among them.
    pub servers: Vec<Server>,
    pub choice: Choice,
    lists: Vec<List>,
    /// How many tools `servers` are held to, together.
    held_to: usize,
}

/// One thing that rules decide on.
#[derive(Debug)]
pub struct Tool {
    /// As rules name it: `search.web`, `namespace.name`, `type:web_search`, `mcp:host`.
    pub name: Box<str>,
    pub kind: ToolKind,
    /// How many bytes of `name` are its namespace and the dot.
    namespace: usize,
    list: usize,
    element: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolKind {
    Function {
        schema: Option<Span>,
    },
    /// Gets free text.
    Custom,
    /// A type that needs no name: run by the provider, or by the client as an item.
    Type,
    /// The index in `servers`.
    Server(usize),
}

/// A list of tools, or a single one that stands in its place.
#[derive(Debug)]
struct List {
    /// The whole value.
    span: Span,
    elements: Vec<Span>,
    holder: Holder,
}

/// What a list hangs on, and so what goes with it when it is emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// A member of the request.
    Member(&'static str),
    /// A message or an input item.
    Item(&'static str),
    /// An element of another list.
    Element { list: usize, element: usize },
}

impl Tool {
    pub fn namespace(&self) -> Option<&str> {
        self.name.get(..self.namespace.checked_sub(1)?)
    }

    /// Brought by the provider, and not by the client that runs it.
    pub fn is_hosted(&self) -> bool {
        matches!(self.kind, ToolKind::Type | ToolKind::Server(_))
    }

    /// Without its namespace: the name that a call has.
    pub fn bare(&self) -> &str {
        self.name.get(self.namespace..).unwrap_or_default()
    }
}

impl Offers {
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Reads the tools that a response object repeats from its request.
    ///
    /// # Errors
    /// What is no JSON, or no tool.
    pub fn of_answer(body: &[u8]) -> Result<Self, InvalidRequest> {
        let text = std::str::from_utf8(body).unwrap_or_default();
        let json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if !json || depth(body) > MAX_DEPTH {
            return Err(invalid("The answer cannot be read.", None));
        }
        let mut offers = Self::default();
        let tools = member_value(body, "tools");
        if !tools.is_empty() {
            offers.member(body, "tools", tools)?;
        }
        Ok(offers)
    }

    /// Reads the value of a request's member that holds tools, or is one of `WHOLE`.
    ///
    /// # Errors
    /// What is no tool, or reads in two ways.
    pub fn member(
        &mut self,
        body: &[u8],
        name: &'static str,
        value: Span,
    ) -> Result<(), InvalidRequest> {
        if matches!(slice(body, value.clone()), b"null" | b"false") {
            return Ok(());
        }
        if !WHOLE.contains(&name) {
            let mut cursor = Cursor::new(body, value.start);
            return definition::list(self, &mut cursor, Holder::Member(name));
        }
        let list = self.open(Holder::Member(name));
        self.add(format!("type:{}", type_of(name)), ToolKind::Type, list, 0)?;
        self.close(list, value.clone(), vec![value]);
        Ok(())
    }

    /// Reads the tools that `messages` or the items of an `input` carry.
    ///
    /// # Errors
    /// What is no tool, or reads in two ways.
    pub fn items(
        &mut self,
        body: &[u8],
        name: &'static str,
        value: Span,
    ) -> Result<(), InvalidRequest> {
        let mut cursor = Cursor::new(body, value.start);
        let read = cursor.array(|cursor| {
            carried(cursor, name == "input")?
                .into_iter()
                .try_for_each(|at| {
                    let mut cursor = Cursor::new(body, at);
                    definition::list(self, &mut cursor, Holder::Item(name))
                        .map_err(|fault| Fault(fault.message.into()))
                })
        });
        read.map(drop).map_err(|Fault(fault)| {
            let message = format!("An entry of {name:?} carries tools: {fault}");
            invalid(message, Some(name))
        })
    }

    /// Reads `tool_choice` or `function_call`.
    ///
    /// # Errors
    /// A form that says nothing we know, or says two things.
    pub fn choice(
        &mut self,
        body: &[u8],
        name: &'static str,
        value: Span,
    ) -> Result<(), InvalidRequest> {
        choice::read(&mut self.choice, body, name, value)
    }

    /// Checks what can be seen in the whole only.
    ///
    /// # Errors
    /// Two tools of one name in the request's own lists, two servers of one label, a choice that
    /// names what is not offered. Items may repeat a tool: they are history.
    pub fn check(&self) -> Result<(), InvalidRequest> {
        let mut seen = HashSet::new();
        for tool in &self.tools {
            let member = self.member_of(tool);
            if !tool.is_hosted()
                && let Some(member) = member
                && !seen.insert(&*tool.name)
            {
                let message = format!("The tool {:?} is offered twice.", tool.name);
                return Err(invalid(message, Some(member)));
            }
        }
        mcp::check(&self.servers)?;
        choice::check(self)
    }

    /// The member of the request that a tool stands in; `None` if an item carries it.
    fn member_of(&self, tool: &Tool) -> Option<&'static str> {
        let mut at = tool.list;
        loop {
            match self.lists.get(at)?.holder {
                Holder::Member(name) => return Some(name),
                Holder::Item(_) => return None,
                Holder::Element { list, .. } => at = list,
            }
        }
    }

    /// The member that a refusal points to.
    pub fn param_of(&self, tool: &Tool) -> &'static str {
        let items = || {
            self.lists.iter().find_map(|list| match list.holder {
                Holder::Item(name) => Some(name),
                _ => None,
            })
        };
        self.member_of(tool).or_else(items).unwrap_or("tools")
    }

    fn open(&mut self, holder: Holder) -> usize {
        self.lists.push(List {
            span: 0..0,
            elements: Vec::new(),
            holder,
        });
        self.lists.len() - 1
    }

    fn close(&mut self, list: usize, span: Span, elements: Vec<Span>) {
        if let Some(list) = self.lists.get_mut(list) {
            list.span = span;
            list.elements = elements;
        }
    }

    fn add(
        &mut self,
        name: String,
        kind: ToolKind,
        list: usize,
        element: usize,
    ) -> Result<(), InvalidRequest> {
        if self.tools.len() + self.held_to >= MAX_TOOLS {
            let message = format!("there are more than {MAX_TOOLS} tools");
            return Err(invalid(message, Some("tools")));
        }
        self.tools.push(Tool {
            name: name.into(),
            kind,
            namespace: 0,
            list,
            element,
        });
        Ok(())
    }
}

/// Where the lists of tools stand that a message or an item carries. Among input items, the
/// provider's own `mcp_list_tools` offer nothing: their server is what is judged.
fn carried(cursor: &mut Cursor<'_>, is_input: bool) -> Result<Vec<usize>, Fault> {
    let mut lists = Vec::new();
    let mut kind = None;
    let mut seen: Vec<&str> = Vec::new();
    cursor.object(|cursor, member| {
        let matters = CARRIERS
            .iter()
            .chain(&["type"])
            .find(|name| **name == member);
        let Some(name) = matters else {
            let taken_for = misspelt(&member, CARRIERS).or_else(|| misspelt(&member, &["type"]));
            return match taken_for {
                Some(known) => Err(format!("it holds what some readers take for {known:?}").into()),
                None => Ok(()),
            };
        };
        if seen.contains(name) {
            return Err(Fault::from(format!("it holds the member {name:?} twice")));
        }
        seen.push(name);
        if *name == "type" {
            kind = cursor.string()?;
        } else if !cursor.is_null() {
            lists.push(cursor.skip().start);
        }
        Ok(())
    })?;
    if is_input && kind.as_deref() == Some("mcp_list_tools") {
        lists.clear();
    }
    Ok(lists)
}
