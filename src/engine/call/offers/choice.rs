//! `tool_choice` and `function_call`: may the model choose, must it call, and which?

use std::borrow::Cow;

use super::{Fault, MAX_TOOLS, Members, Offers, Tool, ToolKind, definition::text};
use crate::engine::{
    call::{
        InvalidRequest,
        cursor::{Cursor, Span},
        invalid,
    },
    names::clean_name,
};

/// What the request says of calls besides offering tools.
#[derive(Debug, Default)]
pub struct Choice {
    /// A call is demanded: text in its place would be no answer.
    pub forces: bool,
    /// The member that says so, for messages.
    pub member: Option<&'static str>,
    references: Vec<Reference>,
}

/// A tool that a choice names.
#[derive(Debug)]
struct Reference {
    name: Named,
    member: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
enum Named {
    Tool(Box<str>),
    Type(Box<str>),
    Server(Box<str>),
}

impl Choice {
    /// Whether the choice names a tool.
    pub fn names(&self, tool: &Tool, offers: &Offers) -> bool {
        self.references
            .iter()
            .any(|reference| reference.is(tool, offers))
    }
}

impl Reference {
    fn is(&self, tool: &Tool, offers: &Offers) -> bool {
        match (&self.name, &tool.kind) {
            (Named::Tool(name), ToolKind::Function { .. } | ToolKind::Custom) => {
                *name == tool.name || &**name == tool.bare()
            }
            // A choice may leave the date out that the type has.
            (Named::Type(kind), ToolKind::Type) => tool.bare_type().starts_with(&**kind),
            (Named::Type(kind), ToolKind::Server(_)) => &**kind == "mcp",
            (Named::Server(label), ToolKind::Server(index)) => offers
                .servers
                .get(*index)
                .is_some_and(|server| server.label == *label),
            _ => false,
        }
    }
}

impl Tool {
    fn bare_type(&self) -> &str {
        self.name.strip_prefix("type:").unwrap_or_default()
    }
}

pub(super) fn read(
    choice: &mut Choice,
    body: &[u8],
    member: &'static str,
    value: Span,
) -> Result<(), InvalidRequest> {
    let mut cursor = Cursor::new(body, value.start);
    if cursor.is_null() {
        return Ok(());
    }
    choice.member = Some(member);
    reading(choice, &mut cursor, member)
        .map_err(|Fault(fault)| invalid(format!("The member {member:?} {fault}."), Some(member)))
}

fn reading(
    choice: &mut Choice,
    cursor: &mut Cursor<'_>,
    member: &'static str,
) -> Result<(), Fault> {
    match cursor.first() {
        b'"' => {
            let word = text(cursor, member)?;
            match mode(&word) {
                Some(forces) => choice.forces |= forces,
                None => choice.must_call(Named::Tool(word.into()), member),
            }
            Ok(())
        }
        b'{' => object(choice, cursor, member),
        _ => Err("is neither a word nor an object".into()),
    }
}

/// Whether a word forces a call; `None` for other words.
fn mode(word: &str) -> Option<bool> {
    match word {
        "none" | "auto" => Some(false),
        "required" | "any" => Some(true),
        _ => None,
    }
}

impl Choice {
    fn must_call(&mut self, name: Named, member: &'static str) {
        self.forces = true;
        self.references.push(Reference { name, member });
    }
}

/// An object as it stands: a tool, a mode, or a list of tools with a mode.
#[derive(Default)]
struct Parts<'a> {
    kind: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    label: Option<Cow<'a, str>>,
    namespace: Option<Cow<'a, str>>,
    mode: Option<Cow<'a, str>>,
    /// More than one thing gave a name.
    twice: bool,
    tools: Vec<Named>,
    lists: bool,
}

