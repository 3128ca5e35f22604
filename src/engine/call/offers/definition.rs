//! One entry of a list of tools: what it offers, whichever of the forms it has.

use std::borrow::Cow;

use super::{
    Fault, Holder, Members, Offers, ToolKind,
    mcp::{self, ServerParts},
};
use crate::engine::{
    call::{
        InvalidRequest,
        cursor::{Cursor, Span},
        invalid,
    },
    chain::clean_name,
};

/// Lists within lists: a namespace in a toolset in the request's list is the deepest we follow.
const MAX_NESTING: usize = 3;
/// Longer names are no names.
const MAX_NAME: usize = 256;
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
    let list = offers.open(holder);
    let mut elements = Vec::new();
    let span = match cursor.first() {
        b'[' => cursor.array(|cursor| {
            let element = elements.len();
            let span = entry(
                offers,
                cursor,
                Place {
                    list,
                    element,
                    nesting,
                },
            )
            .map_err(|Fault(fault)| Fault::from(format!("tool {} {fault}", element + 1)))?;
            elements.push(span);
            Ok::<(), Fault>(())
        })?,
        b'{' => {
            let place = Place {
                list,
                element: 0,
                nesting,
            };
            let span = entry(offers, cursor, place)
                .map_err(|Fault(fault)| Fault::from(format!("the tool {fault}")))?;
            elements.push(span.clone());
            span
        }
        _ => return Err("must be a list of tools".into()),
    };
    offers.close(list, span, elements);
    Ok(())
}

#[derive(Clone, Copy)]
struct Place {
    list: usize,
    element: usize,
    nesting: usize,
}

/// An entry as it stands.
#[derive(Default)]
struct Entry<'a> {
    kind: Option<Cow<'a, str>>,
    flat: Named<'a>,
    function: Option<Named<'a>>,
    custom: Option<Named<'a>>,
    server: ServerParts<'a>,
    /// Holds a list of tools of its own.
    contains: bool,
    /// Names an environment that is not the client's own.
    remote: bool,
    /// Members that none of the forms we know has.
    others: Vec<Cow<'a, str>>,
}

/// What gives a tool its name, and the schema beside it.
#[derive(Default)]
struct Named<'a> {
    name: Option<Cow<'a, str>>,
    schema: Option<Span>,
}

const SCHEMAS: &[&str] = &[
    "parameters",
    "input_schema",
    "inputSchema",
    "parametersJsonSchema",
    "parameters_json_schema",
];
/// Without underscores, in lower case.
const HOSTED_MEMBERS: &[&str] = &[
    "browsersearch",
    "codeexecution",
    "codeinterpreter",
    "computeruse",
    "enterprisewebsearch",
    "filesearch",
    "googlemaps",
    "googlesearch",
    "googlesearchretrieval",
    "mcpservers",
    "retrieval",
    "systemtool",
    "toolspec",
    "urlcontext",
    "websearch",
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

const AMBIGUOUS: &str = "can be read as more than one kind of tool";

impl Entry<'_> {
    /// Names a server or a hosted tool besides what its type says.
    fn is_more(&self) -> bool {
        self.server.is_some() || self.others.iter().any(|other| is_hosted(other))
    }
}

