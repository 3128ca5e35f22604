//! URLs that every reader sends to the same host.

use url::Url;

/// `example.com`, `*.example.com` (what stands below it), each with `:PORT` if it is not the
/// scheme's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    /// In lower case, as it stands in a URL.
    name: Box<str>,
    /// What stands below the name, not the name itself.
    below: bool,
    port: Option<u16>,
}

impl HostPattern {
    /// `None` if it is no host as it would stand in a plain URL.
    pub fn parse(text: &str) -> Option<Self> {
        let (below, host) = match text.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, text),
        };
        if host.contains('*') {
            return None;
        }
        let url = plain(&format!("http://{host}/"))?;
        // The scheme's own port is left out by the reader, and so is not one to be named.
        (url.path() == "/" && url.query().is_none() && url.fragment().is_none()).then_some(())?;
        Some(Self {
            name: url.host_str()?.into(),
            below,
            port: url.port(),
        })
    }

    /// Whether `text` is a plain http(s) URL of this host.
    pub(super) fn matches(&self, text: &str) -> bool {
        let Some(url) = plain(text) else {
            return false;
        };
        let Some(host) = url.host_str() else {
            return false;
        };
        let named = match self.below {
            false => *self.name == *host,
            true => host
                .strip_suffix(&*self.name)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        };
        named && self.port == url.port()
    }
}

/// A URL whose host stands in it as readers take it: no user, no other characters than a host
/// has, no number for an address, nothing that one reader drops and another one obeys.
fn plain(text: &str) -> Option<Url> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('\\') {
        return None;
    }
    let (scheme, rest) = text.split_once("://")?;
    let url = Url::parse(text).ok()?;
    if !scheme.eq_ignore_ascii_case(url.scheme()) || !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?.to_ascii_lowercase();
    let host = url.host_str()?;
    let as_read = match url.port_or_known_default() {
        Some(port) if authority.ends_with(&format!(":{port}")) => format!("{host}:{port}"),
        _ => host.to_owned(),
    };
    let dotted = host.ends_with('.') || host.starts_with('.') || host.contains("..");
    (authority == as_read && !dotted).then_some(url)
}
