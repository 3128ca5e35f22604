//! One rule about one place in a call's arguments.

use super::{HostPattern, paths};
use crate::engine::json::{Decimal, Found, Json, Pointer};

/// `{ at = "/amount", max = 100, … }`.
#[derive(Debug, Clone)]
pub struct ArgumentRule {
    pub at: Pointer,
    /// Whether a missing place breaks the rule.
    pub required: bool,
    /// Judges and records, but lets pass.
    pub observe: bool,
    pub must: Conditions,
}

/// What must hold of a value: all of it.
#[derive(Debug, Clone, Default)]
pub struct Conditions {
    pub min: Option<Bound>,
    pub max: Option<Bound>,
    /// One of these, exactly.
    pub allow: Option<Vec<Scalar>>,
    /// None of these, in no spelling that a careless tool could take for one of them.
    pub deny: Vec<Scalar>,
    pub pattern: Option<WholePattern>,
    /// A plain path, at or below one of these.
    pub path_prefixes: Option<Vec<Box<str>>>,
    /// An http(s) URL of one of these hosts.
    pub hosts: Option<Vec<HostPattern>>,
}

/// A number to compare with, and its text for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    pub number: Decimal,
    pub text: Box<str>,
}

/// A single value that a list of the configuration holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scalar {
    Bool(bool),
    Number(Decimal),
    Text(Box<str>),
}

/// A regular expression that the whole text must match, in linear time.
#[derive(Debug, Clone)]
pub struct WholePattern(regex::Regex);

impl WholePattern {
    /// # Errors
    /// What is wrong with the expression.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Alone first: else `a)|(b` would close the group that makes it whole.
        regex::Regex::new(text).map_err(|error| last_line(&error))?;
        regex::RegexBuilder::new(&format!(r"\A(?:{text})\z"))
            .size_limit(1 << 20)
            .build()
            .map(Self)
            .map_err(|error| last_line(&error))
    }
}

/// Of the several lines with which the library draws a mistake, the one that says it.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

impl ArgumentRule {
    /// The member of the rule that the arguments break, and how; never with the value.
    pub fn breach(&self, arguments: &Json) -> Option<(&'static str, String)> {
        match self.at.find(arguments) {
            Found::Nothing | Found::Value(Json::Null) => {
                self.required.then(|| ("required", "is missing".to_owned()))
            }
            Found::Ambiguous => Some(("at", "stands there in another spelling".to_owned())),
            Found::Value(value) => self.must.breach(value),
        }
    }
}

impl Conditions {
    fn breach(&self, value: &Json) -> Option<(&'static str, String)> {
        if let Json::Array(items) = value {
            return items.iter().find_map(|item| self.breach(item));
        }
        self.out_of_bounds(value)
            .or_else(|| self.not_listed(value))
            .or_else(|| self.ill_shaped(value))
    }

    fn out_of_bounds(&self, value: &Json) -> Option<(&'static str, String)> {
        let number = match value {
            Json::Number(text) => Decimal::parse(text),
            _ => None,
        };
        if let Some(min) = &self.min {
            let holds = number.as_ref().is_some_and(|number| *number >= min.number);
            let message = || format!("must be a number from {}", min.text);
            if !holds {
                return Some(("min", message()));
            }
        }
        let max = self.max.as_ref()?;
        let holds = number.is_some_and(|number| number <= max.number);
        (!holds).then(|| ("max", format!("must be a number up to {}", max.text)))
    }

    fn not_listed(&self, value: &Json) -> Option<(&'static str, String)> {
        if self.deny.iter().any(|denied| denied.resembles(value)) {
            return Some(("deny", "has a value that is denied".to_owned()));
        }
        let allow = self.allow.as_ref()?;
        let listed = allow.iter().any(|allowed| allowed.equals(value));
        (!listed).then(|| {
            (
                "allow",
                "has a value that is not among those allowed".to_owned(),
            )
        })
    }

    fn ill_shaped(&self, value: &Json) -> Option<(&'static str, String)> {
        let text = value.as_str();
        if let Some(WholePattern(pattern)) = &self.pattern
            && !text.is_some_and(|text| pattern.is_match(text))
        {
            return Some((
                "pattern",
                "does not have the form that is asked for".to_owned(),
            ));
        }
        if let Some(prefixes) = &self.path_prefixes
            && !text.is_some_and(|text| paths::is_below(text, prefixes))
        {
            return Some((
                "path_prefixes",
                "is no plain path below an allowed one".to_owned(),
            ));
        }
        let hosts = self.hosts.as_ref()?;
        let holds = text.is_some_and(|text| hosts.iter().any(|host| host.matches(text)));
        (!holds).then(|| ("hosts", "is no plain URL of an allowed host".to_owned()))
    }
}

impl Scalar {
    fn equals(&self, value: &Json) -> bool {
        match (self, value) {
            (Self::Bool(own), Json::Bool(other)) => own == other,
            (Self::Number(own), Json::Number(text)) => Decimal::parse(text).as_ref() == Some(own),
            (Self::Text(own), Json::String(other)) => **own == **other,
            _ => false,
        }
    }

    /// Also other spellings, such as `" 0 "` for 0 or `"ROOT"` for `"root"`.
    fn resembles(&self, value: &Json) -> bool {
        let text = match value {
            Json::Number(text) => &**text,
            Json::String(text) => text.trim(),
            Json::Bool(true) => "true",
            Json::Bool(false) => "false",
            _ => return false,
        };
        let number = || Decimal::parse(text.trim_start_matches('+'));
        match self {
            Self::Bool(own) => text.eq_ignore_ascii_case(if *own { "true" } else { "false" }),
            Self::Number(own) => number().as_ref() == Some(own),
            Self::Text(own) => {
                let both_numbers =
                    Decimal::parse(own.trim()).is_some_and(|own| number() == Some(own));
                both_numbers || text.to_lowercase() == own.trim().to_lowercase()
            }
        }
    }
}
