//! Where things are: URLs, origins, the store, header names. No complaint repeats a URL, since
//! it may hold a password.

use std::path::PathBuf;

use http::HeaderName;
use toml::de::DeValue;
use url::Url;

use super::{StoreUrl, values::text};

type Read<T> = Result<T, String>;

/// The start of a provider's paths, such as `https://api.openai.com/v1`.
pub(super) fn base_url(value: &DeValue<'_>) -> Read<Url> {
    let mut url = Url::parse(text(value)?)
        .map_err(|error| format!("is no URL such as \"https://api.openai.com/v1\": {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("must begin with https:// or http:// and a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user or a password; a credential belongs in api_key".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must end with its path, without ? and #".to_owned());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    if path.ends_with("/chat/completions") {
        return Err("must end before /chat/completions, which is added to it".to_owned());
    }
    url.set_path(&path);
    Ok(url)
}

/// The start of a collector's paths, such as `http://127.0.0.1:4318`, with what is added to it.
pub(super) fn collector(value: &DeValue<'_>) -> Read<Url> {
    let mut url = Url::parse(text(value)?)
        .map_err(|error| format!("is no URL such as \"http://127.0.0.1:4318\": {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("must begin with https:// or http:// and a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user or a password; credentials belong in headers".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must end with its path, without ? and #".to_owned());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    if path.ends_with(TRACES) {
        return Err(format!("must end before {TRACES}, which is added to it"));
    }
    url.set_path(&format!("{path}{TRACES}"));
    Ok(url)
}

/// Where OTLP over HTTP takes traces.
const TRACES: &str = "/v1/traces";

/// Where to send word of waiting calls.
pub(super) fn parse_hook(text: &str) -> Read<Url> {
    let url = Url::parse(text)
        .map_err(|error| format!("is no URL such as \"https://hooks.example.com/…\": {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("must begin with https:// or http:// and a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user or a password; receivers check the signature".to_owned());
    }
    Ok(url)
}

/// Where people reach the console.
pub(super) fn console_url(value: &DeValue<'_>) -> Read<Url> {
    let mut url = Url::parse(text(value)?)
        .map_err(|error| format!("is no URL such as \"https://tallygate.example.com\": {error}"))?;
    let plain = url.username().is_empty() && url.password().is_none();
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !plain {
        return Err("must begin with https:// or http:// and a host".to_owned());
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err("must end with the host or its port: the console is at its root".to_owned());
    }
    url.set_path("/");
    Ok(url)
}

/// The name of a host, without a port.
pub(super) fn host(value: &DeValue<'_>) -> Read<String> {
    let text = text(value)?;
    match url::Host::parse(text) {
        Ok(url::Host::Domain(name)) if name == text.to_ascii_lowercase() => Ok(name),
        _ => Err("is no name such as \"tallygate.internal\", without a port".to_owned()),
    }
}

pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// An origin as browsers send it, or `*`.
pub(super) fn origin(value: &DeValue<'_>) -> Read<String> {
    let text = text(value)?;
    let exact = Url::parse(text).is_ok_and(|url| url.origin().ascii_serialization() == text);
    if text != "*" && !exact {
        return Err("is no origin such as \"https://app.example.com\", without a path".to_owned());
    }
    Ok(text.to_owned())
}

/// `sqlite:PATH`, the path as written.
pub(super) fn store(value: &DeValue<'_>) -> Read<StoreUrl> {
    let text = text(value)?;
    if ["postgres:", "postgresql:"]
        .iter()
        .any(|scheme| text.starts_with(scheme))
    {
        return Err("PostgreSQL is not in this version; write \"sqlite:PATH\"".to_owned());
    }
    match text.strip_prefix("sqlite:") {
        Some(path) if !path.is_empty() && !path.contains(['?', '#']) && path != ":memory:" => {
            let path = path.strip_prefix("//").unwrap_or(path);
            Ok(StoreUrl::Sqlite(PathBuf::from(path)))
        }
        _ => Err("must be \"sqlite:PATH\", such as \"sqlite:../var/tallygate.db\"".to_owned()),
    }
}

/// A client header that may go on to a provider.
pub(super) fn forwardable(value: &DeValue<'_>) -> Read<HeaderName> {
    let text = text(value)?;
    let name = HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| format!("{text:?} is no header name"))?;
    if NEVER_FORWARDED.contains(&name.as_str()) {
        return Err(format!(
            "{name} is never forwarded: it holds a credential or concerns one connection only"
        ));
    }
    Ok(name)
}

const NEVER_FORWARDED: &[&str] = &[
    "accept-encoding",
    "api-key",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-api-key",
    "x-goog-api-key",
];
