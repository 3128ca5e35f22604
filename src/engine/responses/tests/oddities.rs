//! One oddity a test.

use super::*;

const EACH: Delivery = Delivery {
    as_error: false,
    each: true,
};

/// What comes out after each event of a stream.
fn steps(events: &[Value], rules: StreamRules) -> Vec<String> {
    let mut judge = ResponsesStream::new(rules);
    let mut seen = Vec::new();
    for event in events {
        let mut out = Vec::new();
        judge.feed(stream(std::slice::from_ref(event)).into(), &mut out);
        seen.push(String::from_utf8(out.concat()).unwrap());
    }
    seen
}

#[test]
fn text_leaves_at_once_and_unchanged_while_a_call_is_withheld_before_it() {
    let mut script = Script::new();
    script.text("Before.").call("c1", "read_file", "{}");
    script.text("Said meanwhile.").end("completed");
    let seen = steps(&script.events, rules(all, Delivery::default()));
    for (event, out) in script.events.iter().zip(&seen) {
        let kind = event["type"].as_str().unwrap();
        let of_call = event["output_index"] == 1;
        assert_eq!(out.is_empty(), of_call, "{kind}");
        if event["output_index"] == 0 {
            assert_eq!(out.as_bytes(), stream(std::slice::from_ref(event)));
        }
    }
    let whole = run(&stream(&script.events), 5, rules(all, Delivery::default()));
    whole.assert_consistent();
    assert_eq!(whole.text(), "Before.Said meanwhile.");
    let kinds: Vec<&Value> = whole.items().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "message", "function_call"]);
}

#[test]
fn what_a_model_thought_stays_beside_the_call_that_came_of_it() {
    let thought = |id: &str| json!({"type": "reasoning", "id": id, "summary": []});
    let mut script = Script::new();
    script.item(thought("rs_1")).call("c1", "read_file", "{}");
    script.item(thought("rs_2")).call("c2", "read_file", "{}");
    let bytes = script.end("completed");
    let seen = run(&bytes, 9, rules(all, Delivery::default()));
    seen.assert_consistent();
    let ids: Vec<&Value> = seen.items().iter().map(|item| &item["id"]).collect();
    assert_eq!(ids, ["rs_1", "fc_c1", "rs_2", "fc_c2"]);
}

#[test]
fn with_each_a_call_goes_on_as_soon_as_it_is_whole() {
    let mut script = Script::new();
    script.call("c1", "read_file", "{\"path\":\"a\"}");
    script.call("c2", "delete_file", "{\"path\":\"hidden\"}");
    let bytes = script.end("completed");
    let seen = steps(&script.events, rules(not_delete, EACH));
    let done = script.events.iter().position(|event| {
        event["type"] == "response.output_item.done" && event["output_index"] == 0
    });
    assert!(seen[done.unwrap()].contains("read_file"));
    let seen = run(&bytes, 11, rules(not_delete, EACH));
    seen.assert_consistent();
    assert_eq!(seen.calls().len(), 1);
    assert!(!seen.holds("hidden") && !seen.holds("c2"));
    assert!(
        seen.text()
            .contains("\"delete_file\" (tool_not_allowlisted)")
    );
    assert_eq!(seen.response()["output"][1]["type"], "message");
}

#[test]
fn one_blocked_call_withholds_its_siblings_too() {
    let mut script = Script::new();
    script.call("c1", "read_file", "{\"path\":\"kept back\"}");
    script.call("c2", "delete_file", "{}");
    let seen = run(
        &script.end("completed"),
        7,
        rules(not_delete, Delivery::default()),
    );
    seen.assert_consistent();
    assert!(seen.calls().is_empty());
    assert!(!seen.holds("kept back") && !seen.holds("\"read_file\""));
    assert_eq!(seen.items().len(), 1);
    assert_eq!(seen.response()["output"].as_array().unwrap().len(), 1);
    assert_eq!(seen.response()["status"], "completed");
    assert_eq!(
        seen.events.last().unwrap()["guard"]["code"],
        "tool_not_allowlisted"
    );
}

