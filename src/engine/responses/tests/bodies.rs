//! Whole answers.

use super::*;

fn body(output: Value, status: &str) -> Bytes {
    let body = json!({"id": "resp_1", "object": "response", "status": status, "model": "m-1",
        "output": output, "usage": {"input_tokens": 20, "output_tokens": 10}});
    Bytes::from(body.to_string())
}

fn text(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

#[test]
fn a_body_without_calls_keeps_its_bytes() {
    let body = body(
        json!([text("Hi"), {"type": "web_search_call", "id": "ws"}]),
        "completed",
    );
    let rules = call_rules(all, Delivery::default());
    let (answer, own) = judge_whole(&body, rules).unwrap();
    assert_eq!(sent(&answer), body);
    assert_eq!(own.response.as_deref(), Some("resp_1"));
    assert_eq!(own.items, ["msg_1", "ws"]);
    assert_eq!(answer.tally.usage.unwrap().usage.output, 10);
}

#[test]
fn a_blocked_call_is_replaced_where_it_stood() {
    let output = json!([
        text("Look:"),
        function("c1", "delete_file", "{\"a\":1}", "completed"),
        function("c2", "read_file", "{}", "completed"),
        text("Done.")
    ]);
    let body = body(output, "completed");
    let blocked = whole(&body, call_rules(not_delete, Delivery::default()));
    let value: Value = serde_json::from_slice(&sent(&blocked)).unwrap();
    assert_eq!(value["output"].as_array().unwrap().len(), 3);
    let said = value["output"][1]["content"][0]["text"].as_str().unwrap();
    assert!(
        said.contains("\"delete_file\" (tool_not_allowlisted)"),
        "{said}"
    );
    assert_eq!(value["guard"]["decision"], DECISION);
    assert_eq!(blocked.tally.tool_calls, 2);
    let each = Delivery {
        each: true,
        as_error: false,
    };
    let kept = whole(&body, call_rules(not_delete, each));
    let value: Value = serde_json::from_slice(&sent(&kept)).unwrap();
    assert_eq!(value["output"][2]["name"], "read_file");
    assert!(!value.to_string().contains("\"c1\""));
}

#[test]
fn as_an_error_nothing_of_the_answer_is_sent() {
    let body = body(
        json!([function("c1", "delete_file", "{}", "completed")]),
        "completed",
    );
    let delivery = Delivery {
        as_error: true,
        each: false,
    };
    let Body::Refused(blocks) = whole(&body, call_rules(none, delivery)).body else {
        panic!("something was sent");
    };
    assert_eq!(blocks[0].code, "tool_not_allowlisted");
}

#[test]
fn calls_of_an_answer_that_failed_or_goes_on_are_nobodys() {
    for status in ["failed", "cancelled", "queued", "in_progress"] {
        let body = body(
            json!([text("Hi"), function("c1", "read_file", "{}", "completed")]),
            status,
        );
        let left = whole(&body, call_rules(all, Delivery::default()));
        let value: Value = serde_json::from_slice(&sent(&left)).unwrap();
        assert_eq!(value["output"].as_array().unwrap().len(), 1, "{status}");
    }
}

#[test]
fn what_reads_in_two_ways_is_not_read() {
    for body in [
        r#"{"output":[],"output":[{"type":"function_call"}]}"#,
        r#"{"output":[{"type":"message","type":"function_call"}]}"#,
        r#"{"output":{"type":"function_call"}}"#,
        r#"{"output":[],"choices":[{"message":{"tool_calls":[]}}]}"#,
        r#"{"output":[{"name":"delete_file"}]}"#,
        "[]",
        "nonsense",
    ] {
        let body = Bytes::from(body);
        assert!(
            judge_whole(&body, call_rules(all, Delivery::default())).is_err(),
            "{body:?}"
        );
    }
}
