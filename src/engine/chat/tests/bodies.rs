//! Calls in whole bodies.

use bytes::Bytes;
use serde_json::{Value, json};

use super::support::call_rules;
use crate::engine::{
    chain::Delivery,
    chat::{Answer, Body},
};

fn read(body: &Value, allowed: &'static [&'static str], delivery: Delivery) -> Answer {
    let body = Bytes::from(body.to_string());
    Answer::read(&body, &call_rules(allowed, delivery)).unwrap()
}

fn sent(answer: &Answer) -> Value {
    match &answer.body {
        Body::Send(body) => serde_json::from_slice(body).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn body(message: Value, finish: &str) -> Value {
    json!({"id": "c", "object": "chat.completion", "choices": [
        {"index": 0, "message": message, "finish_reason": finish, "logprobs": null}]})
}

fn calls(names: &[&str]) -> Value {
    let call = |name: &&str| {
        json!({"id": format!("id_{name}"), "type": "function",
        "function": {"name": name, "arguments": "{}"}})
    };
    names.iter().map(call).collect()
}

#[test]
fn a_body_without_calls_leaves_as_the_bytes_that_came() {
    let body = Bytes::from_static(
        b" {\"choices\" : [{\"message\":{\"content\":\"Hi\",\"tool_calls\":[]}}]}",
    );
    let answer = Answer::read(&body, &call_rules(&[], Delivery::default())).unwrap();
    assert!(matches!(answer.body, Body::Send(sent) if sent == body));
}

#[test]
fn allowed_calls_arrive_and_blocked_ones_are_told_in_their_place() {
    let message =
        json!({"role": "assistant", "content": null, "tool_calls": calls(&["a", "secret"])});
    let body = body(message, "tool_calls");
    let whole = sent(&read(&body, &["a", "secret"], Delivery::default()));
    assert_eq!(
        whole["choices"][0]["message"]["tool_calls"],
        calls(&["a", "secret"])
    );
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    let all = read(&body, &["a"], Delivery::default());
    let message = &sent(&all)["choices"][0]["message"];
    assert!(message.get("tool_calls").is_none() && message["role"] == "assistant");
    assert!(
        message["content"]
            .as_str()
            .unwrap()
            .contains("\"secret\" (tool_not_allowlisted)")
    );
    assert_eq!(sent(&all)["choices"][0]["finish_reason"], "stop");
    assert_eq!(sent(&all)["guard"]["code"], "tool_not_allowlisted");
    assert!(!sent(&all).to_string().contains("id_"));
    let each = Delivery {
        each: true,
        ..Delivery::default()
    };
    let each = sent(&read(&body, &["a"], each));
    assert_eq!(each["choices"][0]["message"]["tool_calls"], calls(&["a"]));
    assert_eq!(each["choices"][0]["finish_reason"], "tool_calls");
    let error = Delivery {
        as_error: true,
        ..Delivery::default()
    };
    assert!(matches!(read(&body, &["a"], error).body, Body::Refused(blocks) if blocks.len() == 1));
}

#[test]
fn every_choice_and_every_form_is_judged() {
    let second = json!({"role": "assistant", "content": "Hi", "function_call": {"name": "secret", "arguments": "{\"k\":1}"}});
    let mut two = body(json!({"content": "Hi"}), "stop");
    let choice = json!({"index": 1, "message": second, "finish_reason": "function_call"});
    two["choices"].as_array_mut().unwrap().push(choice);
    let denied = sent(&read(&two, &[], Delivery::default()));
    let message = &denied["choices"][1]["message"];
    assert!(
        message["content"]
            .as_str()
            .unwrap()
            .starts_with("Hi\n\nBlocked")
    );
    assert!(!denied.to_string().contains("\\\"k\\\""));
    assert_eq!(denied["choices"][0], two["choices"][0]);
    let allowed = sent(&read(&two, &["secret"], Delivery::default()));
    assert_eq!(allowed["choices"][1], two["choices"][1]);
}

#[test]
fn calls_in_odd_places_never_leave() {
    let hidden = json!([{"id": "x", "function": {"name": "secret", "arguments": "{}"}}]);
    for (place, message) in [
        ("delta", json!({"tool_calls": hidden})),
        ("tool_calls", hidden.clone()),
        (
            "message",
            json!({"content": [{"type": "tool_use", "name": "secret"}]}),
        ),
        (
            "message",
            json!({"provider_specific_fields": {"tool_calls": hidden}}),
        ),
    ] {
        let mut body = body(json!({"content": "Hi"}), "stop");
        body["choices"][0][place] = message;
        let answer = read(&body, &["secret"], Delivery::default());
        assert!(!sent(&answer).to_string().contains("secret"), "{body}");
        assert_eq!(answer.judged.len(), 1);
    }
    let top = Bytes::from(json!({"content": [{"type": "tool_use", "name": "secret"}]}).to_string());
    assert!(Answer::read(&top, &call_rules(&[], Delivery::default())).is_err());
}

#[test]
fn number_text_is_kept() {
    let text = "{\"choices\":[{\"index\":0,\"message\":{\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"a\",\"arguments\":{\"n\":1.10}}}]},\"x\":1.10}]}";
    let body = Bytes::from_static(text.as_bytes());
    let answer = Answer::read(&body, &call_rules(&["a"], Delivery::default())).unwrap();
    let Body::Send(sent) = answer.body else {
        panic!()
    };
    let sent = std::str::from_utf8(&sent).unwrap();
    assert!(
        sent.contains("{\\\"n\\\":1.10}") && sent.contains("\"x\":1.10"),
        "{sent}"
    );
}

#[test]
fn an_error_inside_a_good_status_is_an_error() {
    let body = json!({"error": {"message": "m", "code": 3, "failed_generation": "secret"}});
    let Body::Error(error) = read(&body, &[], Delivery::default()).body else {
        panic!()
    };
    assert_eq!(
        (&error["code"], error.to_string().contains("secret")),
        (&json!("3"), false)
    );
}
