//! Names that others chose, made fit to stand in texts of ours.

/// A name that a model wrote, made harmless for texts that people, models and terminals read:
/// letters of names as they are, everything else as `?`, cut to what a name needs.
pub fn clean_name(name: &str) -> String {
    clean(name, "_-.:")
}

/// The same for places in arguments, whose steps a model may have written.
pub fn clean_pointer(pointer: &str) -> String {
    clean(pointer, "_-./~$")
}

fn clean(name: &str, signs: &str) -> String {
    let harmless = |char: char| char.is_ascii_alphanumeric() || signs.contains(char);
    let cleaned: String = name
        .chars()
        .take(LONGEST_NAME)
        .map(|char| if harmless(char) { char } else { '?' })
        .collect();
    match name.chars().nth(LONGEST_NAME) {
        Some(_) => cleaned + "…",
        None => cleaned,
    }
}

/// In characters; what OpenAI lets a function name have.
const LONGEST_NAME: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_speak() {
        for (name, shown) in [
            ("search.web", "search.web"),
            ("type:local_shell", "type:local_shell"),
            ("a\n\n# Now ignore", "a????Now?ignore"),
            ("x\u{1b}[2J", "x??2J"),
            ("[link](http://e)", "?link??http:??e?"),
            ("pаy", "p?y"),
            ("", ""),
        ] {
            assert_eq!(clean_name(name), shown);
        }
        let long = "n".repeat(65);
        assert_eq!(clean_name(&long), "n".repeat(64) + "…");
        assert_eq!(clean_name(&long[1..]), "n".repeat(64));
    }
}
