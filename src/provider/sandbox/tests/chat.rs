//! Chat Completions, whole and streamed.

use super::*;

#[test]
fn echo_streams_one_chunk_a_word() {
    let played = chat("sandbox-echo", "Grüße an  alle\n", json!({"stream": true}));
    let chunks = events(&played.body);
    let texts: Vec<_> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(texts, ["", "Grüße", " an", "  alle", "\n"]);
    assert!(played.body.ends_with("data: [DONE]\n\n"));
}

#[test]
fn echo_answers_with_the_text_parts_of_the_last_user_message() {
    let messages = json!([
        {"role": "user", "content": "first"},
        {"role": "user", "content": [
            {"type": "text", "text": "a"},
            {"type": "image_url", "image_url": {"url": "data:,"}},
            {"type": "text", "text": "b"},
        ]},
        {"role": "assistant", "content": "no"},
    ]);
    let played = chat("sandbox-echo", "", json!({"messages": messages}));
    let body: Value = serde_json::from_str(&played.body).unwrap();
    assert_eq!(body["choices"][0]["message"]["content"], "a\nb");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
}

#[test]
fn chunks_share_id_and_begin_with_the_role() {
    let chunks = events(&chat("sandbox-echo", "a b", json!({"stream": true})).body);
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    for chunk in &chunks {
        assert_eq!(chunk["id"], chunks[0]["id"]);
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["model"], "sandbox-echo");
        assert!(chunk.get("usage").is_none());
    }
}

#[test]
fn usage_is_streamed_only_for_those_who_ask_and_equals_that_of_the_whole_answer() {
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let chunks = events(&chat("sandbox-echo", "one two", options).body);
    let whole = chat("sandbox-echo", "one two", json!({}));
    let whole: Value = serde_json::from_str(&whole.body).unwrap();
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"], whole["usage"]);
    assert_eq!(last["usage"]["completion_tokens"], 2);
    assert!(
        others
            .iter()
            .all(|chunk| chunk.get("usage") == Some(&Value::Null))
    );
}

#[test]
fn streamed_calls_join_to_the_calls_of_the_whole_answer() {
    let lines =
        "say Looking.\ncall get_weather {\"city\": \"Zürich\", \"days\": 3}\ncall list\nsay Done.";
    let whole = agent(lines);
    let stream = chat("sandbox-agent", lines, json!({"stream": true}));
    let streamed = joined(&events(&stream.body), 0);
    let message = &whole["choices"][0]["message"];
    assert_eq!(streamed["tool_calls"], message["tool_calls"]);
    assert_eq!(streamed["content"], message["content"]);
    assert_eq!(streamed["finish_reason"], "tool_calls");
    assert_eq!(message["content"], "Looking.\nDone.");
    assert_eq!(
        message["tool_calls"][0]["function"]["arguments"],
        "{\"city\": \"Zürich\", \"days\": 3}"
    );
    assert_eq!(message["tool_calls"][1]["function"]["arguments"], "{}");
    assert_ne!(
        message["tool_calls"][0]["id"],
        message["tool_calls"][1]["id"]
    );
}

#[test]
fn an_answer_of_calls_alone_has_null_content() {
    let body = agent("call a {}");
    assert_eq!(body["choices"][0]["message"]["content"], Value::Null);
    assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn every_choice_says_the_same_under_its_own_call_ids() {
    let lines = "say hi there\ncall a {\"x\":1}";
    let played = chat("sandbox-agent", lines, json!({"n": 2, "stream": true}));
    let chunks = events(&played.body);
    let (first, second) = (joined(&chunks, 0), joined(&chunks, 1));
    assert_eq!(first["content"], second["content"]);
    assert_ne!(first["tool_calls"][0]["id"], second["tool_calls"][0]["id"]);
    let whole: Value =
        serde_json::from_str(&chat("sandbox-agent", lines, json!({"n": 2})).body).unwrap();
    assert_eq!(whole["choices"].as_array().unwrap().len(), 2);
    assert_eq!(whole["usage"]["completion_tokens"], 2 * 4);
}

#[test]
fn a_cap_cuts_the_answer_and_usage_never_passes_it() {
    for member in ["max_tokens", "max_completion_tokens"] {
        for cap in 1..6 {
            let played = chat("sandbox-echo", "ääääääää", json!({member: cap}));
            let body: Value = serde_json::from_str(&played.body).unwrap();
            let used = body["usage"]["completion_tokens"].as_u64().unwrap();
            assert_eq!(used, cap.min(4));
            let finish = if cap < 4 { "length" } else { "stop" };
            assert_eq!(body["choices"][0]["finish_reason"], finish);
        }
    }
}

#[test]
fn a_cap_cuts_arguments_short_and_drops_calls_whose_name_does_not_fit() {
    let lines = "call get_weather {\"city\":\"Oslo\"}\ncall another {}";
    let cut = chat(
        "sandbox-agent",
        lines,
        json!({"max_tokens": 4, "stream": true}),
    );
    let answer = joined(&events(&cut.body), 0);
    assert_eq!(answer["finish_reason"], "length");
    assert_eq!(answer["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(answer["tool_calls"][0]["function"]["arguments"], "{\"cit");
    let none = chat("sandbox-agent", lines, json!({"max_tokens": 1}));
    let body: Value = serde_json::from_str(&none.body).unwrap();
    assert_eq!(body["choices"][0]["message"]["content"], "");
    assert_eq!(body["choices"][0]["finish_reason"], "length");
}

#[test]
fn no_answer_passes_the_models_own_maximum() {
    let words = "a ".repeat(100_000);
    let played = chat("sandbox-echo", &words, json!({"max_tokens": 1_000_000}));
    let body: Value = serde_json::from_str(&played.body).unwrap();
    assert_eq!(body["usage"]["completion_tokens"], MAX_OUTPUT_TOKENS);
    assert_eq!(body["choices"][0]["finish_reason"], "length");
}
