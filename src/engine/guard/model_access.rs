//! May this key use a model of this name?

use crate::engine::policy::ModelRules;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Allowed,
    /// On the deny list, or a spelling that a provider may fold onto something there.
    Denied,
    /// There is an allow list, and it does not hold this name.
    NotListed,
}

impl Access {
    /// The list that says no, if one does.
    pub fn rule(self) -> Option<&'static str> {
        match self {
            Self::Allowed => None,
            Self::Denied => Some("models.deny"),
            Self::NotListed => Some("models.allow"),
        }
    }
}

/// Judges the name as it would go upstream. Names are compared exactly; only the deny list
/// also catches other spellings, since a provider may be less exact than we are.
pub fn judge(rules: &ModelRules, name: &str) -> Access {
    if is_denied(rules, name) {
        return Access::Denied;
    }
    match &rules.allow {
        Some(allow) if !allow.iter().any(|pattern| pattern.matches(name)) => Access::NotListed,
        _ => Access::Allowed,
    }
}

/// The same of a name that leads to one of `routes`: it is denied if one of them is.
pub fn judge_leading<'a>(
    rules: &ModelRules,
    name: &str,
    mut routes: impl Iterator<Item = &'a str>,
) -> Access {
    match judge(rules, name) {
        Access::Allowed if routes.any(|route| is_denied(rules, route)) => Access::Denied,
        access => access,
    }
}

/// Whether the deny list holds the name, under any spelling.
fn is_denied(rules: &ModelRules, name: &str) -> bool {
    if rules.deny.is_empty() {
        return false;
    }
    let folded = fold(name);
    rules.deny.iter().any(|pattern| {
        pattern.matches(name) || folded.iter().any(|form| pattern.folded().matches(form))
    })
}

/// What careless readers make of a name: other case, white space and invisible characters
/// gone, without `vendor/` before it or `:variant` behind it.
fn fold(name: &str) -> Vec<String> {
    let visible: String = name
        .chars()
        .filter(|char| !char.is_whitespace() && !char.is_control() && !is_invisible(*char))
        .flat_map(char::to_lowercase)
        .collect();
    let bare = visible.rsplit('/').next().unwrap_or_default();
    let plain = bare.split(':').next().unwrap_or_default();
    vec![visible.clone(), bare.to_owned(), plain.to_owned()]
}

fn is_invisible(char: char) -> bool {
    matches!(char, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::policy::Pattern;

    fn rules(allow: Option<&[&str]>, deny: &[&str]) -> ModelRules {
        let read = |names: &[&str]| names.iter().map(|n| Pattern::parse(n).unwrap()).collect();
        ModelRules {
            allow: allow.map(read),
            deny: read(deny),
            observe: false,
        }
    }

    #[test]
    fn deny_wins_over_allow_and_prefixes_match_their_beginning_only() {
        let rules = rules(Some(&["gpt-4o", "m-*"]), &["m-forbidden"]);
        assert_eq!(judge(&rules, "m-small"), Access::Allowed);
        assert_eq!(judge(&rules, "m-forbidden"), Access::Denied);
        assert_eq!(judge(&rules, "gpt-4o-mini"), Access::NotListed);
        assert_eq!(judge(&rules, "xm-small"), Access::NotListed);
    }

    #[test]
    fn no_spelling_gets_round_a_deny() {
        let rules = rules(None, &["m-forbidden"]);
        for name in [
            "openai/m-forbidden",
            "M-Forbidden",
            " m-forbidden",
            "m-forbidden:free",
            "m-forbidden\u{200b}",
            "m-forbidden",
        ] {
            assert_eq!(judge(&rules, name), Access::Denied, "{name:?}");
        }
        assert_eq!(judge(&rules, "m-forbidden-not"), Access::Allowed);
    }

    #[test]
    fn an_empty_allow_list_allows_nothing_and_an_absent_one_everything() {
        assert_eq!(judge(&rules(Some(&[]), &[]), "m"), Access::NotListed);
        assert_eq!(judge(&rules(None, &[]), "m"), Access::Allowed);
    }
}
