//! What is wrong with an entry, and the strictness with which its members are read.

use std::borrow::Cow;

use crate::engine::{
    call::{cursor::NotText, misspelt},
    names::clean_name,
};

/// What is wrong with one entry, as the end of a sentence about it.
#[derive(Debug)]
pub(super) struct Fault(pub Cow<'static, str>);

impl From<&'static str> for Fault {
    fn from(text: &'static str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<NotText> for Fault {
    fn from(NotText: NotText) -> Self {
        Self("holds a name that is no valid text".into())
    }
}

/// Notes a member's name; no object that matters may hold one twice, or very many.
#[derive(Debug, Default)]
pub(super) struct Members<'a>(Vec<Cow<'a, str>>);

impl<'a> Members<'a> {
    pub fn note(&mut self, name: Cow<'a, str>) -> Result<(), Fault> {
        const MOST: usize = 64;
        if self.0.contains(&name) {
            return Err(format!("holds the member {:?} twice", clean_name(&name)).into());
        }
        if let Some(known) = misspelt(&name, KNOWN) {
            let name = clean_name(&name);
            return Err(format!("holds {name:?}, which some readers take for {known:?}").into());
        }
        if self.0.len() >= MOST {
            return Err("holds very many members".into());
        }
        self.0.push(name);
        Ok(())
    }
}

/// The members that decide anything here.
const KNOWN: &[&str] = &[
    "type",
    "name",
    "function",
    "custom",
    "tools",
    "functionDeclarations",
    "function_declarations",
    "parameters",
    "input_schema",
    "inputSchema",
    "parametersJsonSchema",
    "parameters_json_schema",
    "environment",
    "namespace",
    "mode",
    "server_label",
    "server_url",
    "connector_id",
    "tunnel_id",
    "allowed_tools",
    "tool_names",
    "require_approval",
    "headers",
];
