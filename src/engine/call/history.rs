//! What the conversation in a request says of tools: calls that were made, results that came.
//!
//! Read only where a rule asks for it. What cannot be read is told as such, so that whoever asks
//! can take it for the worst.

use std::{borrow::Cow, collections::HashMap};

use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::Api;

/// The tool-related steps of a conversation, oldest first.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct History {
    pub steps: Vec<Step>,
    /// An earlier part of the conversation stands at the provider, out of our sight.
    pub continues: bool,
    /// SHA-256 of everything up to the last user input, in hexadecimal.
    pub input: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A person, or the client in their name, said something.
    User,
    Call {
        /// As rules and contracts call the tool.
        tool: String,
        /// JSON or text, as the client sent it.
        arguments: String,
    },
    /// `None`: it answers no call that the request holds.
    Result {
        tool: Option<String>,
        /// SHA-256 of what it gave, in hexadecimal.
        output: String,
    },
}

/// The request's messages cannot be read for this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

impl History {
    /// Reads the conversation of a whole request body.
    ///
    /// # Errors
    /// Messages in a form, or with members twice, that leave open what they say.
    pub fn read(api: Api, body: &[u8]) -> Result<Self, Unreadable> {
        let request: Request<'_> = serde_json::from_slice(body).map_err(|_| Unreadable)?;
        let mut reader = Reader::default();
        let items = match api {
            Api::Chat => request.messages,
            Api::Responses => request.input,
        };
        match items {
            // A text alone is what a user says.
            Some(text) if text.get().starts_with('"') => {
                reader.steps.push(Step::User);
                reader.input = digest(&[text.get()]);
            }
            Some(items) => {
                let items: Vec<&RawValue> =
                    serde_json::from_str(items.get()).map_err(|_| Unreadable)?;
                let mut said = Vec::with_capacity(items.len());
                for raw in items {
                    said.push(raw.get());
                    let item = serde_json::from_str(raw.get()).map_err(|_| Unreadable)?;
                    if reader.add(&item) {
                        reader.input = digest(&said);
                    }
                }
            }
            None => {}
        }
        let named = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get() != "null");
        Ok(Self {
            steps: reader.steps,
            input: reader.input,
            continues: named(request.previous_response_id) || named(request.conversation),
        })
    }
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    previous_response_id: Option<&'a RawValue>,
    #[serde(borrow)]
    conversation: Option<&'a RawValue>,
}

/// A message of either API, or an item of the Responses API.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<ToolCall<'a>>>,
    #[serde(borrow, default)]
    function_call: Option<Named<'a>>,
    #[serde(borrow, default)]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    arguments: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    action: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ToolCall<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    function: Option<Named<'a>>,
    #[serde(borrow, default)]
    custom: Option<Named<'a>>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    input: Option<Cow<'a, str>>,
}

#[derive(Default)]
struct Reader {
    steps: Vec<Step>,
    tools: HashMap<String, String>,
    input: String,
}

impl Reader {
    /// `true`: it is user input.
    fn add(&mut self, item: &Item<'_>) -> bool {
        let role = item.role.as_deref().unwrap_or_default();
        match (role, item.kind.as_deref()) {
            ("tool" | "function", _) => {
                let id = item.tool_call_id.as_deref().unwrap_or_default();
                let named = item.name.as_deref().filter(|_| role == "function");
                self.result(id, named, item.content);
            }
            ("user", _) => self.steps.push(Step::User),
            ("", Some(kind)) => self.item(kind, item),
            _ => {
                for call in item.tool_calls.iter().flatten() {
                    let id = call.id.as_deref().unwrap_or_default();
                    for named in call.function.iter().chain(&call.custom) {
                        self.call(id, named.name.to_string(), named.text());
                    }
                }
                if let Some(named) = &item.function_call {
                    self.call("", named.name.to_string(), named.text());
                }
            }
        }
        role == "user"
    }

    fn item(&mut self, kind: &str, item: &Item<'_>) {
        let id = item.call_id.as_deref().unwrap_or_default();
        let text = || {
            let raw = item.input.or(item.action).map(RawValue::get);
            let text = item.arguments.as_deref().or(raw);
            text.unwrap_or_default().to_owned()
        };
        let bare = kind.strip_suffix("_output").unwrap_or(kind);
        if kind != bare {
            let fallback = format!("type:{}", bare.trim_end_matches("_call"));
            let functions = matches!(bare, "function_call" | "custom_tool_call");
            let named = (!functions).then_some(fallback.as_str());
            return self.result(id, named, item.output);
        }
        match kind {
            "function_call" | "custom_tool_call" => {
                let name = item.name.as_deref().unwrap_or_default();
                let space = item.namespace.as_deref().filter(|space| !space.is_empty());
                let tool = match space {
                    Some(space) => format!("{space}.{name}"),
                    None => name.to_owned(),
                };
                self.call(id, tool, text());
            }
            _ if kind.ends_with("_call") => {
                let tool = format!("type:{}", kind.trim_end_matches("_call"));
                self.call(id, tool.clone(), text());
                // What a provider runs by itself brings its result along.
                if id.is_empty() {
                    self.steps.push(Step::Result {
                        tool: Some(tool),
                        output: String::new(),
                    });
                }
            }
            _ => {}
        }
    }

