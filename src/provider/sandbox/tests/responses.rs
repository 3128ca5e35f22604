//! Responses, whole and streamed.

use super::*;

#[test]
fn a_response_stream_numbers_its_events_and_ends_with_the_whole_response() {
    let lines = "say Looking it up.\nsleep 5\nsay Now.\ncall find {\"q\":\"a long enough query\"}";
    let stream = respond("sandbox-agent", lines.into(), json!({"stream": true}));
    let whole = respond("sandbox-agent", lines.into(), json!({}));
    let events = events(&stream.body);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
        assert!(
            stream
                .body
                .contains(&format!("event: {}\n", event["type"].as_str().unwrap()))
        );
    }
    let mut kinds: Vec<_> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    assert_eq!(stream.slept, whole.slept);
    let whole: Value = serde_json::from_str(&whole.body).unwrap();
    let last = events.last().unwrap();
    assert_eq!(last["response"], whole);
    assert_eq!(
        whole["output"][0]["content"][0]["text"],
        "Looking it up.\nNow."
    );
    assert!(!stream.body.contains("[DONE]"));
}

#[test]
fn the_deltas_of_a_response_join_to_its_items() {
    let lines = "say one two\ncall find {\"q\":\"a long enough query\"}";
    let events = events(&respond("sandbox-agent", lines.into(), json!({"stream": true})).body);
    let deltas = |kind: &str| -> String {
        let of_kind = events.iter().filter(|event| event["type"] == kind);
        of_kind
            .map(|event| event["delta"].as_str().unwrap())
            .collect()
    };
    let output = &events.last().unwrap()["response"]["output"];
    assert_eq!(
        output[0]["content"][0]["text"],
        deltas("response.output_text.delta")
    );
    assert_eq!(
        output[1]["arguments"],
        deltas("response.function_call_arguments.delta")
    );
    for kind in ["response.output_item.added", "response.output_item.done"] {
        let items = events.iter().filter(|event| event["type"] == kind);
        let ids: Vec<_> = items.map(|event| &event["item"]["id"]).collect();
        assert_eq!(ids, [&output[0]["id"], &output[1]["id"]]);
    }
}

#[test]
fn a_capped_response_is_incomplete() {
    let played = respond(
        "sandbox-echo",
        "one two three".into(),
        json!({"max_output_tokens": 1, "stream": true}),
    );
    let events = events(&played.body);
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(
        last["response"]["incomplete_details"]["reason"],
        "max_output_tokens"
    );
    assert_eq!(last["response"]["output"][0]["status"], "incomplete");
    assert_eq!(last["response"]["usage"]["output_tokens"], 1);
}

#[test]
fn responses_read_items_and_end_a_loop_after_a_call_output() {
    let input = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "call a {}"}]},
        {"type": "function_call", "call_id": "c", "name": "a", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "42"},
    ]);
    let played = respond("sandbox-agent", input.clone(), json!({}));
    let body: Value = serde_json::from_str(&played.body).unwrap();
    assert_eq!(
        body["output"][0]["content"][0]["text"],
        "The tool answered: 42"
    );
    let first = respond("sandbox-agent", json!([input[0]]), json!({}));
    let body: Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!(body["output"][0]["name"], "a");
}

#[test]
fn break_cuts_a_response_stream_before_its_terminal_event() {
    let played = respond(
        "sandbox-agent",
        "say a b c d\nbreak".into(),
        json!({"stream": true}),
    );
    assert!(played.cut);
    assert!(played.body.contains("response.output_item.added"));
    assert!(!played.body.contains("response.completed"));
}
