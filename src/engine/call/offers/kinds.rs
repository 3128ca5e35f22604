//! What an entry offers, now that it is read: one thing, or it is refused.

use super::{
    Fault, Offers, ToolKind,
    definition::{Entry, MAX_NAME, Named, Place},
    mcp,
};

/// Says what the entry offers; more than one reading is a fault.
pub(super) fn classify(
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
    // One with a schema gets arguments, not free text, whatever its type is called.
    let kind = match tool.schema {
        None if custom => ToolKind::Custom,
        schema => ToolKind::Function { schema },
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
    add_server(offers, entry.server, place)
}

fn add_server(offers: &mut Offers, parts: mcp::ServerParts<'_>, place: Place) -> Result<(), Fault> {
    let server = mcp::server(parts)?;
    let name = server.name.to_string();
    offers.held_to += server.tools.as_ref().map_or(0, Vec::len);
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
    let others = entry
        .others
        .iter()
        .filter(|other| is_hosted(other) && **other != kind);
    let types =
        std::iter::once(format!("{kind}{container}")).chain(others.map(ToString::to_string));
    for kind in types {
        add(offers, format!("type:{kind}"), ToolKind::Type, place)?;
    }
    if entry.server.is_some() {
        add_server(offers, entry.server, place)?;
    }
    for named in [Some(entry.flat), entry.function, entry.custom]
        .into_iter()
        .flatten()
    {
        if let Some(name) = named.name {
            let schema = named.schema;
            add(
                offers,
                name.into_owned(),
                ToolKind::Function { schema },
                place,
            )?;
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

const AMBIGUOUS: &str = "can be read as more than one kind of tool";

impl Entry<'_> {
    /// Names a server or a hosted tool besides what its type says.
    fn is_more(&self) -> bool {
        self.server.is_some() || self.others.iter().any(|other| is_hosted(other))
    }
}

impl Named<'_> {
    /// Nothing but the same name once more, as some clients write it.
    fn adds_nothing_to(&self, nested: &Named<'_>) -> bool {
        self.schema.is_none() && (self.name.is_none() || self.name == nested.name)
    }
}

/// Whether some gateway reads a member of this name as a hosted tool, whatever stands beside.
fn is_hosted(member: &str) -> bool {
    let folded = member.replace('_', "").to_lowercase();
    HOSTED_MEMBERS.iter().any(|known| folded.starts_with(known))
}

/// Without underscores, in lower case; a date may follow.
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