#[test]
fn an_unknown_item_beside_text_is_withheld_and_the_text_stays() {
    let mut script = Script::new();
    script.text("Look:");
    script.item(
        json!({"type": "teleport_call", "id": "tp_1", "call_id": "c1", "destination": "/etc"}),
    );
    let seen = run(
        &script.end("completed"),
        7,
        rules(none, Delivery::default()),
    );
    seen.assert_consistent();
    assert!(seen.text().starts_with("Look:"));
    assert!(!seen.holds("/etc") && !seen.holds("tp_1"));
}

#[test]
fn item_calls_are_judged_by_their_type_and_their_whole_action() {
    let mut asked: Vec<(CallKind, String)> = Vec::new();
    for item in [
        json!({"type": "local_shell_call", "id": "l", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}}),
        json!({"type": "computer_call", "id": "l", "call_id": "c", "actions": [{"type": "click"}]}),
        json!({"type": "apply_patch_call", "id": "l", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}}),
        json!({"type": "teleport_call", "id": "l", "call_id": "c", "to": 1.10}),
        json!({"type": "mcp_approval_request", "id": "l", "server_label": "wiki", "name": "ask", "arguments": "{}"}),
    ] {
        let mut script = Script::new();
        let bytes = script.item(item).end("completed");
        let mut stream = ResponsesStream::new(rules(all, Delivery::default()));
        stream.feed(bytes.into(), &mut Vec::new());
        let judged = &stream.take_judged()[0].call;
        asked.push((judged.kind.clone(), judged.arguments.clone()));
    }
    let item = |kind: &str, arguments: &str| (CallKind::Item(kind.into()), arguments.to_owned());
    assert_eq!(
        asked,
        [
            item("local_shell", r#"{"type":"exec","command":["ls"]}"#),
            item("computer", r#"[{"type":"click"}]"#),
            item("apply_patch", r#"{"type":"delete_file","path":"a"}"#),
            item("teleport", r#"{"call_id":"c","to":1.1}"#),
            item("mcp", "{}"),
        ]
    );
}

#[test]
fn the_same_call_in_odd_spelling_is_the_same_call() {
    let event = r#"{"t\u0079pe":"response.output_item.done","output_index":0,"item":{"type":"function\u005fcall","call_id":"c1","name":"\u0064elete_file","arguments":{"a":1}}}"#;
    let bytes = format!("event: response.output_text.delta\ndata:{event}\r\n\r\n");
    let mut script = Script::new();
    let mut whole = stream(&script.events);
    whole.extend(bytes.as_bytes());
    script.end("completed");
    whole.extend(stream(&script.events[1..]));
    let denied = run(&whole, 3, rules(not_delete, Delivery::default()));
    assert!(denied.calls().is_empty() && !denied.holds("c1"));
    let allowed = run(&whole, 3, rules(all, Delivery::default()));
    allowed.assert_consistent();
    assert_eq!(allowed.calls()[0]["arguments"], "{\"a\":1}");
    assert_eq!(allowed.calls()[0]["name"], "delete_file");
}

/// Events after which an answer must not go on: what was fed, and what must stay unseen.
#[test]
fn what_contradicts_or_cannot_be_read_ends_the_answer() {
    let call = function("hidden", "delete_file", "{}", "completed");
    let message = json!({"type": "message", "id": "m", "role": "assistant", "content": []});
    let twice = r#"{"type":"response.output_text.delta","type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"hidden"}}"#;
    let cases = [
        vec![twice.to_owned()],
        vec![json!({"type": "response.output_item.added", "output_index": 0, "item": message}).to_string(),
             json!({"type": "response.output_item.done", "output_index": 0, "item": call}).to_string()],
        vec![json!({"type": "response.output_item.added", "output_index": 0, "item": message}).to_string(),
             json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "hidden"}).to_string()],
        vec![json!({"type": "response.output_text.delta", "output_index": 0, "item": call}).to_string()],
        vec![json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": [{"type": "tool_use", "id": "hidden"}]}}).to_string()],
        vec![json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": [], "tool_calls": [{"id": "hidden"}]}}).to_string()],
        vec![json!({"type": "response.output_item.added", "output_index": -1, "item": call}).to_string()],
        vec![json!({"type": "response.output_item.done", "item": call}).to_string()],
        vec!["{\"type\":\"response.output_text.delta\",\"delta\":\"hidden".to_owned()],
        vec![json!({"choices": [{"delta": {"tool_calls": [{"id": "hidden"}]}}]}).to_string() ],
        vec![format!("{{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{{\"type\":\"function_call\",\"call_id\":\"hidden\",\"name\":\"a\",\"name\":\"b\"}}}}")],
    ];
    for case in cases {
        let script = Script::new();
        let mut bytes = stream(&script.events);
        for event in &case {
            bytes.extend(format!("data: {event}\n\n").into_bytes());
        }
        let seen = run(&bytes, 50, rules(all, Delivery::default()));
        assert!(!seen.holds("hidden"), "{case:?}");
        assert!(seen.error_code().is_some(), "{case:?}");
        assert_eq!(seen.kinds().last(), Some(&"response.failed"), "{case:?}");
        seen.assert_consistent();
    }
}

#[test]
fn events_that_nobody_knows_stay_here_and_the_numbers_close_up() {
    let mut script = Script::new();
    script.event(json!({"type": "response.tool.exploded", "call_id": "hidden"}));
    script.event(json!({"type": "keepalive"}));
    let seen = run(
        &script.text("Hi").end("completed"),
        9,
        rules(all, Delivery::default()),
    );
    seen.assert_consistent();
    assert!(!seen.holds("hidden") && seen.holds("keepalive"));
    assert_eq!(seen.text(), "Hi");
    let numbers: Vec<u64> = seen
        .events
        .iter()
        .map(|event| event["sequence_number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
}

#[test]
fn calls_in_the_response_object_at_the_beginning_or_of_a_failed_answer_are_nobodys() {
    let call = function("hidden", "read_file", "{}", "completed");
    let mut script = Script::new();
    script.events[0]["response"]["output"] = json!([call]);
    script.begin_call("c2", "read_file", "{\"path\":\"hidden\"}");
    script.output.push(call);
    let seen = run(&script.end("failed"), 13, rules(all, Delivery::default()));
    assert!(!seen.holds("hidden") && !seen.holds("read_file"));
    assert_eq!(seen.kinds().last(), Some(&"response.failed"));
    assert!(seen.tally.error.is_some() && seen.tally.usage.is_some());
}

#[test]
fn a_half_call_is_told_and_the_answer_stays_incomplete() {
    let mut script = Script::new();
    script
        .text("So far.")
        .begin_call("c1", "read_file", "{\"path\":\"hid");
    script
        .output
        .push(function("c1", "read_file", "{\"path\":\"hid", "incomplete"));
    let seen = run(
        &script.end("incomplete"),
        13,
        rules(all, Delivery::default()),
    );
    seen.assert_consistent();
    assert!(!seen.holds("hid") && seen.calls().is_empty());
    assert_eq!(seen.response()["status"], "incomplete");
    assert!(seen.text().contains("malformed_output"));
    assert!(seen.tally.finished && seen.tally.usage.is_some());
}

#[test]
fn what_is_withheld_is_bounded() {
    let mut script = Script::new();
    script.begin_call("c1", "read_file", &"x".repeat(4000));
    let mut small = rules(all, Delivery::default());
    small.most_withheld = 2000;
    let seen = run(&stream(&script.events), 100, small);
    assert_eq!(seen.error_code(), Some("malformed_output"));
    assert!(!seen.holds("read_file"));
}

#[test]
fn the_end_comes_from_the_last_event_and_nothing_comes_after_it() {
    let mut script = Script::new();
    let mut bytes = script.text("Hi").end("completed");
    bytes.extend(b"data: [DONE]\n\nevent: x\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"late\"}\n\n");
    let seen = run(&bytes, 9, rules(all, Delivery::default()));
    assert!(seen.tally.finished && seen.tally.error.is_none());
    assert!(!seen.holds("late") && !seen.holds("DONE"));
}
