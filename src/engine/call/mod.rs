//! A request as the guards see it, for chat completions or for responses: read once, in one pass, without building a tree.
//!
//! Members that no rule looks at are only checked to be JSON and stay as they came; `rewrite`
//! changes single members and leaves every other byte alone.

pub mod cursor;
mod history;
mod messages;
pub mod offers;
mod responses;
mod rewrite;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use self::cursor::{Cursor, NotText, Span};
use self::offers::{Companions, Offers};
pub use self::responses::Reference;
pub use self::rewrite::Edits;
pub use self::{
    history::{History, Step},
    messages::Content,
};

/// Deeper JSON is refused: some readers give up there, and a guard must see what they see.
pub const MAX_DEPTH: usize = 128;
/// More answers to one question than this are a mistake.
const MAX_CHOICES: u64 = 128;
/// Longer names are no model's. Bytes.
const LONGEST_MODEL: usize = 256;

/// Members that let the provider choose another model, place or credential by itself.
const SUBSTITUTES: &[&str] = &[
    "models",
    "fallbacks",
    "route",
    "api_base",
    "base_url",
    "api_key",
    "provider",
    "plugins",
    "preset",
    "transforms",
];
/// Members in which clients name an output cap.
pub const CAP_MEMBERS: &[&str] = &["max_completion_tokens", "max_tokens", "max_output_tokens"];

/// A request that cannot be read; the message is for its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidRequest {
    pub message: String,
    pub param: Option<String>,
}

/// Which of OpenAI's APIs a request and its answer speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Api {
    #[default]
    Chat,
    Responses,
}

/// What the guards need of a request. Spans are byte ranges of the body.
#[derive(Debug, Default)]
pub struct ChatRequest {
    pub api: Api,
    pub model: String,
    pub stream: bool,
    /// `stream_options.include_usage`, if the client sent it.
    pub include_usage: Option<bool>,
    /// The largest output cap that the client named, and in which member.
    pub cap: Option<(&'static str, u64)>,
    /// How many answers are asked for.
    pub choices: u64,
    /// The first member through which the provider could step past the model rules.
    pub substitute: Option<&'static str>,
    pub content: Content,
    /// The tools that the model may be told of.
    pub offers: Offers,
    /// The answer must be JSON: a text of ours in its place would be no answer.
    pub json_answer: bool,
    /// Sound is sent along or asked for.
    pub audio: bool,
    /// What of earlier answers it builds on.
    pub references: Vec<Reference>,
    spans: Spans,
}

/// Where the members stand that `rewrite` may change: (name, start of name, value start, end).
#[derive(Debug, Default)]
struct Spans {
    members: Vec<Member>,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    name: &'static str,
    start: usize,
    end: usize,
}

impl ChatRequest {
    /// Reads a whole body of a chat completion.
    ///
    /// # Errors
    /// Not JSON, nested too deep, a member of the wrong type, or one that matters twice.
    pub fn read(body: &[u8]) -> Result<Self, InvalidRequest> {
        Self::read_as(Api::Chat, body)
    }

    /// Reads a whole body of either API.
    ///
    /// # Errors
    /// The same.
    pub fn read_as(api: Api, body: &[u8]) -> Result<Self, InvalidRequest> {
        let text = std::str::from_utf8(body)
            .map_err(|_| invalid("The request body is not valid UTF-8.", None))?;
        if depth(body) > MAX_DEPTH {
            let message = format!("The request body is nested deeper than {MAX_DEPTH} levels.");
            return Err(invalid(message, None));
        }
        let raw: RawRequest<'_> = serde_json::from_str(text)
            .map_err(|error| invalid(format!("The request body cannot be read: {error}."), None))?;
        raw.check(api, text)
    }

    /// A blocked call can only be told as an error: the request forces a call, or JSON.
    pub fn forces_structure(&self) -> bool {
        self.offers.choice.forces || self.json_answer
    }

    /// Bytes of all tools that are offered.
    pub fn tool_bytes(&self) -> u64 {
        let tools = |member: &&Member| matches!(member.name, "tools" | "functions");
        self.spans
            .members
            .iter()
            .filter(tools)
            .map(|tool| (tool.end - tool.start) as u64)
            .sum()
    }

    /// More than one cap member stands in the body.
    pub fn several_caps(&self) -> bool {
        self.spans
            .members
            .iter()
            .filter(|member| CAP_MEMBERS.contains(&member.name))
            .count()
            > 1
    }

