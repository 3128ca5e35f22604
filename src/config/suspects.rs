//! Tools that can do anything: a shell, SQL or HTTP by any name. No rule can judge what they do.

use crate::engine::{contract::ArgumentRule, json::Json};

/// What to tell the operator of such a tool.
pub(super) fn warning(name: &str, schema: Option<&Json>, rules: &[ArgumentRule]) -> Option<String> {
    const ADVICE: &str = "no rule can tell what it will do; offer narrow tools instead";
    let words: Vec<String> = name
        .split(|char: char| !char.is_alphanumeric())
        .map(str::to_lowercase)
        .collect();
    if let Some(word) = words.iter().find(|word| WORDS.contains(&word.as_str())) {
        return Some(format!(
            "looks like a general tool ({word:?} in its name); {ADVICE}"
        ));
    }
    let free = free_member(schema?, rules)?;
    Some(format!(
        "looks like a general tool (its schema has a free text {free:?}); {ADVICE}"
    ))
}

/// A member that holds a command, a statement or a URL, of which neither the schema nor a rule
/// says what may stand in it.
fn free_member<'s>(schema: &'s Json, rules: &[ArgumentRule]) -> Option<&'s str> {
    let properties = schema.member("properties")?.members()?;
    let free = |(name, schema): &&(String, Json)| {
        let text = schema.member("type").and_then(Json::as_str) == Some("string");
        let narrowed = NARROWING
            .iter()
            .any(|keyword| schema.member(keyword).is_some())
            || rules
                .iter()
                .any(|rule| rule.at.to_string() == format!("/{name}"));
        MEMBERS.contains(&name.to_lowercase().as_str()) && text && !narrowed
    };
    properties.iter().find(free).map(|(name, _)| name.as_str())
}

const WORDS: &[&str] = &[
    "bash",
    "cmd",
    "curl",
    "eval",
    "exec",
    "http",
    "powershell",
    "sh",
    "shell",
    "sql",
    "terminal",
    "wget",
];
const MEMBERS: &[&str] = &[
    "cmd",
    "code",
    "command",
    "query",
    "script",
    "shell",
    "sql",
    "statement",
    "uri",
    "url",
];
const NARROWING: &[&str] = &["const", "enum", "maxLength", "pattern"];
