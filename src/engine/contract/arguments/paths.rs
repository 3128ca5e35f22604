//! Paths that can lead nowhere but where they seem to. What links on the tool's machine do is
//! out of our sight.

/// Whether `path` is plain and stands at or below one of `prefixes`.
pub(super) fn is_below(path: &str, prefixes: &[Box<str>]) -> bool {
    is_plain(path)
        && prefixes.iter().any(|prefix| {
            let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
            let rest = path.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
}

/// Without anything that some reader resolves, decodes, trims or takes for a separator.
pub fn is_plain(path: &str) -> bool {
    let below_root = path.strip_prefix('/').unwrap_or(path);
    // One slash at the end names a directory.
    let trimmed = below_root.strip_suffix('/').unwrap_or(below_root);
    let segments_fine = (trimmed.is_empty() && path == "/")
        || (!trimmed.is_empty() && trimmed.split('/').all(is_plain_segment));
    segments_fine && !path.starts_with('~') && !path.chars().any(is_odd)
}

fn is_plain_segment(segment: &str) -> bool {
    // Windows drops dots and spaces at the end of a name, and with them hides `..`.
    let trimmed = segment.trim_matches([' ', '.']);
    !trimmed.is_empty() && !segment.ends_with([' ', '.']) && !segment.starts_with(' ')
}

/// Control characters, other separators, encodings (`%2e`), and characters that become a dot,
/// a slash or nothing when a text is normalised.
fn is_odd(char: char) -> bool {
    char.is_control()
        || matches!(char, '\\' | '%')
        || matches!(
            char,
            '\u{ad}' | '\u{2024}'..='\u{2026}' | '\u{2044}' | '\u{2215}' | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{29f8}' | '\u{fe52}'
                | '\u{fe68}' | '\u{feff}' | '\u{ff05}' | '\u{ff0e}' | '\u{ff0f}' | '\u{ff3c}'
        )
}