    /// The body to send upstream: the same bytes where nothing has to change.
    pub fn rewrite(&self, body: &bytes::Bytes, edits: &Edits<'_>) -> bytes::Bytes {
        rewrite::rewrite(self, body, edits)
    }
}

impl Companions for ChatRequest {
    fn value_of(&self, name: &str) -> Option<Span> {
        let member = self
            .spans
            .members
            .iter()
            .find(|member| member.name == name)?;
        Some(member.start..member.end)
    }
}

/// The one of `known` that a reader takes `name` for who does not mind the case, as those written
/// in Go do, although it is spelled otherwise.
fn misspelt(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let fold = |char: char| match char {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        plain => plain.to_ascii_lowercase(),
    };
    let plain = name.is_ascii();
    let same = |known: &&&str| {
        (!plain || name.len() == known.len())
            && name != **known
            && name.chars().map(fold).eq(known.chars().map(fold))
    };
    known.iter().find(same).copied()
}

fn invalid(message: impl Into<String>, param: Option<&str>) -> InvalidRequest {
    InvalidRequest {
        message: message.into(),
        param: param.map(str::to_owned),
    }
}

/// How deep brackets nest outside strings. Iterative: depth cannot overflow our stack.
pub(super) fn depth(body: &[u8]) -> usize {
    let (mut depth, mut deepest, mut at) = (0_usize, 0_usize, 0_usize);
    while let Some(&byte) = body.get(at) {
        match byte {
            b'"' => at = skip_string(body, at),
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    deepest
}

/// From an opening quote to the closing one.
fn skip_string(body: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while let Some(rest) = body.get(at..) {
        match memchr::memchr2(b'"', b'\\', rest) {
            None => return body.len(),
            Some(step) if rest.get(step) == Some(&b'"') => return at + step,
            Some(step) => at += step + 2,
        }
    }
    body.len()
}

/// The top level as it stands: raw values of the members that matter.
#[derive(Default)]
struct RawRequest<'a> {
    known: Vec<(&'static str, &'a RawValue)>,
    messages: Option<Content>,
    duplicate: Option<&'static str>,
    misspelt: Option<&'static str>,
}

/// Every member that something here acts on. A second one of the same name is refused, since
/// readers disagree on which of two counts.
const ACTED_ON: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "n",
    "tools",
    "functions",
    "tool_choice",
    "function_call",
    "parallel_tool_calls",
    "response_format",
    "service_tier",
    "modalities",
    "audio",
    "input",
    "instructions",
    "text",
    "previous_response_id",
    "background",
    "conversation",
];

impl<'de> Deserialize<'de> for RawRequest<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RequestVisitor)
    }
}

struct RequestVisitor;

impl<'de> Visitor<'de> for RequestVisitor {
    type Value = RawRequest<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut request = RawRequest::default();
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            let lists = [ACTED_ON, CAP_MEMBERS, SUBSTITUTES, offers::WHOLE];
            let Some(known) = lists.into_iter().flatten().find(|known| **known == name) else {
                let taken_for = lists.iter().find_map(|list| misspelt(&name, list));
                request.misspelt = request.misspelt.or(taken_for);
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let repeated = request.known.iter().any(|(seen, _)| seen == known)
                || (*known == "messages" && request.messages.is_some());
            if repeated {
                request.duplicate = Some(known);
            }
            if *known == "messages" {
                request.messages = Some(map.next_value()?);
            } else {
                request.known.push((known, map.next_value()?));
            }
        }
        Ok(request)
    }
}

impl RawRequest<'_> {
    fn check(self, api: Api, text: &str) -> Result<ChatRequest, InvalidRequest> {
        if let Some(name) = self.duplicate {
            let message = format!("The request holds the member {name:?} twice.");
            return Err(invalid(message, Some(name)));
        }
        if let Some(name) = self.misspelt {
            let message = format!(
                "The request holds a member that some readers take for {name:?}, although it is \
                 spelled otherwise. Write it as {name:?}, or leave it out."
            );
            return Err(invalid(message, Some(name)));
        }
        let mut request = ChatRequest {
            api,
            choices: 1,
            ..ChatRequest::default()
        };
        for (name, raw) in &self.known {
            request.spans.members.push(span(name, raw, text));
            if api == Api::Responses && responses::member(&mut request, name, raw, text)? {
                continue;
            }
            request.take(name, raw, text)?;
        }
        if request.model.is_empty() {
            return Err(invalid("The request names no model.", Some("model")));
        }
        let held = request.api.input_member();
        request.take_content(self.messages)?;
        if request.content.carries_tools {
            let items = member_value(text.as_bytes(), held);
            request.offers.items(text.as_bytes(), held, items)?;
        }
        request.offers.check()?;
        request.audio |= request.content.media_bytes > 0;
        if let Some(fault) = request.content.fault.take() {
            return Err(invalid(fault, Some(held)));
        }
        Ok(request)
    }
}

impl Api {
    /// Where a provider serves it, below its base URL.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "chat/completions",
            Self::Responses => "responses",
        }
    }

    /// The member that holds what the model is to answer.
    fn input_member(self) -> &'static str {
        match self {
            Self::Chat => "messages",
            Self::Responses => "input",
        }
    }
}

