//! Byte-exact changes to a request body: the members named in `Edits`, nothing else.

use bytes::Bytes;

use super::{CAP_MEMBERS, ChatRequest, offers};

/// What has to differ upstream.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Edits<'a> {
    /// The model's name at the provider.
    pub model: Option<&'a str>,
    /// Ask a stream for its usage.
    pub include_usage: bool,
    /// The output cap, and the one member it goes in.
    pub cap: Option<(&'a str, u64)>,
    /// What the judgement of the offered tools takes out or changes.
    pub tools: &'a [offers::Patch],
}

/// A piece of the body to replace: from, to, by what.
type Patch = (usize, usize, String);

pub(super) fn rewrite(request: &ChatRequest, body: &Bytes, edits: &Edits<'_>) -> Bytes {
    let mut patches: Vec<Patch> = Vec::new();
    let mut inserted = String::new();
    if let Some(model) = edits.model {
        set(
            request,
            "model",
            &quoted(model),
            &mut patches,
            &mut inserted,
        );
    }
    if let Some((member, cap)) = edits.cap {
        set_cap(request, body, (member, cap), &mut patches, &mut inserted);
    }
    if edits.include_usage {
        let value = with_usage(request, body);
        set(
            request,
            "stream_options",
            &value,
            &mut patches,
            &mut inserted,
        );
    }
    let tools = edits.tools.iter();
    patches.extend(tools.map(|patch| (patch.at.start, patch.at.end, patch.text.to_string())));
    if patches.is_empty() && inserted.is_empty() {
        return body.clone();
    }
    if !inserted.is_empty() {
        // `model` and `messages` stay whatever else goes, so a comma may follow.
        let open = memchr::memchr(b'{', body).map_or(0, |at| at + 1);
        patches.push((open, open, inserted));
    }
    apply(body, patches)
}

fn set(
    request: &ChatRequest,
    name: &str,
    value: &str,
    patches: &mut Vec<Patch>,
    inserted: &mut String,
) {
    match request
        .spans
        .members
        .iter()
        .find(|member| member.name == name)
    {
        Some(member) => patches.push((member.start, member.end, value.to_owned())),
        None => inserted.push_str(&format!("{}:{value},", quoted(name))),
    }
}

/// One cap goes upstream: in `member`; the others become null, which every server reads as
/// "not given" and which needs no surgery on commas.
fn set_cap(
    request: &ChatRequest,
    body: &Bytes,
    (member, cap): (&str, u64),
    patches: &mut Vec<Patch>,
    inserted: &mut String,
) {
    for other in request
        .spans
        .members
        .iter()
        .filter(|m| CAP_MEMBERS.contains(&m.name))
    {
        let already_null = body.get(other.start..other.end) == Some(b"null");
        if other.name != member && !already_null {
            patches.push((other.start, other.end, "null".to_owned()));
        }
    }
    set(request, member, &cap.to_string(), patches, inserted);
}

/// `stream_options` with `include_usage` true, its other members kept.
fn with_usage(request: &ChatRequest, body: &Bytes) -> String {
    const USAGE: &str = "\"include_usage\":true";
    let options = request
        .spans
        .members
        .iter()
        .find(|member| member.name == "stream_options")
        .and_then(|member| body.get(member.start..member.end))
        .and_then(|raw| serde_json::from_slice::<serde_json::Map<_, serde_json::Value>>(raw).ok());
    match options {
        Some(mut options) if !options.is_empty() => {
            options.insert("include_usage".to_owned(), true.into());
            serde_json::Value::Object(options).to_string()
        }
        _ => format!("{{{USAGE}}}"),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn apply(body: &Bytes, mut patches: Vec<Patch>) -> Bytes {
    // What is put in at a place comes before what is taken out there.
    patches.sort_by_key(|(start, end, _)| (*start, *end));
    let grown: usize = patches.iter().map(|(.., text)| text.len()).sum();
    let mut out = Vec::with_capacity(body.len() + grown);
    let mut from = 0;
    for (start, end, text) in &patches {
        out.extend_from_slice(body.get(from..*start).unwrap_or_default());
        out.extend_from_slice(text.as_bytes());
        from = *end;
    }
    out.extend_from_slice(body.get(from..).unwrap_or_default());
    out.into()
}
