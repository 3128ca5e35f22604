//! Servers of tools that the provider calls by itself (MCP): which one is it, which of its tools
//! may be called, and is anybody asked before?
//!
//! A server is named by the host of its address, or by the id of its connector or tunnel. An
//! address that two readers could take for two hosts is refused.

use std::borrow::Cow;

use super::{Fault, Members, definition::text};
use crate::engine::{
    call::{
        InvalidRequest,
        cursor::{Cursor, Span},
        invalid,
    },
    names::clean_name,
};

#[derive(Debug, PartialEq, Eq)]
pub struct Server {
    /// As rules name it: `mcp:mcp.example`, `mcp:mcp.example:8443`, `mcp:connector_drive`.
    pub name: Box<str>,
    /// What choices, calls and approvals in the conversation name it by.
    pub label: Box<str>,
    /// The tools that may be called, if the request limits them.
    pub tools: Option<Vec<Box<str>>>,
    pub asks: Asks,
}

/// Whether the provider asks before it calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asks {
    /// Before each call: then we see and judge it.
    Always,
    /// Not always; holds the value that says so.
    Not(Span),
}

/// The members of an entry that speak of a server.
#[derive(Default)]
pub(super) struct ServerParts<'a> {
    label: Option<Cow<'a, str>>,
    url: Option<Cow<'a, str>>,
    connector: Option<Cow<'a, str>>,
    tunnel: Option<Cow<'a, str>>,
    tools: Option<Vec<Box<str>>>,
    asks: Option<Asks>,
}