impl ChatRequest {
    /// Takes a member that something acts on.
    fn take(
        &mut self,
        name: &'static str,
        raw: &RawValue,
        text: &str,
    ) -> Result<(), InvalidRequest> {
        match name {
            "model" => self.model = read_model(raw)?,
            "stream" => self.stream = read_bool(raw, "stream")?.unwrap_or(false),
            "stream_options" => self.include_usage = read_stream_options(raw)?,
            "n" => self.choices = read_count(raw, "n", MAX_CHOICES)?.unwrap_or(1),
            "tools" | "functions" => self.read_tools(name, raw, text)?,
            "tool_choice" | "function_call" => {
                let value = span(name, raw, text).value();
                self.offers.choice(text.as_bytes(), name, value)?;
            }
            "response_format" => self.json_answer = !is_text_format(raw),
            "modalities" | "audio" => {
                self.audio |= raw.get() != "null" && raw.get() != "[\"text\"]";
            }
            name if offers::WHOLE.contains(&name) => self.read_tools(name, raw, text)?,
            name if CAP_MEMBERS.contains(&name) => {
                if let Some(cap) = read_count(raw, name, u64::MAX)?
                    && self.cap.is_none_or(|(_, known)| cap > known)
                {
                    self.cap = Some((name, cap));
                }
            }
            name if SUBSTITUTES.contains(&name) && raw.get() != "null" => {
                self.substitute.get_or_insert(name);
            }
            _ => {}
        }
        Ok(())
    }

    /// `messages` are those of a chat; a response's input has been read already.
    fn take_content(&mut self, messages: Option<Content>) -> Result<(), InvalidRequest> {
        match (self.api, messages) {
            (Api::Chat, messages) => self.content = messages.unwrap_or_default(),
            (Api::Responses, None) => {}
            (Api::Responses, Some(_)) => {
                let message = "A request for a response has its messages in \"input\".";
                return Err(invalid(message, Some("messages")));
            }
        }
        // An earlier answer can be gone on with as it is.
        if self.content.messages > 0 || !self.references.is_empty() {
            return Ok(());
        }
        let member = self.api.input_member();
        Err(invalid(
            format!("The request holds no {member}."),
            Some(member),
        ))
    }

    fn read_tools(
        &mut self,
        name: &'static str,
        raw: &RawValue,
        text: &str,
    ) -> Result<(), InvalidRequest> {
        let value = span(name, raw, text).value();
        self.offers.member(text.as_bytes(), name, value)
    }
}

impl Member {
    fn value(self) -> Span {
        self.start..self.end
    }
}

/// Where a member of the body has its value; at the end if there is none.
fn member_value(body: &[u8], wanted: &str) -> Span {
    let nowhere = body.len()..body.len();
    let mut found = nowhere.clone();
    let read: Result<Span, NotText> = Cursor::new(body, 0).object(|cursor, name| {
        if name == wanted {
            found = cursor.skip();
        }
        Ok(())
    });
    read.map_or(nowhere, |_| found)
}

/// Anything but plain text counts as a form that the answer must have.
fn is_text_format(raw: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Format<'a> {
        #[serde(rename = "type", borrow)]
        kind: std::borrow::Cow<'a, str>,
    }
    raw.get() == "null"
        || serde_json::from_str(raw.get()).is_ok_and(|format: Format<'_>| format.kind == "text")
}

/// `raw` borrows from `text`, so its place is the difference of their addresses.
fn span(name: &'static str, raw: &RawValue, text: &str) -> Member {
    let start = (raw.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    Member {
        name,
        start,
        end: start + raw.get().len(),
    }
}

fn read_model(raw: &RawValue) -> Result<String, InvalidRequest> {
    let model: String = serde_json::from_str(raw.get())
        .map_err(|_| invalid("The member \"model\" must be a string.", Some("model")))?;
    if model.trim().is_empty() {
        return Err(invalid("The request names no model.", Some("model")));
    }
    // It stands in records and refusals, which must not hold whatever a client likes.
    if model.len() > LONGEST_MODEL {
        return Err(invalid("The name of the model is too long.", Some("model")));
    }
    Ok(model)
}

fn read_bool(raw: &RawValue, name: &'static str) -> Result<Option<bool>, InvalidRequest> {
    match raw.get() {
        "null" => Ok(None),
        "true" => Ok(Some(true)),
        "false" => Ok(Some(false)),
        _ => Err(invalid(
            format!("The member {name:?} must be true or false."),
            Some(name),
        )),
    }
}

fn read_count(
    raw: &RawValue,
    name: &'static str,
    most: u64,
) -> Result<Option<u64>, InvalidRequest> {
    if raw.get() == "null" {
        return Ok(None);
    }
    match raw.get().parse::<u64>() {
        Ok(count) if (1..=most).contains(&count) => Ok(Some(count)),
        _ => Err(invalid(
            format!("The member {name:?} must be a positive integer."),
            Some(name),
        )),
    }
}

fn read_stream_options(raw: &RawValue) -> Result<Option<bool>, InvalidRequest> {
    #[derive(Deserialize)]
    struct StreamOptions {
        include_usage: Option<bool>,
    }
    serde_json::from_str::<Option<StreamOptions>>(raw.get())
        .map(|options| options.and_then(|options| options.include_usage))
        .map_err(|_| {
            invalid(
                "The member \"stream_options\" cannot be read.",
                Some("stream_options"),
            )
        })
}