fn object(choice: &mut Choice, cursor: &mut Cursor<'_>, member: &'static str) -> Result<(), Fault> {
    let mut parts = Parts::default();
    parts.read(cursor, true)?;
    if parts.lists || parts.kind.as_deref() == Some("allowed_tools") {
        if parts.name.is_some() || parts.kind.as_deref() != Some("allowed_tools") {
            return Err("says two things".into());
        }
        choice.forces |= match parts.mode.as_deref().map(mode) {
            None => false,
            Some(Some(forces)) => forces,
            Some(None) => return Err("has a mode that nobody knows".into()),
        };
        if parts.tools.len() > MAX_TOOLS {
            return Err("names very many tools".into());
        }
        let names = parts.tools.into_iter();
        choice
            .references
            .extend(names.map(|name| Reference { name, member }));
        return Ok(());
    }
    match parts.kind.as_deref().and_then(mode) {
        Some(forces) if parts.name.is_none() => choice.forces |= forces,
        _ => choice.must_call(parts.named()?, member),
    }
    Ok(())
}

impl<'a> Parts<'a> {
    fn read(&mut self, cursor: &mut Cursor<'a>, lists: bool) -> Result<(), Fault> {
        let mut members = Members::default();
        cursor.object(|cursor, name| {
            members.note(name.clone())?;
            if cursor.is_null() {
                return Ok(());
            }
            match &*name {
                "type" => self.kind = Some(text(cursor, "type")?),
                "mode" => self.mode = Some(text(cursor, "mode")?),
                "server_label" => self.label = Some(text(cursor, "server_label")?),
                "namespace" => self.namespace = Some(text(cursor, "namespace")?),
                "name" => self.take_name(text(cursor, "name")?),
                "function" | "custom" => self.nested(cursor)?,
                "allowed_tools" if lists && cursor.first() == b'{' => {
                    let mut inner = Parts::default();
                    inner.read(cursor, true)?;
                    self.twice |= self.lists || self.mode.is_some();
                    self.lists = true;
                    self.mode = inner.mode;
                    self.tools.extend(inner.tools);
                }
                "tools" if lists => {
                    self.twice |= self.lists;
                    self.lists = true;
                    self.tools.extend(references(cursor)?);
                }
                _ => {}
            }
            Ok::<(), Fault>(())
        })?;
        if self.twice {
            return Err("says two things".into());
        }
        Ok(())
    }

    fn nested(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Fault> {
        let mut members = Members::default();
        cursor.object(|cursor, name| {
            if name == "name" {
                self.take_name(text(cursor, "name")?);
            }
            members.note(name)
        })?;
        Ok(())
    }

    fn take_name(&mut self, name: Cow<'a, str>) {
        self.twice |= self.name.is_some();
        self.name = Some(name);
    }

    /// The tool that the object names.
    fn named(self) -> Result<Named, Fault> {
        let client = matches!(
            self.kind.as_deref(),
            None | Some("function" | "custom" | "tool")
        );
        match (self.kind, self.name, self.label) {
            (Some(kind), _, Some(label)) if kind == "mcp" => Ok(Named::Server(label.into())),
            (_, Some(name), None) if client => Ok(Named::Tool(match self.namespace {
                Some(namespace) => format!("{namespace}.{name}").into(),
                None => name.into(),
            })),
            (Some(kind), None, None) if !client && !kind.is_empty() => Ok(Named::Type(kind.into())),
            _ => Err("names no tool in a form we know".into()),
        }
    }
}

fn references(cursor: &mut Cursor<'_>) -> Result<Vec<Named>, Fault> {
    if cursor.first() != b'[' {
        return Err("holds \"tools\", which is no list".into());
    }
    let mut tools = Vec::new();
    cursor.array(|cursor| {
        let mut parts = Parts::default();
        parts.read(cursor, false)?;
        tools.push(parts.named()?);
        Ok::<(), Fault>(())
    })?;
    Ok(tools)
}

/// Every reference must be to something that is offered.
pub(super) fn check(offers: &Offers) -> Result<(), InvalidRequest> {
    let missing = offers
        .choice
        .references
        .iter()
        .find(|reference| !offers.tools.iter().any(|tool| reference.is(tool, offers)));
    let Some(Reference { name, member }) = missing else {
        return Ok(());
    };
    let member = *member;
    let what = match name {
        Named::Tool(name) => format!("the tool {:?}", clean_name(name)),
        Named::Type(kind) => format!("a tool of type {:?}", clean_name(kind)),
        Named::Server(label) => format!("the MCP server {:?}", clean_name(label)),
    };
    Err(invalid(
        format!("The member {member:?} names {what}, which the request does not offer."),
        Some(member),
    ))
}
