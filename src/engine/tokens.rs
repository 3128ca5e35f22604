//! How many tokens a request can have at most, and about how many an answer had.

use super::call::ChatRequest;

/// A high-detail picture costs no more than this at any vendor we know of (the dearest found:
/// 48,169 tokens, gpt-4o-mini).
const IMAGE: u64 = 50_000;
/// Roles, separators and the like.
const MESSAGE: u64 = 16;
const REQUEST: u64 = 256;
/// Bytes that a token stands for on average; used for estimates, never for bounds.
const BYTES_PER_TOKEN: u64 = 4;

/// An upper bound of the input. A byte-level tokenizer makes no more tokens than bytes; a
/// picture, a sound or a file has a bound of its own.
pub fn input_bound(request: &ChatRequest, body_bytes: usize) -> u64 {
    let content = &request.content;
    if content.images == 0 && content.media_bytes == 0 {
        return body_bytes as u64;
    }
    parts(request) + content.bytes
}

/// A closer bound, by the tokenizer of OpenAI's models; for others the plain one.
pub fn exact_input(request: &ChatRequest, body_bytes: usize, model: &str) -> u64 {
    let bound = input_bound(request, body_bytes);
    let Some(tokenizer) = tokenizer(model) else {
        return bound;
    };
    let content = &request.content;
    let texts: u64 = content
        .texts
        .iter()
        .map(|text| tokenizer.count(text) as u64)
        .sum();
    let text_bytes: u64 = content.texts.iter().map(|text| text.len() as u64).sum();
    let other = content.bytes.saturating_sub(text_bytes);
    bound.min(parts(request) + other + texts)
}

/// About how many tokens so many bytes of text are.
pub fn estimate(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

fn parts(request: &ChatRequest) -> u64 {
    let content = &request.content;
    REQUEST
        + MESSAGE * content.messages
        + IMAGE * content.images
        + content.media_bytes
        + request.tool_bytes()
}

fn tokenizer(model: &str) -> Option<&'static bpe_openai::Tokenizer> {
    let any = |names: &[&str]| names.iter().any(|name| model.starts_with(name));
    if any(&["gpt-4o", "gpt-4.1", "gpt-5", "o1", "o3", "o4", "chatgpt-4o"]) {
        Some(bpe_openai::o200k_base())
    } else if any(&["gpt-4", "gpt-3.5"]) {
        Some(bpe_openai::cl100k_base())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> (ChatRequest, usize) {
        let body =
            serde_json::json!({"model": "m", "messages": [{"role": "user", "content": text}]})
                .to_string();
        (ChatRequest::read(body.as_bytes()).unwrap(), body.len())
    }

    #[test]
    fn the_bound_is_never_below_the_exact_count() {
        for text in ["", "hello", "\u{4e2d}\u{6587}\u{1f600}", "a b c d e f g"] {
            let (request, bytes) = request(text);
            let exact = bpe_openai::o200k_base().count(text) as u64;
            assert!(exact_input(&request, bytes, "gpt-4o") >= exact);
            assert!(input_bound(&request, bytes) >= exact_input(&request, bytes, "gpt-4o"));
        }
    }

    #[test]
    fn a_long_text_is_counted_closer_where_the_tokenizer_is_known() {
        let (request, bytes) = request(&"hello world ".repeat(1000));
        assert!(exact_input(&request, bytes, "gpt-4o") < 3_000);
        assert_eq!(exact_input(&request, bytes, "other"), bytes as u64);
    }

    #[test]
    fn a_picture_has_its_own_bound_whatever_its_bytes() {
        let body = br#"{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x"}}]}]}"#;
        let request = ChatRequest::read(body).unwrap();
        assert!(input_bound(&request, body.len()) >= IMAGE);
    }
}
