//! Places in arguments, written as JSON Pointers (RFC 6901): `/to/0/address`.

use std::fmt;

use super::Json;

/// A place in a call's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    text: Box<str>,
    steps: Vec<Box<str>>,
}

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'j> {
    Value(&'j Json),
    Nothing,
    /// On the way there stands a member and beside it another whose name differs in letter case
    /// alone: some readers take the one, some the other.
    Ambiguous,
}

impl Pointer {
    /// Reads `/name/0`. `None` if it does not begin with `/`, or has a `~` that escapes nothing.
    pub fn parse(text: &str) -> Option<Self> {
        let steps = text.strip_prefix('/')?.split('/').map(unescape);
        Some(Self {
            text: text.into(),
            steps: steps.collect::<Option<_>>()?,
        })
    }

    pub fn find<'j>(&self, root: &'j Json) -> Found<'j> {
        let mut value = root;
        for step in &self.steps {
            match step_into(value, step) {
                Found::Value(inner) => value = inner,
                other => return other,
            }
        }
        Found::Value(value)
    }
}

fn unescape(step: &str) -> Option<Box<str>> {
    let unescaped = step.replace("~1", "/").replace("~0", "~");
    let escapes = step.matches("~0").count() + step.matches("~1").count();
    (step.matches('~').count() == escapes).then(|| unescaped.into())
}

fn step_into<'j>(value: &'j Json, step: &str) -> Found<'j> {
    match value {
        Json::Object(members) => {
            let folded = step.to_lowercase();
            let mut alike = members
                .iter()
                .filter(|(name, _)| name.to_lowercase() == folded);
            match (alike.next(), alike.next()) {
                (_, Some(_)) => Found::Ambiguous,
                (Some((name, value)), None) if name == step => Found::Value(value),
                // Only another spelling: to a careless reader it is this member.
                (Some(_), None) => Found::Ambiguous,
                (None, None) => Found::Nothing,
            }
        }
        Json::Array(items) => {
            let canonical = step == "0" || !step.starts_with(['0', '+']);
            let index = step.parse::<usize>().ok().filter(|_| canonical);
            match index.and_then(|index| items.get(index)) {
                Some(item) => Found::Value(item),
                None => Found::Nothing,
            }
        }
        _ => Found::Nothing,
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pointer: &str, json: &str) -> Option<String> {
        let json = Json::parse(json).unwrap();
        match Pointer::parse(pointer).unwrap().find(&json) {
            Found::Value(value) => Some(value.to_string()),
            Found::Nothing => None,
            Found::Ambiguous => Some("ambiguous".to_owned()),
        }
    }

    #[test]
    fn a_pointer_leads_through_objects_and_arrays() {
        let json = r#"{"a":{"b/c":[10,{"~":20}]},"":30,"0":40}"#;
        for (pointer, found) in [
            ("/a/b~1c/0", Some("10")),
            ("/a/b~1c/1/~0", Some("20")),
            ("/", Some("30")),
            ("/0", Some("40")),
            ("/a/b~1c/2", None),
            ("/a/b~1c/00", None),
            ("/a/b~1c/+1", None),
            ("/a/b~1c/-", None),
            ("/a/x", None),
            ("//x", None),
        ] {
            assert_eq!(find(pointer, json).as_deref(), found, "{pointer}");
        }
    }

    #[test]
    fn another_spelling_of_a_member_is_never_overlooked() {
        assert_eq!(
            find("/id", r#"{"id":1,"ID":2}"#).as_deref(),
            Some("ambiguous")
        );
        assert_eq!(find("/id", r#"{"Id":2}"#).as_deref(), Some("ambiguous"));
        assert_eq!(find("/id", r#"{"id ":2}"#), None);
        assert_eq!(
            find("/__proto__/a", r#"{"__proto__":{"a":1}}"#).as_deref(),
            Some("1")
        );
    }

    #[test]
    fn what_is_no_pointer_is_none() {
        for text in ["", "amount", "#/a", "/a~", "/a~2", "/~01~"] {
            assert_eq!(Pointer::parse(text), None, "{text}");
        }
    }
}
