//! One entry of a list of tools: what it offers, whichever of the forms it has.

use std::borrow::Cow;

use super::{Fault, Holder, MAX_TOOLS, Members, Offers, kinds::classify, mcp::ServerParts};
use crate::engine::{
    call::{
        InvalidRequest,
        cursor::{Cursor, Span},
        invalid,
    },
    names::clean_name,
};

/// Lists within lists: a namespace in a toolset in the request's list is the deepest we follow.
const MAX_NESTING: usize = 3;
/// Longer names are no names.
pub(super) const MAX_NAME: usize = 256;
/// How rules name what has no name of its own; a tool that calls itself so would pass for it.
const FAMILIES: &[&str] = &["type:", "mcp:"];

/// Reads the list before the cursor, or the single tool that stands in its place.
pub(super) fn list(
    offers: &mut Offers,
    cursor: &mut Cursor<'_>,
    holder: Holder,
) -> Result<(), InvalidRequest> {
    let (Holder::Member(param) | Holder::Item(param)) = holder else {
        return Ok(());
    };
    entries(offers, cursor, holder, 0)
        .map_err(|Fault(fault)| invalid(format!("The member {param:?}: {fault}."), Some(param)))
}

fn entries(
    offers: &mut Offers,
    cursor: &mut Cursor<'_>,
    holder: Holder,
    nesting: usize,
) -> Result<(), Fault> {
    if nesting >= MAX_NESTING {
        return Err("holds lists of tools within lists of tools".into());
    }
    if offers.lists.len() >= MAX_TOOLS {
        return Err("holds very many lists of tools".into());
    }
    let list = offers.open(holder);
    let mut elements = Vec::new();
    let mut read = |offers: &mut Offers, cursor: &mut Cursor<'_>| {
        let element = elements.len();
        let place = Place {
            list,
            element,
            nesting,
        };
        let span = entry(offers, cursor, place)
            .map_err(|Fault(fault)| Fault::from(format!("tool {} {fault}", element + 1)))?;
        elements.push(span.clone());
        Ok::<Span, Fault>(span)
    };
    let span = match cursor.first() {
        b'[' => cursor.array(|cursor| read(offers, cursor).map(drop))?,
        b'{' => read(offers, cursor)?,
        _ => return Err("must be a list of tools".into()),
    };
    offers.close(list, span, elements);
    Ok(())
}

#[derive(Clone, Copy)]
pub(super) struct Place {
    pub list: usize,
    pub element: usize,
    nesting: usize,
}

/// An entry as it stands.
#[derive(Default)]
pub(super) struct Entry<'a> {
    pub kind: Option<Cow<'a, str>>,
    pub flat: Named<'a>,
    pub function: Option<Named<'a>>,
    pub custom: Option<Named<'a>>,
    pub server: ServerParts<'a>,
    /// Holds a list of tools of its own.
    pub contains: bool,
    /// Names an environment that is not the client's own.
    pub remote: bool,
    /// Members that none of the forms we know has.
    pub others: Vec<Cow<'a, str>>,
}

/// What gives a tool its name, and the schema beside it.
#[derive(Default)]
pub(super) struct Named<'a> {
    pub name: Option<Cow<'a, str>>,
    pub schema: Option<Span>,
}

const SCHEMAS: &[&str] = &[
    "parameters",
    "input_schema",
    "inputSchema",
    "parametersJsonSchema",
    "parameters_json_schema",
];
/// Members of a tool that offer nothing.
const HARMLESS: &[&str] = &[
    "description",
    "strict",
    "title",
    "annotations",
    "cache_control",
];

fn entry(offers: &mut Offers, cursor: &mut Cursor<'_>, place: Place) -> Result<Span, Fault> {
    if cursor.first() != b'{' {
        return Err("is no object".into());
    }
    let first_tool = offers.tools.len();
    let mut read = Entry::default();
    let mut members = Members::default();
    let span = cursor.object(|cursor, name| {
        members.note(name.clone())?;
        member(offers, &mut read, cursor, name, place)
    })?;
    classify(offers, read, place, first_tool)?;
    Ok(span)
}

fn member<'a>(
    offers: &mut Offers,
    entry: &mut Entry<'a>,
    cursor: &mut Cursor<'a>,
    name: Cow<'a, str>,
    place: Place,
) -> Result<(), Fault> {
    if cursor.is_null() {
        return Ok(());
    }
    match &*name {
        "type" => entry.kind = Some(text(cursor, "type")?),
        "function" => entry.function = Some(named(cursor, "function")?),
        "custom" => entry.custom = Some(named(cursor, "custom")?),
        "environment" => entry.remote = !is_local(cursor)?,
        "tools" | "functionDeclarations" | "function_declarations" => {
            entry.contains = true;
            let Place {
                list,
                element,
                nesting,
            } = place;
            entries(
                offers,
                cursor,
                Holder::Element { list, element },
                nesting + 1,
            )?;
        }
        _ if entry.flat.member(cursor, &name)? || entry.server.member(cursor, &name)? => {}
        plain if HARMLESS.contains(&plain) => {}
        _ => entry.others.push(name),
    }
    Ok(())
}

impl<'a> Named<'a> {
    /// Takes a member if it is one of these.
    fn member(&mut self, cursor: &mut Cursor<'a>, name: &str) -> Result<bool, Fault> {
        if name == "name" {
            let name = text(cursor, "name")?;
            let fine = !name.is_empty() && name.len() <= MAX_NAME;
            if !fine {
                return Err("has a name that is empty or very long".into());
            }
            if FAMILIES.iter().any(|family| name.starts_with(family)) {
                return Err(format!(
                    "has the name {:?}, which stands for no tool",
                    clean_name(&name)
                )
                .into());
            }
            self.name = Some(name);
            return Ok(true);
        }
        if !SCHEMAS.contains(&name) {
            return Ok(false);
        }
        if self.schema.is_some() {
            return Err("holds two schemas".into());
        }
        self.schema = Some(cursor.skip());
        Ok(true)
    }
}

/// The object that gives a nested tool its name.
fn named<'a>(cursor: &mut Cursor<'a>, what: &'static str) -> Result<Named<'a>, Fault> {
    if cursor.first() != b'{' {
        return Err(format!("holds {what:?}, which is no object").into());
    }
    let mut named = Named::default();
    let mut members = Members::default();
    cursor.object(|cursor, name| {
        members.note(name.clone())?;
        if !cursor.is_null() {
            named.member(cursor, &name)?;
        }
        Ok::<(), Fault>(())
    })?;
    Ok(named)
}

pub(super) fn text<'a>(cursor: &mut Cursor<'a>, what: &'static str) -> Result<Cow<'a, str>, Fault> {
    cursor
        .string()?
        .ok_or_else(|| format!("holds {what:?}, which is no string").into())
}

/// Whether a shell's environment is the client's own.
fn is_local(cursor: &mut Cursor<'_>) -> Result<bool, Fault> {
    let mut kind = None;
    let mut members = Members::default();
    cursor.object(|cursor, name| {
        if name == "type" {
            kind = cursor.string()?;
        }
        members.note(name)
    })?;
    Ok(kind.as_deref() == Some("local"))
}
