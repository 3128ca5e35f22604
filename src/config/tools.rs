//! `[tools.…]` of the main file: the contracts. `[tools]` of a policy: what its keys may call.

use std::{fs, path::Path, sync::Arc};

use toml::de::DeValue;

use super::{
    loading::cannot_read,
    reader::Table,
    runs, suspects,
    text::suggestion,
    values::{flag, kind, one_of, text},
};
use crate::engine::{
    chain::{NEVER_OBSERVED, OBSERVABLE, is_tool_name},
    contract::{
        Approval, ArgumentRule, Bound, Conditions, Contract, Contracts, Effect, HostPattern,
        Output, Scalar, Schema, WholePattern, is_plain_path,
    },
    guard::tool_offers::HOSTED_DENIED,
    json::{Decimal, Json, Pointer},
    policy::{Batch, OnBlock, OnOffer, Pattern, ToolRules},
};

/// What becomes of what a rule speaks against: whether it only observes.
pub(super) const MODES: &[(&str, bool)] = &[("block", false), ("observe", true)];

pub(super) fn contracts(root: &mut Table<'_>) -> Contracts {
    let read = root.named("tools", |name, table| {
        if !is_tool_name(name) {
            table.place().mistake(format!(
                "{name:?} is no tool name; use up to 128 bytes without white space"
            ));
        }
        (name.into(), contract(name, table))
    });
    Contracts::new(read.into_iter().flatten())
}

fn contract(name: &str, table: &mut Table<'_>) -> Contract {
    let scope = table.optional("scope", scope);
    let effect = table.optional("effect", one_of(Effect::NAMES));
    let schema = table.table("schema", schema).flatten();
    let nothing = "an empty list names nothing; remove it";
    let tenant_arguments = table.filled_list("tenant_arguments", nothing, pointer);
    let arguments = table.tables("arguments", argument_rule);
    let arguments: Vec<ArgumentRule> = arguments
        .unwrap_or_default()
        .into_iter()
        .flatten()
        .collect();
    let described = schema.as_ref().map(|(json, _)| json);
    if let Some(warning) = suspects::warning(name, described, &arguments) {
        table.place().warning(warning);
    }
    Contract {
        scope,
        effect,
        schema: schema.map(|(_, schema)| Arc::new(schema)),
        tenant_arguments: tenant_arguments.unwrap_or_default(),
        arguments,
        approval: table.or("approval", Approval::default(), one_of(APPROVALS)),
        order: runs::order(table),
        pollable: table.or("pollable", false, flag),
        idempotent: table.optional("idempotent", flag),
        output: table.or("output", Output::default(), one_of(OUTPUTS)),
    }
}

const APPROVALS: &[(&str, Approval)] = &[
    ("never", Approval::Never),
    ("always", Approval::Always),
    ("when_tainted", Approval::WhenTainted),
];
const OUTPUTS: &[(&str, Output)] = &[
    ("trusted", Output::Trusted),
    ("untrusted", Output::Untrusted),
];

/// Reads `{ file = "…" }`. `None` is a told mistake.
fn schema(table: &mut Table<'_>) -> Option<(Json, Schema)> {
    let document = table.place().document();
    let path = table.required("file", text)?;
    let path = document.beside(Path::new(path));
    document.loading.source(&path);
    let place = table.place_of("file");
    let told = |message: String| place.mistake(format!("{} {message}", path.display()));
    let text = fs::read_to_string(&path)
        .map_err(|error| told(cannot_read(&error)))
        .ok()?;
    let schema = Schema::compile(&text)
        .map_err(|fault| {
            let at = if fault.place.is_empty() { "" } else { " at " };
            told(format!(
                "cannot be used{at}{}: {}",
                fault.place, fault.message
            ));
        })
        .ok()?;
    Some((Json::parse(&text).ok()?, schema))
}

/// `None` is a told mistake.
fn argument_rule(table: &mut Table<'_>) -> Option<ArgumentRule> {
    let at = table.required("at", pointer);
    let required = table.or("required", true, flag);
    let observe = table.or("mode", false, one_of(MODES));
    let must = conditions(table);
    if !required && !CONDITIONS.iter().any(|member| table.has(member)) {
        let known = CONDITIONS.join(", ");
        let place = table.place();
        place.mistake(format!("asks for nothing; known: {known}"));
    }
    Some(ArgumentRule {
        at: at?,
        required,
        observe,
        must,
    })
}

fn conditions(table: &mut Table<'_>) -> Conditions {
    let nothing = "an empty list would allow nothing; remove it, or deny the tool";
    let must = Conditions {
        min: table.optional("min", bound),
        max: table.optional("max", bound),
        allow: table.filled_list("allow", nothing, scalar),
        deny: table.list("deny", scalar).unwrap_or_default(),
        pattern: table.optional("pattern", |value| WholePattern::parse(text(value)?)),
        path_prefixes: table.filled_list("path_prefixes", nothing, path_prefix),
        hosts: table.filled_list("hosts", nothing, host),
    };
    if let (Some(min), Some(max)) = (&must.min, &must.max)
        && min.number > max.number
    {
        table.place_of("min").mistake("is more than max");
    }
    must
}

