//! The forms are held to what OpenAI sends: a stream must join back to the whole answer.

use serde_json::{Value, json};

use super::*;

mod agent;
mod chat;
mod responses;

const SEED: u128 = 0xfeed;

/// A script played to its end without waiting.
struct Played {
    status: u16,
    body: String,
    slept: Duration,
    cut: bool,
}

fn play(endpoint: Endpoint, request: &str) -> Played {
    let script = answer(endpoint, request.as_bytes(), SEED, 1_700_000_000);
    let mut played = Played {
        status: script.status,
        body: String::new(),
        slept: Duration::ZERO,
        cut: false,
    };
    for step in script.steps {
        assert!(!played.cut, "nothing follows a cut");
        match step {
            Step::Send(bytes) => played.body += std::str::from_utf8(&bytes).unwrap(),
            Step::Sleep(duration) => played.slept += duration,
            Step::Cut => played.cut = true,
        }
    }
    played
}

/// A chat request with `members` beside model and one user message.
fn chat(model: &str, user: &str, members: Value) -> Played {
    let request = json!({"model": model, "messages": [{"role": "user", "content": user}]});
    play(Endpoint::Chat, &with(request, members).to_string())
}

fn agent(lines: &str) -> Value {
    let played = chat("sandbox-agent", lines, json!({}));
    assert_eq!(played.status, 200);
    serde_json::from_str(&played.body).unwrap()
}

fn respond(model: &str, input: Value, members: Value) -> Played {
    play(
        Endpoint::Responses,
        &with(json!({"model": model, "input": input}), members).to_string(),
    )
}

fn with(mut request: Value, members: Value) -> Value {
    for (name, value) in members.as_object().unwrap() {
        request[name] = value.clone();
    }
    request
}

/// The data of each event, `[DONE]` left out.
fn events(body: &str) -> Vec<Value> {
    assert!(body.ends_with("\n\n"), "the last event is closed");
    let data = body
        .split("\n\n")
        .filter_map(|frame| frame.split("data: ").nth(1));
    data.filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

/// Joins the chunks of one choice as SDK helpers do.
fn joined(chunks: &[Value], choice: usize) -> Value {
    let mut content = None;
    let mut calls: Vec<Value> = Vec::new();
    let mut finish = Value::Null;
    let choices = chunks
        .iter()
        .flat_map(|chunk| chunk["choices"].as_array().unwrap());
    for part in choices.filter(|part| part["index"] == choice) {
        assert_eq!(finish, Value::Null, "nothing follows the finish reason");
        finish = part["finish_reason"].clone();
        if let Some(text) = part["delta"]["content"].as_str() {
            content.get_or_insert_with(String::new).push_str(text);
        }
        for call in part["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            if index == calls.len() {
                assert_eq!(call["function"]["arguments"], "");
                calls.push(
                    json!({"id": call["id"], "type": call["type"], "function": call["function"]}),
                );
            } else {
                let so_far = calls[index]["function"]["arguments"].as_str().unwrap();
                let piece = call["function"]["arguments"].as_str().unwrap();
                assert!(call.get("id").is_none() && call["function"].get("name").is_none());
                calls[index]["function"]["arguments"] = format!("{so_far}{piece}").into();
            }
        }
    }
    json!({"content": content, "tool_calls": calls, "finish_reason": finish})
}

#[test]
fn the_same_request_gives_the_same_bytes_and_another_seed_other_ids() {
    let request =
        br#"{"model":"sandbox-agent","messages":[{"role":"user","content":"call a {}"}]}"#;
    let sent = |seed| {
        answer(Endpoint::Chat, request, seed, 7)
            .steps
            .collect::<Vec<_>>()
    };
    assert_eq!(sent(1), sent(1));
    assert_ne!(sent(1), sent(2));
}

#[test]
fn unknown_models_are_answered_as_openai_does() {
    let played = chat("sandbox-other", "", json!({}));
    let body: Value = serde_json::from_str(&played.body).unwrap();
    assert_eq!(
        (played.status, &body["error"]["code"]),
        (404, &"model_not_found".into())
    );
    let played = respond("gpt-4o", "hi".into(), json!({}));
    let body: Value = serde_json::from_str(&played.body).unwrap();
    assert_eq!(
        (played.status, &body["error"]["param"]),
        (400, &"model".into())
    );
}

#[test]
fn wrong_requests_are_refused_with_the_member_that_is_wrong() {
    let cases = [
        (json!({"model": 5}), "model"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": ["hi"]}), "messages"),
        (json!({"n": 0}), "n"),
        (json!({"n": 129}), "n"),
        (json!({"stream": 1}), "stream"),
        (json!({"stream_options": {}}), "stream_options"),
        (json!({"max_tokens": -1}), "max_tokens"),
        (
            json!({"max_tokens": 1, "max_completion_tokens": 1}),
            "max_tokens",
        ),
    ];
    for (members, param) in cases {
        let played = chat("sandbox-echo", "hi", members.clone());
        let body: Value = serde_json::from_str(&played.body).unwrap();
        assert_eq!(
            (played.status, &body["error"]["param"]),
            (400, &param.into()),
            "{members}"
        );
    }
    assert_eq!(play(Endpoint::Chat, "{\"model\":").status, 400);
    assert_eq!(play(Endpoint::Chat, "[]").status, 400);
    assert_eq!(play(Endpoint::Chat, &"[".repeat(100_000)).status, 400);
}
