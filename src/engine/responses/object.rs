//! The response object: a whole body, or what the first and the last events of a stream hold.

use std::{borrow::Cow, collections::HashMap};

use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::Fault;
use crate::engine::{chat::Tally, pricing::UsageReading};

/// What is read of a response object; what is named and stands there twice makes it unreadable.
#[derive(Debug, Deserialize)]
pub struct ResponseObject<'a> {
    #[serde(borrow, default)]
    pub id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    service_tier: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub status: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub output: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow, default)]
    function_call: Option<&'a RawValue>,
    #[serde(borrow, default)]
    choices: Option<&'a RawValue>,
}

impl<'a> ResponseObject<'a> {
    /// # Errors
    /// Not a response object, or one that may hold calls where none belong.
    pub fn read(text: &'a str) -> Result<Self, Fault> {
        let unreadable = Fault("The response object cannot be read.");
        // A list would be read as members in their order.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(unreadable);
        }
        let object: Self = serde_json::from_str(text).map_err(|_| unreadable)?;
        let foreign = [object.tool_calls, object.function_call, object.choices];
        if foreign.iter().any(Option::is_some) {
            return Err(Fault("The response object holds calls of another API."));
        }
        if holds_stray_calls(text) {
            return Err(Fault("The response object holds calls where none belong."));
        }
        Ok(object)
    }

    /// The items of the output, in order.
    ///
    /// # Errors
    /// When it is no list.
    pub fn items(&self) -> Result<Vec<&'a RawValue>, Fault> {
        let Some(raw) = self.output else {
            return Ok(Vec::new());
        };
        serde_json::from_str(raw.get()).map_err(|_| Fault("The output of the answer is no list."))
    }

    pub fn tell(&self, tally: &mut Tally) {
        if let Some(usage) = self.usage {
            let value = serde_json::from_str(usage.get()).unwrap_or(Value::Null);
            tally.usage = UsageReading::of(&value).or(tally.usage);
        }
        if let Some(model) = self.model.as_deref().filter(|model| !model.is_empty()) {
            tally.model.get_or_insert_with(|| model.to_owned());
        }
        if let Some(tier) = self.service_tier.as_deref() {
            tally.service_tier = Some(tier.to_owned());
        }
    }
}

/// Members whose calls are judged (`output`), or that repeat what the client itself sent.
const EXPECTED: &[&str] = &["output", "instructions", "tools", "tool_choice", "metadata"];
/// Members by which a call is known, whatever its type.
const OF_CALLS: &[&str] = &["call_id", "arguments"];

/// Whether a member that nobody judges, a misspelt `output` perhaps, brings calls along.
fn holds_stray_calls(text: &str) -> bool {
    let members: HashMap<Cow<'_, str>, &RawValue> = match serde_json::from_str(text) {
        Ok(members) => members,
        Err(_) => return true,
    };
    let stray = |raw: &RawValue| match serde_json::from_str(raw.get()) {
        Ok(value) => holds_call(&value),
        Err(_) => true,
    };
    members
        .iter()
        .filter(|(name, raw)| !EXPECTED.contains(&&***name) && raw.get().starts_with(['{', '[']))
        .any(|(_, raw)| stray(raw))
}

fn holds_call(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            OF_CALLS.iter().any(|name| members.contains_key(*name))
                || members.values().any(holds_call)
        }
        Value::Array(items) => items.iter().any(holds_call),
        _ => false,
    }
}

/// The response object `begun` as one that failed with `error`, without any output.
pub fn failed(begun: Option<&str>, error: &Value) -> Value {
    let mut object: Map<String, Value> = begun
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    object.entry("object").or_insert_with(|| "response".into());
    object.insert("status".to_owned(), "failed".into());
    object.insert("error".to_owned(), member(error));
    object.insert("output".to_owned(), json!([]));
    Value::Object(object)
}

/// An error as the `error` of a response object, in JSON: nothing of a call that failed.
pub fn in_object(error: &Value) -> String {
    member(error).to_string()
}

fn member(error: &Value) -> Value {
    json!({"code": error.get("code"), "message": error.get("message")})
}
