//! Provider errors in OpenAI's shape.

use serde_json::{Value, json};

/// A provider's error in OpenAI's shape: its message kept, codes as text, and never the text
/// of a call that failed.
pub fn shaped(error: &str) -> Value {
    let value: Value = serde_json::from_str(error).unwrap_or_else(|_| error.into());
    let text = |value: Option<&Value>| match value {
        Some(Value::String(text)) => Value::String(text.clone()),
        Some(Value::Number(number)) => Value::String(number.to_string()),
        _ => Value::Null,
    };
    let message = match &value {
        Value::String(text) => text.clone(),
        other => match other.get("message") {
            Some(Value::String(text)) => text.clone(),
            _ => "The provider answered with an error.".to_owned(),
        },
    };
    let kind = match text(value.get("type")) {
        Value::Null => "upstream_error".into(),
        kind => kind,
    };
    json!({
        "message": message,
        "type": kind,
        "param": text(value.get("param")),
        "code": text(value.get("code")),
    })
}
