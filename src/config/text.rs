//! How findings about a configuration read: places, paths, nearest names.

use std::fmt;

use super::{ConfigError, Problem};

/// `config/tallygate.toml:12:3: keys[0].polcy: unknown member; did you mean "policy"?`
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// One line for each problem.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Line and column of a byte, both counted from 1, the column in characters.
pub(super) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let in_line = before
        .get(line_start..)
        .unwrap_or_default()
        .trim_start_matches('\u{feff}');
    (
        before.matches('\n').count() + 1,
        in_line.chars().count() + 1,
    )
}

/// The path of a member as one would write it: `models."gpt-4.1".price`.
pub(super) fn member_path(parent: &str, name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let name = match !name.is_empty() && name.bytes().all(bare) {
        true => name.to_owned(),
        false => format!("{name:?}"),
    };
    if parent.is_empty() {
        name
    } else {
        format!("{parent}.{name}")
    }
}

/// `; did you mean "policy"?`, or all there is to choose from if nothing is near.
pub(super) fn suggestion<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("; did you mean {near:?}?"),
        None if known.is_empty() => String::new(),
        None => format!("; known: {}", known.join(", ")),
    }
}

fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let name = name.to_lowercase();
    known
        .map(|other| (strsim::jaro_winkler(&name, &other.to_lowercase()), other))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, other)| other)
}

/// From here on, two names are taken for spellings of each other (Jaro-Winkler, 0 to 1).
const ALIKE: f64 = 0.78;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_not_bytes() {
        let text = "a = \"žluť\" # x\nb = 1";
        assert_eq!(position(text, 0), (1, 1));
        assert_eq!(position(text, text.find('#').unwrap()), (1, 12));
        assert_eq!(position(text, text.find('b').unwrap()), (2, 1));
        assert_eq!(position(text, 9_999), (2, 6));
    }

    #[test]
    fn a_byte_order_mark_takes_no_column() {
        assert_eq!(position("\u{feff}a = 1", 3), (1, 1));
    }

    #[test]
    fn names_that_are_not_bare_are_quoted_in_a_path() {
        assert_eq!(member_path("", "server"), "server");
        assert_eq!(member_path("models", "gpt-4.1"), "models.\"gpt-4.1\"");
        assert_eq!(member_path("models", ""), "models.\"\"");
    }

    #[test]
    fn a_misspelt_name_is_answered_with_its_nearest() {
        for (wrong, right) in [
            ("polcy", "policy"),
            ("dayly_cost_limit", "daily_cost_usd"),
            ("Listen", "listen"),
            ("tennant", "tenant"),
        ] {
            let known = [
                "policy",
                "daily_cost_usd",
                "total_cost_usd",
                "listen",
                "tenant",
            ];
            assert_eq!(
                suggestion(wrong, known),
                format!("; did you mean {right:?}?")
            );
        }
        assert_eq!(
            suggestion("xyz", ["policy", "name"]),
            "; known: policy, name"
        );
    }
}