/// What a policy's `[tools]` says.
pub(super) fn rules(table: &mut Table<'_>, contracts: &Contracts) -> ToolRules {
    let on_offer = [("refuse", OnOffer::Refuse), ("strip", OnOffer::Strip)];
    let on_block = [("replace", OnBlock::Replace), ("error", OnBlock::Error)];
    let batch = [("all", Batch::All), ("each", Batch::Each)];
    let rules = ToolRules {
        allow: table.list("allow", entry),
        deny: table.list("deny", entry).unwrap_or_default(),
        require_approval: table.list("require_approval", entry).unwrap_or_default(),
        require_contract: table.or("require_contract", false, flag),
        observe: table.list("observe", layer).unwrap_or_default(),
        on_offer: table.or("on_offer", OnOffer::default(), one_of(&on_offer)),
        on_block: table.or("on_block", OnBlock::default(), one_of(&on_block)),
        batch: table.or("batch", Batch::default(), one_of(&batch)),
    };
    for (list, entries) in [
        ("allow", rules.allow.as_deref()),
        ("deny", Some(&*rules.deny)),
        ("require_approval", Some(&*rules.require_approval)),
    ] {
        for entry in entries.into_iter().flatten() {
            if let Some(warning) = idle_scope(entry, contracts) {
                table.place_of(list).warning(warning);
            }
        }
    }
    rules
}

/// What to tell of an entry that looks like a scope and is none: it may be misspelt.
fn idle_scope(entry: &Pattern, contracts: &Contracts) -> Option<String> {
    let Pattern::Exact(name) = entry else {
        return None;
    };
    let hosted = name.starts_with("type:") || name.starts_with("mcp:");
    let idle = name.contains(':') && !hosted && contracts.find(name).is_none();
    let mut scopes: Vec<&str> = contracts.scopes().collect();
    scopes.sort_unstable();
    scopes.dedup();
    (idle && !scopes.contains(&&**name)).then(|| {
        let suggestion = suggestion(name, scopes);
        format!("{name:?} is the scope of no [tools.…] contract{suggestion}")
    })
}

/// The code of a layer that may judge without blocking.
fn layer(value: &DeValue<'_>) -> Result<&'static str, String> {
    let code = text(value)?;
    if let Some((code, reason)) = NEVER_OBSERVED.iter().find(|(never, _)| *never == code) {
        return Err(format!("{code} always blocks: {reason}"));
    }
    let codes = OBSERVABLE.iter().chain([&HOSTED_DENIED]);
    let words: Vec<_> = codes.map(|code| (*code, *code)).collect();
    one_of(&words)(value)
}

fn entry(value: &DeValue<'_>) -> Result<Pattern, String> {
    let text = text(value)?;
    Pattern::parse(text).ok_or_else(|| {
        format!(
            "{text:?} is neither a name nor a prefix; write \"search.web\", \"search.*\", \
             \"search:read\" or \"type:web_search\""
        )
    })
}

fn scope(value: &DeValue<'_>) -> Result<Box<str>, String> {
    let text = text(value)?;
    match is_tool_name(text)
        && !text.contains('*')
        && !text.starts_with("type:")
        && !text.starts_with("mcp:")
    {
        true => Ok(text.into()),
        false => Err(format!("{text:?} is no scope such as \"search:read\"")),
    }
}

fn pointer(value: &DeValue<'_>) -> Result<Pointer, String> {
    let text = text(value)?;
    Pointer::parse(text)
        .ok_or_else(|| format!("{text:?} is no place such as \"/amount\" or \"/to/0/address\""))
}

fn bound(value: &DeValue<'_>) -> Result<Bound, String> {
    let text = number(value).ok_or_else(|| format!("must be a number, not {}", kind(value)))?;
    let number =
        Decimal::parse(&text).ok_or_else(|| format!("{text:?} is no number such as 0.5"))?;
    Ok(Bound {
        number,
        text: text.into(),
    })
}

fn scalar(value: &DeValue<'_>) -> Result<Scalar, String> {
    if let Some(text) = number(value).filter(|_| !matches!(value, DeValue::String(_))) {
        let number = Decimal::parse(&text);
        return number
            .map(Scalar::Number)
            .ok_or_else(|| format!("{text} is no number such as 0.5"));
    }
    match value {
        DeValue::Boolean(flag) => Ok(Scalar::Bool(*flag)),
        DeValue::String(text) => Ok(Scalar::Text(text.as_ref().into())),
        _ => Err(format!(
            "must be a text, a number, true or false; not {}",
            kind(value)
        )),
    }
}

/// The text of a number as JSON would have it; a quoted one is exact at any length.
fn number(value: &DeValue<'_>) -> Option<String> {
    let text = match value {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
        DeValue::Float(number) => number.as_str(),
        DeValue::String(text) => text.as_ref(),
        _ => return None,
    };
    Some(text.trim_start_matches('+').replace('_', ""))
}

fn path_prefix(value: &DeValue<'_>) -> Result<Box<str>, String> {
    let text = text(value)?;
    match is_plain_path(text) {
        true => Ok(text.into()),
        false => Err(format!(
            "{text:?} is no plain path such as \"/workspace\", without . .. // % and \\"
        )),
    }
}

fn host(value: &DeValue<'_>) -> Result<HostPattern, String> {
    let text = text(value)?;
    HostPattern::parse(text).ok_or_else(|| {
        format!("{text:?} is no host such as \"api.example.com\", \"*.example.com\" or \"example.com:8443\"")
    })
}

const CONDITIONS: &[&str] = &[
    "min",
    "max",
    "allow",
    "deny",
    "pattern",
    "path_prefixes",
    "hosts",
];
