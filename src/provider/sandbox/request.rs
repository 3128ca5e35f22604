//! Reads a request of either API into what the sandbox acts on.

use serde_json::{Map, Value};

use super::{Endpoint, MAX_OUTPUT_TOKENS, refusal::Refusal};

/// Four bytes, as `mod.rs` says.
const TOKEN_BYTES: u64 = 4;

pub(super) struct Asked {
    pub model: Model,
    pub stream: bool,
    pub include_usage: bool,
    pub choices: usize,
    /// The longest answer in bytes; never above the models' own maximum.
    pub max_bytes: usize,
    pub prompt_tokens: u64,
    pub user_text: String,
    /// Tool results after the last message of anyone else.
    pub tool_results: Vec<String>,
    /// How many times tools have answered since the last user message; results that stand
    /// together are one answer.
    pub answered_turns: usize,
    /// The request as it came: a Responses object repeats parts of it.
    pub body: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Model {
    Echo,
    Agent,
}

impl Model {
    pub fn name(self) -> &'static str {
        match self {
            Self::Echo => "sandbox-echo",
            Self::Agent => "sandbox-agent",
        }
    }
}

pub(super) fn tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(TOKEN_BYTES)
}

impl Asked {
    pub fn read(endpoint: Endpoint, request: &[u8]) -> Result<Self, Refusal> {
        let body: Map<String, Value> = serde_json::from_slice(request).map_err(|error| {
            Refusal::invalid(None, format!("The body is not a JSON object: {error}."))
        })?;
        let model = model(endpoint, &body)?;
        let turns = turns(endpoint, &body)?;
        let stream = flag(&body, "stream")?;
        let cap = cap(endpoint, &body)?
            .unwrap_or(MAX_OUTPUT_TOKENS)
            .min(MAX_OUTPUT_TOKENS);
        let choices = match endpoint {
            Endpoint::Chat => positive(&body, "n")?.unwrap_or(1),
            Endpoint::Responses => 1,
        };
        if choices > 128 {
            return Err(Refusal::invalid(Some("n"), "'n' must be from 1 to 128."));
        }
        Ok(Self {
            model,
            stream,
            include_usage: include_usage(&body, stream)?,
            choices: choices as usize,
            max_bytes: (cap * TOKEN_BYTES) as usize,
            prompt_tokens: prompt_tokens(&body),
            user_text: turns
                .iter()
                .rev()
                .find(|turn| turn.by_user())
                .map_or_else(String::new, text),
            tool_results: tool_results(&turns),
            answered_turns: answered_turns(&turns),
            body,
        })
    }
}

fn model(endpoint: Endpoint, body: &Map<String, Value>) -> Result<Model, Refusal> {
    let Some(Value::String(name)) = body.get("model") else {
        return Err(Refusal::invalid(Some("model"), "'model' must be a string."));
    };
    match name.as_str() {
        "sandbox-echo" => Ok(Model::Echo),
        "sandbox-agent" => Ok(Model::Agent),
        _ => Err(Refusal::unknown_model(endpoint, name)),
    }
}

/// The conversation: `messages`, or `input` as a text or items.
fn turns(endpoint: Endpoint, body: &Map<String, Value>) -> Result<Vec<Turn<'_>>, Refusal> {
    let member = match endpoint {
        Endpoint::Chat => "messages",
        Endpoint::Responses => "input",
    };
    match (endpoint, body.get(member)) {
        (Endpoint::Responses, Some(text @ Value::String(_))) => Ok(vec![Turn::Text(text)]),
        (_, Some(Value::Array(turns))) if !turns.is_empty() => {
            let objects = turns.iter().map(|turn| turn.as_object().map(Turn::Object));
            objects.collect::<Option<Vec<_>>>().ok_or_else(|| {
                Refusal::invalid(Some(member), format!("'{member}' must hold objects."))
            })
        }
        _ => Err(Refusal::invalid(
            Some(member),
            format!("'{member}' is missing or empty."),
        )),
    }
}

/// One message or input item.
enum Turn<'a> {
    Text(&'a Value),
    Object(&'a Map<String, Value>),
}

impl Turn<'_> {
    fn by_user(&self) -> bool {
        match self {
            Self::Text(_) => true,
            Self::Object(turn) => turn.get("role").and_then(Value::as_str) == Some("user"),
        }
    }

    fn is_tool_result(&self) -> bool {
        let Self::Object(turn) = self else {
            return false;
        };
        let of = |member: &str| turn.get(member).and_then(Value::as_str).unwrap_or_default();
        matches!(of("role"), "tool" | "function") || of("type").ends_with("_call_output")
    }
}

/// The text of a turn: a string, or the text parts of an array, a line each.
fn text(turn: &Turn<'_>) -> String {
    let content = match turn {
        Turn::Text(text) => Some(*text),
        Turn::Object(turn) => turn.get("content").or_else(|| turn.get("output")),
    };
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts: Vec<_> = parts
                .iter()
                .filter_map(|part| part.get("text")?.as_str())
                .collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

fn tool_results(turns: &[Turn<'_>]) -> Vec<String> {
    let mut results: Vec<_> = turns
        .iter()
        .rev()
        .take_while(|turn| turn.is_tool_result())
        .map(text)
        .collect();
    results.reverse();
    results
}

fn answered_turns(turns: &[Turn<'_>]) -> usize {
    let since_user = turns.rsplit(Turn::by_user).next().unwrap_or_default();
    since_user
        .chunk_by(|one, next| one.is_tool_result() == next.is_tool_result())
        .filter(|run| run.iter().all(Turn::is_tool_result))
        .count()
}

fn cap(endpoint: Endpoint, body: &Map<String, Value>) -> Result<Option<u64>, Refusal> {
    if endpoint == Endpoint::Responses {
        return positive(body, "max_output_tokens");
    }
    match (
        positive(body, "max_tokens")?,
        positive(body, "max_completion_tokens")?,
    ) {
        (Some(_), Some(_)) => Err(Refusal::invalid(
            Some("max_tokens"),
            "'max_tokens' and 'max_completion_tokens' cannot both be set.",
        )),
        (old, new) => Ok(new.or(old)),
    }
}

fn include_usage(body: &Map<String, Value>, stream: bool) -> Result<bool, Refusal> {
    match body.get("stream_options") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Object(options)) if stream => flag(options, "include_usage"),
        Some(_) => Err(Refusal::invalid(
            Some("stream_options"),
            "'stream_options' must be an object, beside 'stream': true.",
        )),
    }
}

fn prompt_tokens(body: &Map<String, Value>) -> u64 {
    let members = ["instructions", "messages", "input", "tools", "functions"];
    let bytes = members
        .iter()
        .filter_map(|name| body.get(*name))
        .map(|value| match value {
            Value::Null => 0,
            value => value.to_string().len(),
        });
    tokens(bytes.sum())
}

fn flag(body: &Map<String, Value>, name: &'static str) -> Result<bool, Refusal> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(_) => Err(Refusal::invalid(
            Some(name),
            format!("'{name}' must be true or false."),
        )),
    }
}

fn positive(body: &Map<String, Value>, name: &'static str) -> Result<Option<u64>, Refusal> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) if number > 0 => Ok(Some(number)),
            _ => Err(Refusal::invalid(
                Some(name),
                format!("'{name}' must be a positive integer."),
            )),
        },
    }
}
