//! How errors and blocked calls are told, before anything was said and after.

use super::*;

const AS_ERROR: Delivery = Delivery {
    as_error: true,
    each: false,
};

/// The codes of calls whose refusal is left to the status.
fn refused(bytes: &[u8], rules: StreamRules) -> Vec<&'static str> {
    let mut stream = ResponsesStream::new(rules);
    stream.feed(Bytes::copy_from_slice(bytes), &mut Vec::new());
    stream.refused().iter().map(|block| block.code).collect()
}

#[test]
fn an_answer_that_breaks_off_ends_in_the_form_that_helpers_accept() {
    let mut script = Script::new();
    script.text("Half a");
    let seen = run(&stream(&script.events), 9, rules(all, Delivery::default()));
    seen.assert_consistent();
    assert_eq!(seen.error_code(), Some("upstream_broken"));
    let end = seen.events.last().unwrap();
    assert_eq!(end["type"], "response.failed");
    assert_eq!(end["response"]["id"], "resp_1");
    assert_eq!(end["response"]["status"], "failed");
    assert_eq!(end["response"]["error"]["code"], "upstream_broken");
    assert_eq!(seen.text(), "Half a");
    assert!(!seen.tally.finished);
}

#[test]
fn a_flat_error_event_is_made_into_one_that_sdks_raise() {
    let mut script = Script::new();
    script.text("Half a");
    script.event(json!({"type": "error", "code": "server_error", "message": "boom", "param": null, "failed_generation": "hidden"}));
    let seen = run(&stream(&script.events), 9, rules(all, Delivery::default()));
    seen.assert_consistent();
    let error = seen
        .events
        .iter()
        .find(|event| event["type"] == "error")
        .unwrap();
    assert_eq!(
        error["error"],
        json!({"message": "boom", "type": "server_error", "param": null, "code": "server_error"})
    );
    assert!(!seen.holds("hidden"));
}

#[test]
fn an_error_before_anything_else_is_left_to_the_status() {
    for event in [
        json!({"type": "error", "error": {"message": "no", "code": "quota"}}),
        json!({"error": {"message": "no", "code": "quota"}}),
    ] {
        let bytes = format!("data: {event}\n\n");
        let seen = run(bytes.as_bytes(), 9, rules(all, Delivery::default()));
        assert!(seen.events.is_empty());
        assert_eq!(seen.tally.error.unwrap()["code"], "quota");
    }
}

#[test]
fn a_blocked_call_told_as_an_error_can_be_a_status_while_nothing_was_said() {
    let mut script = Script::new();
    script.item(json!({"type": "reasoning", "id": "rs_1", "summary": []}));
    let bytes = script.call("c1", "delete_file", "{}").end("completed");
    let seen = run(&bytes, 9, rules(none, AS_ERROR));
    assert!(seen.bytes.is_empty());
    assert_eq!(
        refused(&bytes, rules(none, AS_ERROR)),
        ["tool_not_allowlisted"]
    );
    let allowed = run(&bytes, 9, rules(all, AS_ERROR));
    let plain = run(&bytes, 9, rules(all, Delivery::default()));
    assert_eq!(allowed.bytes, plain.bytes);
}

#[test]
fn after_text_a_blocked_call_is_an_error_event_and_a_failed_response() {
    for each in [false, true] {
        let mut script = Script::new();
        let bytes = script
            .text("One moment.")
            .call("c1", "delete_file", "{}")
            .end("completed");
        let delivery = Delivery {
            as_error: true,
            each,
        };
        let seen = run(&bytes, 9, rules(none, delivery));
        seen.assert_consistent();
        assert_eq!(seen.text(), "One moment.");
        assert_eq!(seen.error_code(), Some("tool_call_blocked"));
        assert_eq!(seen.kinds().last(), Some(&"response.failed"));
        assert_eq!(seen.events.last().unwrap()["guard"]["decision"], DECISION);
        assert!(!seen.holds("fc_c1"));
    }
}

#[test]
fn hosted_items_that_nobody_allowed_are_withheld_with_all_their_events() {
    for each in [false, true] {
        let mut script = Script::new();
        let index = script.output.len();
        script.event(json!({"type": "response.output_item.added", "output_index": index, "item": {"type": "web_search_call", "id": "hidden", "status": "in_progress"}}));
        script.event(json!({"type": "response.web_search_call.searching", "output_index": index, "item_id": "hidden"}));
        script.item_done(json!({"type": "web_search_call", "id": "hidden", "status": "completed"}));
        let bytes = script.text("Found.").end("completed");
        let delivery = Delivery {
            as_error: false,
            each,
        };
        let seen = run(&bytes, 9, rules(none, delivery));
        seen.assert_consistent();
        assert!(!seen.holds("hidden"));
        assert!(seen.text().contains("Found.") && seen.text().contains("web_search"));
        let allowed = run(&bytes, 9, rules(all, delivery));
        assert_eq!(allowed.bytes, bytes);
    }
}
