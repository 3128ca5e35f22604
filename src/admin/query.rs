//! Query parameters: what the route's table entry names, checked as it says; anything else is an
//! error, since a filter that is ignored shows too much.

use std::collections::HashMap;

use axum::{extract::FromRequestParts, http::request::Parts};
use serde_json::{Value, json};

use super::fault::Fault;

/// A parameter as a route's table entry describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
    pub about: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    /// A whole number from the first to the second.
    Number(i64, i64),
    /// RFC 3339.
    Instant,
    OneOf(&'static [&'static str]),
    /// Some of these words, with commas between.
    SomeOf(&'static [&'static str]),
}

/// Longer texts name nothing that we know. Characters.
const LONGEST: usize = 256;

impl Kind {
    fn check(self, text: &str) -> Result<(), String> {
        let fine = match self {
            Self::Text => (1..=LONGEST).contains(&text.chars().count()),
            Self::Number(from, to) => {
                let number = text.parse().ok();
                number.is_some_and(|number| (from..=to).contains(&number))
            }
            Self::Instant => instant(text).is_some(),
            Self::OneOf(words) => words.contains(&text),
            Self::SomeOf(words) => text.split(',').all(|word| words.contains(&word)),
        };
        if fine { Ok(()) } else { Err(self.wanted()) }
    }

    fn wanted(self) -> String {
        match self {
            Self::Text => format!("1 to {LONGEST} characters"),
            Self::Number(from, to) => format!("a whole number from {from} to {to}"),
            Self::Instant => "an instant such as 2027-06-30T00:00:00Z".to_owned(),
            Self::OneOf(words) => format!("one of {}", words.join(", ")),
            Self::SomeOf(words) => format!("some of {}, with commas between", words.join(", ")),
        }
    }

    /// As JSON Schema.
    pub fn schema(self) -> Value {
        match self {
            Self::Text => json!({ "type": "string", "minLength": 1, "maxLength": LONGEST }),
            Self::Number(from, to) => json!({ "type": "integer", "minimum": from, "maximum": to }),
            Self::Instant => json!({ "type": "string", "format": "date-time" }),
            Self::OneOf(words) => json!({ "type": "string", "enum": words }),
            Self::SomeOf(words) => json!({
                "type": "array",
                "items": { "type": "string", "enum": words },
                "minItems": 1,
            }),
        }
    }
}

fn instant(text: &str) -> Option<jiff::Timestamp> {
    text.parse().ok()
}

/// The parameters of one request, checked.
#[derive(Debug, Default)]
pub(super) struct Query(HashMap<&'static str, String>);

impl Query {
    fn read(raw: &str, known: &'static [Parameter]) -> Result<Self, Fault> {
        let mut found = HashMap::new();
        for (name, value) in url::form_urlencoded::parse(raw.as_bytes()) {
            let parameter = known.iter().find(|parameter| parameter.name == name);
            let Some(parameter) = parameter else {
                return Err(Fault::Invalid(unknown(&name, known)));
            };
            let name = parameter.name;
            if let Err(wanted) = parameter.kind.check(&value) {
                return Err(Fault::Invalid(format!("{name} must be {wanted}.")));
            }
            if found.insert(name, value.into_owned()).is_some() {
                return Err(Fault::Invalid(format!("{name} is given twice.")));
            }
        }
        Ok(Self(found))
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    pub fn number(&self, name: &str) -> Option<i64> {
        self.0.get(name)?.parse().ok()
    }

    pub fn instant_ms(&self, name: &str) -> Option<i64> {
        Some(instant(self.0.get(name)?)?.as_millisecond())
    }

    pub fn words(&self, name: &str) -> Vec<String> {
        let text = self.0.get(name).map(String::as_str).unwrap_or_default();
        let words = text.split(',').filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    }
}

fn unknown(name: &str, known: &[Parameter]) -> String {
    let names: Vec<&str> = known.iter().map(|parameter| parameter.name).collect();
    let known = match &names[..] {
        [] => "none is".to_owned(),
        names => names.join(", "),
    };
    format!("The parameter {name:?} is not known here; known: {known}.")
}

/// The table entry's parameters are put there by the gate.
impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        let known = parts.extensions.get::<&'static [Parameter]>();
        Self::read(
            parts.uri.query().unwrap_or_default(),
            known.copied().unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Parameter] = &[
        Parameter {
            name: "key",
            kind: Kind::Text,
            about: "",
        },
        Parameter {
            name: "limit",
            kind: Kind::Number(1, 200),
            about: "",
        },
        Parameter {
            name: "from",
            kind: Kind::Instant,
            about: "",
        },
        Parameter {
            name: "kind",
            kind: Kind::SomeOf(&["a", "b"]),
            about: "",
        },
    ];

    #[test]
    fn what_is_asked_for_is_read() {
        let raw = "key=a%20b&limit=200&from=1970-01-01T01:00:00%2B01:00&kind=b,a";
        let query = Query::read(raw, KNOWN).unwrap();
        assert_eq!(query.text("key").as_deref(), Some("a b"));
        assert_eq!(query.number("limit"), Some(200));
        assert_eq!(query.instant_ms("from"), Some(0));
        assert_eq!(query.words("kind"), ["b", "a"]);
        assert_eq!(Query::read("", KNOWN).unwrap().number("limit"), None);
    }

    #[test]
    fn nothing_that_cannot_be_understood_is_passed_over() {
        for raw in [
            "kye=a",
            "key=",
            "limit=0",
            "limit=201",
            "limit=1.0",
            "from=noon",
            "kind=c",
            "kind=a,",
            "key=a&key=b",
        ] {
            assert!(
                matches!(Query::read(raw, KNOWN), Err(Fault::Invalid(_))),
                "{raw}"
            );
        }
    }
}