impl<'a> ServerParts<'a> {
    /// Takes a member if it is one of these.
    pub fn member(&mut self, cursor: &mut Cursor<'a>, name: &str) -> Result<bool, Fault> {
        match name {
            "server_label" => self.label = Some(text(cursor, "server_label")?),
            "server_url" => self.url = Some(text(cursor, "server_url")?),
            "connector_id" => self.connector = Some(text(cursor, "connector_id")?),
            "tunnel_id" => self.tunnel = Some(text(cursor, "tunnel_id")?),
            "allowed_tools" => self.tools = Some(allowed(cursor)?),
            "headers" => headers(cursor)?,
            "require_approval" => self.asks = Some(asks(cursor)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether a server is named.
    pub fn is_some(&self) -> bool {
        self.url.is_some() || self.connector.is_some() || self.tunnel.is_some()
    }
}

pub(super) fn server(parts: ServerParts<'_>) -> Result<Server, Fault> {
    let name = match (parts.url, parts.connector, parts.tunnel) {
        (Some(url), None, None) => host(&url).ok_or(
            "has a server_url that is no plain http or https address; write it without user \
             name, escapes and letters outside ASCII",
        )?,
        (None, Some(id), None) | (None, None, Some(id)) => id_name(&id)?,
        (None, None, None) => return Err("names no server".into()),
        _ => return Err("names a server in more than one way".into()),
    };
    Ok(Server {
        name: format!("mcp:{name}").into(),
        label: parts.label.unwrap_or_default().into(),
        tools: parts.tools,
        // Nothing said means "always" to the provider.
        asks: parts.asks.unwrap_or(Asks::Always),
    })
}

/// No two servers of one label: calls and approvals name nothing else. The same server may be
/// named again, as items do.
pub(super) fn check(servers: &[Server]) -> Result<(), InvalidRequest> {
    let mut named: Vec<_> = servers
        .iter()
        .map(|server| (&*server.label, &*server.name))
        .collect();
    named.sort_unstable();
    let twice = named.windows(2).find_map(|pair| match pair {
        [(one, this), (other, that)] if one == other && this != that => Some(*one),
        _ => None,
    });
    match twice {
        Some(label) => Err(invalid(
            format!(
                "Two MCP servers have the server_label {:?}.",
                clean_name(label)
            ),
            Some("tools"),
        )),
        None => Ok(()),
    }
}

fn id_name(id: &str) -> Result<String, Fault> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if id.is_empty() || id.len() > 256 || !id.bytes().all(plain) {
        return Err(format!(
            "has the connector {:?}, which is no plain id",
            clean_name(id)
        )
        .into());
    }
    Ok(id.to_owned())
}

/// The host of an address in lower case, with the port unless it is that of https. `None` if
/// any common reader could see another host: readers disagree on user names, backslashes,
/// escapes, white space, numbers as addresses and on how foreign letters are written in ASCII.
fn host(address: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    if !address.bytes().all(plain) {
        return None;
    }
    let (scheme, rest) = address.split_once("://")?;
    let usual = match scheme.to_ascii_lowercase().as_str() {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?.to_ascii_lowercase();
    let in_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if !authority.bytes().all(in_host) {
        return None;
    }
    let parsed = url::Url::parse(address).ok()?;
    let port = parsed.port().unwrap_or(usual);
    let host = parsed.host_str()?;
    // What the parser had to change, others may read as it stands.
    let as_written = [host.to_owned(), format!("{host}:{port}")].contains(&authority);
    let host = host.strip_suffix('.').unwrap_or(host);
    if !as_written || host.is_empty() || host.ends_with('.') {
        return None;
    }
    Some(match (usual, port) {
        (443, 443) => host.to_owned(),
        _ => format!("{host}:{port}"),
    })
}

/// `[names]` or `{tool_names: [names], read_only}`.
fn allowed(cursor: &mut Cursor<'_>) -> Result<Vec<Box<str>>, Fault> {
    let mut names = None;
    match cursor.first() {
        b'[' => names = Some(list_of_names(cursor)?),
        b'{' => {
            let mut members = Members::default();
            cursor.object(|cursor, name| {
                if name == "tool_names" && !cursor.is_null() {
                    names = Some(list_of_names(cursor)?);
                }
                members.note(name)
            })?;
        }
        _ => {}
    }
    names.ok_or_else(|| "holds \"allowed_tools\" without a list of names".into())
}

/// A header that names the host sends the request to another server behind the same address.
fn headers(cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    cursor.object(|_, name| match name.trim().to_ascii_lowercase().as_str() {
        "host" | ":authority" => Err(Fault::from("holds a header that names another host")),
        _ => Ok(()),
    })?;
    Ok(())
}

fn list_of_names(cursor: &mut Cursor<'_>) -> Result<Vec<Box<str>>, Fault> {
    if cursor.first() != b'[' {
        return Err("holds \"allowed_tools\", which is no list of names".into());
    }
    let mut names = Vec::new();
    cursor.array(|cursor| {
        names.push(text(cursor, "allowed_tools")?.into());
        Ok::<(), Fault>(())
    })?;
    Ok(names)
}

/// Anything but the plain word counts as "not always": filters leave some tools unasked.
fn asks(cursor: &mut Cursor<'_>) -> Result<Asks, Fault> {
    let mut ahead = cursor.clone();
    let span = cursor.skip();
    Ok(match ahead.string()?.as_deref() {
        Some("always") => Asks::Always,
        _ => Asks::Not(span),
    })
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn a_server_is_known_by_its_host() {
        for (address, name) in [
            ("https://mcp.example/mcp", "mcp.example"),
            ("https://MCP.Example:443/x?y#z", "mcp.example"),
            ("https://mcp.example.", "mcp.example"),
            ("HTTPS://mcp.example:8443", "mcp.example:8443"),
            ("http://mcp.example/", "mcp.example:80"),
            ("https://xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("https://[::1]:8080/", "[::1]:8080"),
            ("https://127.0.0.1/", "127.0.0.1"),
            // Behind the host everything is only a path.
            ("https://mcp.example/@evil.example", "mcp.example"),
            ("https://mcp.example?@evil.example", "mcp.example"),
        ] {
            assert_eq!(host(address).as_deref(), Some(name), "{address}");
        }
    }

    #[test]
    fn an_address_that_could_mean_two_hosts_is_refused() {
        for address in [
            "https://mcp.example@evil.example/",
            "https://user:pass@mcp.example/",
            "https://@mcp.example/",
            "https://mcp.example\\@evil.example/",
            "https:\\\\mcp.example/",
            "https:mcp.example",
            "https:///mcp.example/",
            "https://mcp.example:443:8443/",
            "https://mcp%2eexample/",
            "https://mcp.example%00.evil.example/",
            "https://mcp.example\u{3002}evil.example/",
            "https://b\u{fc}cher.example/",
            "https://mcp.ex\u{430}mple/",
            "https://mcp.exam\tple/",
            "https://mcp.example\n.evil.example/",
            " https://mcp.example/",
            "https://mcp.example /",
            "https://mcp.example../",
            "https://0x7f.1/",
            "https://2130706433/",
            "https://[::ffff:127.0.0.1]/",
            "https://mcp.example:0443/",
            "https://mcp.example:99999/",
            "https://mcp.example:/",
            "ftp://mcp.example/",
            "javascript://mcp.example/",
            "//mcp.example/",
            "mcp.example",
            "https://",
            "",
        ] {
            assert_eq!(host(address), None, "{address}");
        }
    }
}
