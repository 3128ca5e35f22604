//! OpenAI-compatible providers: where their endpoints are.

use url::Url;

/// The endpoint `suffix` (such as `chat/completions`) below a configured base URL. A base
/// without a path means the usual `/v1`; any other path stands as it was written.
pub fn endpoint(base: &Url, suffix: &str) -> Url {
    let mut url = base.clone();
    let path = match base.path().trim_end_matches('/') {
        "" => format!("/v1/{suffix}"),
        path => format!("{path}/{suffix}"),
    };
    url.set_path(&path);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_with_and_without_v1_or_a_final_slash_reaches_the_same_path() {
        for (base, wanted) in [
            ("https://u", "https://u/v1/chat/completions"),
            ("https://u/", "https://u/v1/chat/completions"),
            ("https://u/v1", "https://u/v1/chat/completions"),
            ("https://u/v1/", "https://u/v1/chat/completions"),
            (
                "https://u/v1beta/openai",
                "https://u/v1beta/openai/chat/completions",
            ),
        ] {
            let base = Url::parse(base).unwrap();
            assert_eq!(endpoint(&base, "chat/completions").as_str(), wanted);
        }
    }
}