    fn call(&mut self, id: &str, tool: String, arguments: String) {
        if !id.is_empty() {
            self.tools.insert(id.to_owned(), tool.clone());
        }
        self.steps.push(Step::Call { tool, arguments });
    }

    fn result(&mut self, id: &str, named: Option<&str>, gave: Option<&RawValue>) {
        let tool = self.tools.get(id).cloned();
        let tool = tool.or_else(|| named.map(str::to_owned));
        let output = digest(&[gave.map_or("", RawValue::get)]);
        self.steps.push(Step::Result { tool, output });
    }
}

fn digest(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl Named<'_> {
    fn text(&self) -> String {
        let text = self.arguments.as_deref().or(self.input.as_deref());
        text.unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, arguments: &str) -> Step {
        Step::Call {
            tool: tool.to_owned(),
            arguments: arguments.to_owned(),
        }
    }

    fn result(tool: &str) -> Step {
        Step::Result {
            tool: Some(tool.to_owned()),
            output: String::new(),
        }
    }

    fn without_outputs(steps: Vec<Step>) -> Vec<Step> {
        let bare = |step| match step {
            Step::Result { tool, .. } => Step::Result {
                tool,
                output: String::new(),
            },
            other => other,
        };
        steps.into_iter().map(bare).collect()
    }

    #[test]
    fn the_same_beginning_is_the_same_input() {
        let of = |messages: &str| {
            let body = format!("{{\"messages\":[{messages}]}}");
            History::read(Api::Chat, body.as_bytes()).unwrap().input
        };
        let asked = r#"{"role":"system","content":"s"},{"role":"user","content":"go"}"#;
        let later = format!(
            r#"{asked},{{"role":"assistant","content":"a"}},{{"role":"tool","tool_call_id":"x","content":"r"}}"#
        );
        assert_eq!(of(asked), of(&later));
        let more = format!(r#"{later},{{"role":"user","content":"and"}}"#);
        assert_ne!(of(asked), of(&more));
        assert!(of(r#"{"role":"system","content":"s"}"#).is_empty());
    }

    #[test]
    fn a_result_belongs_to_the_call_with_its_id() {
        let body = br#"{"messages":[
            {"role":"system","content":"s"},{"role":"user","content":"go"},
            {"role":"assistant","tool_calls":[
                {"id":"c1","type":"function","function":{"name":"search.web","arguments":"{}"}},
                {"id":"c2","type":"custom","custom":{"name":"note","input":"x"}}]},
            {"role":"tool","tool_call_id":"c2","content":"ok"},
            {"role":"tool","tool_call_id":"c1","content":"found"},
            {"role":"tool","tool_call_id":"c9","content":"?"}]}"#;
        let history = History::read(Api::Chat, body).unwrap();
        assert_eq!(
            without_outputs(history.steps),
            [
                Step::User,
                call("search.web", "{}"),
                call("note", "x"),
                result("note"),
                result("search.web"),
                Step::Result {
                    tool: None,
                    output: String::new(),
                },
            ]
        );
        assert!(!history.continues);
    }

    #[test]
    fn items_of_the_responses_api_are_steps_too() {
        let body = br#"{"previous_response_id":"resp_1","input":[
            {"role":"user","content":"go"},
            {"type":"function_call","call_id":"c1","namespace":"crm","name":"find","arguments":"{}"},
            {"type":"function_call_output","call_id":"c1","output":"x"},
            {"type":"web_search_call","id":"ws_1","status":"completed"},
            {"type":"local_shell_call_output","call_id":"c7","output":"x"}]}"#;
        let history = History::read(Api::Responses, body).unwrap();
        assert_eq!(
            without_outputs(history.steps),
            [
                Step::User,
                call("crm.find", "{}"),
                result("crm.find"),
                call("type:web_search", ""),
                result("type:web_search"),
                result("type:local_shell"),
            ]
        );
        assert!(history.continues);
        let text = History::read(Api::Responses, br#"{"input":"hello"}"#).unwrap();
        assert_eq!(text.steps, [Step::User]);
    }

    #[test]
    fn what_says_two_things_is_unreadable() {
        let twice = br#"{"messages":[{"role":"tool","tool_call_id":"a","tool_call_id":"b"}]}"#;
        assert_eq!(History::read(Api::Chat, twice), Err(Unreadable));
        let odd = br#"{"messages":[{"role":"tool","tool_call_id":7}]}"#;
        assert_eq!(History::read(Api::Chat, odd), Err(Unreadable));
    }
}
