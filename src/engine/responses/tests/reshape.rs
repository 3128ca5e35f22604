//! An answer in the other shape says the same.

use super::*;

#[test]
fn a_body_and_its_stream_become_each_other() {
    let mut script = Script::new();
    script
        .text("Look at this.")
        .call("c1", "read_file", "{\"a\":1}");
    script.item(json!({"type": "reasoning", "id": "rs", "summary": []}));
    let upstream = script.end("completed");
    let body = as_body(&upstream).unwrap();
    let value: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(value, script.response("completed"));
    let stream = as_stream(&body).unwrap();
    let seen = Seen::new(&stream, Tally::default());
    seen.assert_consistent();
    assert_eq!(seen.text(), "Look at this.");
    assert_eq!(seen.calls()[0]["arguments"], "{\"a\":1}");
    assert_eq!(seen.response(), &value);
    assert_eq!(as_body(&stream).unwrap(), body);
    let judged = run(&stream, 50, rules(all, Delivery::default()));
    assert_eq!(judged.items(), seen.items());
}

#[test]
fn what_is_no_answer_has_no_other_shape() {
    assert!(as_body(b"data: {\"type\":\"response.created\",\"response\":{}}\n\n").is_err());
    assert!(as_stream(b"{}").is_err());
}