impl<'a> Named<'a> {
    /// Nothing but the same name once more, as some clients write it.
    fn adds_nothing_to(&self, nested: &Named<'_>) -> bool {
        self.schema.is_none() && (self.name.is_none() || self.name == nested.name)
    }

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

/// Says what the entry offers; more than one reading is a fault.
fn classify(
    offers: &mut Offers,
    entry: Entry<'_>,
    place: Place,
    first_tool: usize,
) -> Result<(), Fault> {
    match entry.kind.as_deref() {
        Some("function") => client_tool(offers, entry, place, false),
        Some("custom") => client_tool(offers, entry, place, true),
        Some("namespace") => namespace(offers, entry, first_tool),
        Some("mcp") => server(offers, entry, place),
        Some(_) => hosted(offers, entry, place),
        None if entry.function.is_some() => client_tool(offers, entry, place, false),
        None if entry.custom.is_some() => client_tool(offers, entry, place, true),
        None if entry.flat.name.is_some() => client_tool(offers, entry, place, false),
        None => untyped(offers, entry, place),
    }
}

/// A function or a custom tool, nested or flat. Both at once must say the same.
fn client_tool(
    offers: &mut Offers,
    entry: Entry<'_>,
    place: Place,
    custom: bool,
) -> Result<(), Fault> {
    let more = entry.contains || entry.is_more();
    let (nested, other) = if custom {
        (entry.custom, entry.function)
    } else {
        (entry.function, entry.custom)
    };
    if more || other.is_some() {
        return Err(AMBIGUOUS.into());
    }
    let flat = entry.flat;
    let tool = match nested {
        None => flat,
        Some(nested) if flat.adds_nothing_to(&nested) => nested,
        Some(_) => {
            return Err("holds a name or a schema both inside and beside its function".into());
        }
    };
    let name = tool.name.ok_or("has no name")?;
    let schema = tool.schema;
    let kind = if custom {
        ToolKind::Custom { schema }
    } else {
        ToolKind::Function { schema }
    };
    add(offers, name.into_owned(), kind, place)
}

/// The tools inside were read before the name was known for sure: they get it now.
fn namespace(offers: &mut Offers, entry: Entry<'_>, first_tool: usize) -> Result<(), Fault> {
    if entry.function.is_some() || entry.custom.is_some() || entry.is_more() {
        return Err(AMBIGUOUS.into());
    }
    let name = entry.flat.name.ok_or("is a namespace without a name")?;
    for tool in offers.tools.iter_mut().skip(first_tool) {
        if !tool.is_hosted() {
            tool.name = format!("{name}.{}", tool.name).into();
            tool.namespace += name.len() + 1;
        }
    }
    Ok(())
}

fn server(offers: &mut Offers, entry: Entry<'_>, place: Place) -> Result<(), Fault> {
    let other = entry.function.is_some() || entry.custom.is_some() || entry.contains;
    if other || entry.others.iter().any(|other| is_hosted(other)) {
        return Err(AMBIGUOUS.into());
    }
    let server = mcp::server(entry.server)?;
    let name = server.name.to_string();
    offers.servers.push(server);
    let index = offers.servers.len() - 1;
    add(offers, name, ToolKind::Server(index), place)
}

/// A type with no name of its own. What it names beside is judged as well: we cannot know
/// whether somebody goes by that.
fn hosted(offers: &mut Offers, entry: Entry<'_>, place: Place) -> Result<(), Fault> {
    let kind = entry.kind.unwrap_or_default();
    if kind.is_empty() || kind.len() > MAX_NAME {
        return Err("has a type that is empty or very long".into());
    }
    // A shell in the provider's container is another thing than one at the client: its
    // commands have run before we see them.
    let container = if kind == "shell" && entry.remote {
        "_container"
    } else {
        ""
    };
    add(
        offers,
        format!("type:{kind}{container}"),
        ToolKind::Type,
        place,
    )?;
    for other in entry
        .others
        .iter()
        .filter(|other| is_hosted(other) && **other != kind)
    {
        add(offers, format!("type:{other}"), ToolKind::Type, place)?;
    }
    for named in [Some(entry.flat), entry.function, entry.custom]
        .into_iter()
        .flatten()
    {
        if let Some(name) = named.name {
            let kind = ToolKind::Function {
                schema: named.schema,
            };
            add(offers, name.into_owned(), kind, place)?;
        }
    }
    Ok(())
}

/// No type: a list of declarations, or members that each are a hosted tool.
fn untyped(offers: &mut Offers, entry: Entry<'_>, place: Place) -> Result<(), Fault> {
    if !entry.contains && entry.others.is_empty() {
        return Err("has neither a type nor a name".into());
    }
    if entry.server.is_some() || entry.flat.schema.is_some() {
        return Err("has no type".into());
    }
    entry
        .others
        .into_iter()
        .try_for_each(|name| add(offers, format!("type:{name}"), ToolKind::Type, place))
}

fn add(offers: &mut Offers, name: String, kind: ToolKind, place: Place) -> Result<(), Fault> {
    offers
        .add(name, kind, place.list, place.element)
        .map_err(|fault| Fault::from(fault.message))
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

/// Whether some gateway reads a member of this name as a hosted tool, whatever stands beside.
fn is_hosted(member: &str) -> bool {
    let folded = member.replace('_', "").to_lowercase();
    HOSTED_MEMBERS.contains(&&*folded)
}
