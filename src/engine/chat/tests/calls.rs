//! Calls in streams: every way in which dialects cut, number and misplace them.

use serde_json::{Value, json};

use super::support::{
    DONE, Relayed, chunk, event, finish, pieces, relay, relay_cut, rules, rules_for, text,
};
use crate::engine::chain::Delivery;

fn stream(events: &[String]) -> String {
    events.concat() + &finish("tool_calls") + DONE
}

fn relayed(events: &[String]) -> Relayed {
    relay(rules(), &stream(events))
}

/// Whole pieces, one an event.
fn of_pieces(all: &[Value]) -> Relayed {
    let events: Vec<String> = all.iter().map(|piece| pieces(json!([piece]))).collect();
    relayed(&events)
}

fn full(index: u64, id: &str, name: &str, arguments: &str) -> Value {
    json!({"index": index, "id": id, "type": "function",
        "function": {"name": name, "arguments": arguments}})
}

#[test]
fn a_call_in_pieces_leaves_whole_in_one_chunk_before_the_finish() {
    let relayed = of_pieces(&[
        full(0, "c1", "a", ""),
        json!({"index": 0, "function": {"arguments": "{\"x\""}}),
        json!({"index": 0, "function": {"arguments": ":1.10}"}}),
    ]);
    let seen = relayed.first();
    assert_eq!(
        seen.calls,
        [("a".into(), "c1".into(), "{\"x\":1.10}".into())]
    );
    assert_eq!(seen.finish.as_deref(), Some("tool_calls"));
    let events = relayed.events();
    assert_eq!(events.len(), 2);
    for member in ["id", "object", "created", "model"] {
        assert_eq!(events[0][member], events[1][member], "{member}");
    }
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(relayed.is_done());
}

#[test]
fn text_around_a_call_leaves_at_once() {
    let mut chat = crate::engine::chat::ChatStream::new(rules());
    let mut out = Vec::new();
    let both = chunk(
        0,
        json!({"content": "One moment.", "tool_calls": [full(0, "c", "b", "{}")]}),
        None,
    );
    for (piece, wanted) in [
        (text("Hi. "), "Hi. "),
        (both, "One moment."),
        (text("So."), "So."),
    ] {
        out.clear();
        chat.feed(piece.into(), &mut out);
        let out = String::from_utf8(out.concat()).unwrap();
        assert!(out.contains(wanted) && !out.contains("tool_calls"), "{out}");
    }
    assert!(chat.is_withholding());
}

#[test]
fn dialects_without_clear_indexes_give_the_calls_that_were_meant() {
    let name = |id: Value, index: Value, name: &str| json!({"id": id, "index": index, "function": {"name": name, "arguments": "{}"}});
    let (null, two) = (Value::Null, [("a", "{}"), ("b", "{}")]);
    for all in [
        vec![
            name(json!("1"), null.clone(), "a"),
            name(json!("2"), null.clone(), "b"),
        ],
        vec![
            name(json!(""), null.clone(), "a"),
            name(json!(""), null.clone(), "b"),
        ],
        vec![
            name(json!("1"), json!(0), "a"),
            name(json!("2"), json!(0), "b"),
        ],
        vec![
            name(json!("1"), json!(1), "a"),
            name(json!("2"), json!(7), "b"),
        ],
        vec![
            name(json!("1"), json!("0"), "a"),
            name(json!("2"), json!(true), "b"),
        ],
        vec![
            name(json!("1"), json!(0.0), "a"),
            name(json!("2"), json!(-1), "b"),
        ],
        vec![
            name(json!("same"), json!(0), "a"),
            name(json!("same"), json!(1), "b"),
        ],
    ] {
        assert_eq!(of_pieces(&all).first().called(), two, "{all:?}");
        let at_once = relayed(&[pieces(Value::Array(all.clone()))]);
        assert_eq!(at_once.first().called(), two, "{all:?} at once");
    }
}

#[test]
fn pieces_find_their_call() {
    let args = |piece: Value| of_pieces(&[full(0, "c1", "a", "{\"x\":"), piece]);
    for piece in [
        json!({"index": 0, "function": {"arguments": "1}"}}),
        json!({"index": 0, "id": "", "function": {"name": "", "arguments": "1}"}}),
        json!({"index": 0, "id": "c1", "function": {"name": "a", "arguments": "1}"}}),
        json!({"index": "0", "function": {"name": null, "arguments": "1}"}}),
        json!({"id": "c1", "function": {"arguments": "1}"}}),
        json!({"function": {"arguments": "1}"}}),
    ] {
        let seen = args(piece.clone()).first();
        assert_eq!(seen.called(), [("a", "{\"x\":1}")], "{piece}");
    }
}

#[test]
fn names_and_ids_may_come_late() {
    for first in [
        json!({"index": 0, "function": {"name": "", "arguments": "{\"x\":"}}),
        json!({"index": 0, "function": {"arguments": "{\"x\":"}}),
    ] {
        let relayed = of_pieces(&[first, full(0, "c1", "a", "1}")]);
        assert_eq!(
            relayed.first().calls,
            [("a".into(), "c1".into(), "{\"x\":1}".into())]
        );
    }
}

#[test]
fn arguments_of_other_types_become_text() {
    for (arguments, wanted) in [
        (json!({"amount": 5000}), "{\"amount\":5000}"),
        (Value::Null, "{}"),
        (json!(""), "{}"),
        (json!({}), "{}"),
    ] {
        let relayed =
            of_pieces(&[json!({"id": "c", "function": {"name": "a", "arguments": arguments}})]);
        assert_eq!(relayed.first().called(), [("a", wanted)]);
    }
    let doubled = of_pieces(&[
        full(0, "c", "a", "{}"),
        json!({"index": 0, "function": {"arguments": "{\"x\":1}"}}),
    ]);
    assert_eq!(doubled.first().called(), [("a", "{\"x\":1}")]);
}

#[test]
fn empty_members_beside_a_call_mean_nothing() {
    let call = json!({"id": "t1", "type": "function", "custom": {"name": "", "input": ""},
        "function": {"name": "a", "arguments": "{}"}});
    let delta = json!({"tool_calls": [call], "function_call": {"name": "", "arguments": ""}});
    let relayed = relayed(&[chunk(0, delta, None)]);
    assert_eq!(relayed.first().called(), [("a", "{}")]);
}

#[test]
fn custom_calls_keep_their_free_text() {
    let relayed = of_pieces(&[
        json!({"index": 0, "id": "c", "type": "custom", "custom": {"name": "a", "input": "DROP "}}),
        json!({"index": 0, "custom": {"input": "TABLE t"}}),
    ]);
    assert_eq!(relayed.first().called(), [("a", "DROP TABLE t")]);
}

#[test]
fn a_legacy_call_alone_stays_one_and_beside_others_becomes_one_of_them() {
    let legacy = |name: &str| chunk(0, json!({"function_call": {"name": name}}), None);
    let more = chunk(
        0,
        json!({"function_call": {"arguments": "{\"x\":1}"}}),
        None,
    );
    let alone = [
        legacy("a"),
        more.clone(),
        finish("function_call"),
        DONE.to_owned(),
    ]
    .concat();
    let seen = relay(rules(), &alone).first();
    assert_eq!(seen.function_call, Some(("a".into(), "{\"x\":1}".into())));
    assert_eq!(seen.finish.as_deref(), Some("function_call"));
    let both = [
        legacy("a"),
        more,
        pieces(json!([full(0, "c", "b", "{}")])),
        finish("function_call"),
        DONE.to_owned(),
    ]
    .concat();
    let seen = relay(rules(), &both).first();
    assert_eq!(seen.called(), [("b", "{}"), ("a", "{\"x\":1}")]);
    assert_eq!(seen.finish.as_deref(), Some("tool_calls"));
    let denied = relay(rules_for(&["b"], Delivery::default()), &both);
    assert!(denied.first().calls.is_empty());
}

#[test]
fn what_a_provider_wants_back_stays_with_the_call() {
    let mut call = full(0, "c", "a", "{}");
    call["extra_content"] = json!({"google": {"thought_signature": "s"}});
    let relayed = of_pieces(std::slice::from_ref(&call));
    let sent = &relayed.events()[0]["choices"][0]["delta"]["tool_calls"][0];
    assert_eq!(sent["extra_content"], call["extra_content"]);
}

#[test]
fn contradictions_are_blocked() {
    let two_names = [
        full(0, "c", "a", ""),
        json!({"index": 0, "function": {"name": "b", "arguments": "{}"}}),
    ];
    let both_kinds =
        [json!({"id": "c", "function": {"name": "a"}, "custom": {"name": "b", "input": "x"}})];
    let unknown_kind = [json!({"id": "c", "type": "computer", "function": {"name": "a"}})];
    let no_name = [json!({"index": 0, "id": "c", "function": {"arguments": "{}"}})];
    let half = [full(0, "c", "a", "{\"x\":")];
    let hidden = [
        json!({"id": "c", "function": {"name": "a", "arguments": "{}"},
        "extra_content": {"tool_calls": [{"id": "d"}]}}),
    ];
    for pieces in [
        &two_names[..],
        &both_kinds,
        &unknown_kind,
        &no_name,
        &half,
        &hidden,
    ] {
        let relayed = of_pieces(pieces);
        let seen = relayed.first();
        assert!(seen.calls.is_empty(), "{pieces:?}");
        assert!(seen.text.contains("malformed_output"), "{}", seen.text);
        assert_eq!(seen.finish.as_deref(), Some("stop"));
    }
}

#[test]
fn a_split_name_is_joined_unless_a_piece_of_it_is_allowed() {
    let split = [
        full(0, "c", "read_", ""),
        json!({"index": 0, "function": {"name": "file", "arguments": "{}"}}),
    ];
    assert_eq!(of_pieces(&split).first().called(), [("read_file", "{}")]);
    let stream = stream(&split.map(|piece| pieces(json!([piece]))));
    let seen = relay(
        rules_for(&["read_", "read_file"], Delivery::default()),
        &stream,
    )
    .first();
    assert!(seen.calls.is_empty() && seen.text.contains("two different names"));
}

#[test]
fn calls_in_odd_places_are_blocked_and_the_text_beside_them_stays() {
    let choice = |choice: Value| event(&json!({"id": "c", "choices": [choice]}));
    let call = json!([{"id": "secret_id", "function": {"name": "secret_name", "arguments": "{}"}}]);
    for odd in [
        choice(json!({"index": 0, "delta": {"content": "Hi"}, "tool_calls": call})),
        choice(json!({"index": 0, "delta": {"content": "Hi"}, "message": {"tool_calls": call}})),
        choice(json!({"index": 0, "delta": {"content": "Hi", "toolCalls": call}})),
        choice(
            json!({"index": 0, "delta": {"content": "Hi", "x": {"function_call": {"name": "secret_name"}}}}),
        ),
        choice(json!({"index": 0, "delta": {"content": "Hi", "tool_calls": {"0": call[0]}}})),
        choice(json!({"index": 0, "delta": {"content": "Hi", "tool_calls": ["secret_name"]}})),
        choice(json!({"index": 0, "delta": {"content": "Hi", "function_call": "secret_name"}})),
    ] {
        let out = relay(rules(), &stream(std::slice::from_ref(&odd)));
        assert!(!out.out.contains("secret"), "{odd} gives {}", out.out);
        let seen = out.first();
        assert!(
            seen.text.starts_with("Hi\n\n") && seen.text.contains("malformed_output"),
            "{seen:?}"
        );
    }
    let part = json!({"content": [{"type": "text", "text": "Hi"}, {"type": "tool_use", "name": "secret"}]});
    let out = relay(rules(), &stream(&[chunk(0, part, None)]));
    assert!(!out.out.contains("secret") && out.out.contains("malformed_output"));
    let top = event(&json!({"choices": [], "tool_calls": call}));
    let out = relay(rules(), &stream(&[text("Hi"), top]));
    assert!(!out.out.contains("secret") && out.tally.error.is_some());
}

#[test]
fn escaped_and_doubled_names_of_members_hide_nothing() {
    let call = "[{\"id\":\"secret\",\"function\":{\"name\":\"secret\",\"arguments\":\"{}\"}}]";
    for delta in [
        format!("{{\"tool\\u005fcalls\":{call}}}"),
        format!("{{ \"\\u0074ool_calls\" \n:\r {call} }}"),
        format!("{{\"tool_calls\":[],\"tool_calls\":{call}}}"),
        format!("{{\"tool_calls\":{call},\"tool_calls\":null}}"),
        format!("{{\"Tool_Calls\":{call}}}"),
    ] {
        let line = format!("{{\"id\":\"x\",\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}");
        let out = relay(
            rules_for(&[], Delivery::default()),
            &stream(&[format!("data: {}\n\n", line.replace(['\n', '\r'], " "))]),
        );
        let notice = out
            .out
            .replace("\\\"secret\\\" (tool_not_allowlisted)", "")
            .replace("\"tool\":\"secret\"", "");
        assert!(!notice.contains("secret"), "{delta} gives {}", out.out);
    }
    for twice in [
        "choices",
        "delta",
        "function_call",
        "index",
        "finish_reason",
        "content",
    ] {
        let data = "{\"choices\":[{\"index\":0,\"finish_reason\":null,\"delta\":{\"content\":\"x\",\"function_call\":null}}]}";
        let once = format!("\"{twice}\":");
        let doubled = data.replacen(&once, &format!("\"{twice}\":null,{once}"), 1);
        let out = relay(rules(), &format!("data: {doubled}\n\n"));
        assert!(out.tally.error.is_some() && out.out.is_empty(), "{doubled}");
    }
}

#[test]
fn what_is_not_strictly_json_ends_the_stream_and_frees_no_call() {
    let deep = format!(
        "{{\"choices\":[],\"x\":{}{}}}",
        "[".repeat(200),
        "]".repeat(200)
    );
    let bad = [
        "{\"choices\":[],\"x\":NaN}",
        "{\"choices\":[],\"x\":\"\\ud800\"}",
        "[]",
        "3",
        &deep,
        "{\"choices\":{}}",
        "{\"choices\":[3]}",
        "{\"choices\":[{\"index\":\"0\",\"delta\":{}}]}",
        "{\"choices\":[{\"index\":-1,\"delta\":{}}]}",
        "{} {}",
    ];
    for data in bad {
        let events = [
            text("Hi"),
            pieces(json!([full(0, "secret", "a", "{}")])),
            format!("data: {data}\n\n"),
        ];
        let out = relay(rules(), &stream(&events));
        assert!(!out.out.contains("secret"), "{data}");
        assert!(
            out.out.contains("\"code\":\"malformed_output\"") && !out.is_done(),
            "{data}"
        );
        assert_eq!(out.judged.len(), 1, "the withheld call is on record");
    }
    let mut broken = text("H\u{e9}").into_bytes();
    let at = broken.iter().position(|byte| *byte == 0xc3).unwrap();
    broken.remove(at);
    assert!(
        relay_cut(rules(), &broken, &[]).tally.error.is_some(),
        "not UTF-8"
    );
}

#[test]
fn a_call_ends_with_the_stream_and_not_before() {
    let (first, more) = (
        full(0, "c", "a", "{\"x\":1}"),
        json!({"index": 0, "function": {"arguments": " "}}),
    );
    let events = [
        pieces(json!([first])),
        finish("tool_calls"),
        pieces(json!([more])),
        pieces(json!([full(1, "d", "b", "{}")])),
    ];
    let seen = relay(rules(), &(events.concat() + DONE)).first();
    assert_eq!(seen.called(), [("a", "{\"x\":1} "), ("b", "{}")]);
    for (ending, released) in [
        (finish("stop") + DONE, true),
        (DONE.to_owned(), true),
        (finish("stop"), true),
        (String::new(), false),
    ] {
        let out = relay(rules(), &(events[0].clone() + &ending));
        assert_eq!(!out.first().calls.is_empty(), released, "{ending}");
        assert_eq!(out.is_done(), released);
        assert_eq!(out.first().finish.is_some(), released);
    }
}

#[test]
fn a_call_after_a_finish_that_was_sent_is_blocked() {
    let events = [
        text("Hi"),
        finish("stop"),
        pieces(json!([full(0, "c", "a", "{}")])),
    ];
    let seen = relay(rules(), &(events.concat() + DONE)).first();
    assert!(
        seen.calls.is_empty() && seen.text.contains("after the end"),
        "{seen:?}"
    );
}

#[test]
fn a_finish_that_announces_calls_waits_and_one_that_does_not_leaves() {
    for (reason, left) in [("stop", true), ("tool_calls", false)] {
        let mut chat = crate::engine::chat::ChatStream::new(rules());
        let mut out = Vec::new();
        chat.feed(finish(reason).into(), &mut out);
        assert_eq!(!out.is_empty(), left, "{reason}");
        chat.feed(DONE.into(), &mut out);
        assert!(String::from_utf8(out.concat()).unwrap().contains(reason));
    }
}

#[test]
fn usage_comes_once_and_last() {
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 2});
    let call = full(0, "c", "a", "{}");
    let apart = pieces(json!([call]))
        + &finish("tool_calls")
        + &event(&json!({"choices": [], "usage": usage}))
        + DONE;
    let with_finish = event(
        &json!({"id": "x", "choices": [{"index": 0, "finish_reason": "tool_calls",
        "delta": {"content": "Hi", "tool_calls": [call]}}], "usage": usage}),
    ) + DONE;
    for stream in [apart, with_finish] {
        let out = relay(rules(), &stream);
        let events = out.events();
        let told: Vec<bool> = events
            .iter()
            .map(|event| event["usage"].is_object())
            .collect();
        assert_eq!(told.iter().filter(|told| **told).count(), 1);
        assert!(told.last().unwrap(), "{}", out.out);
        assert_eq!(out.tally.usage.unwrap().usage.output, 2);
    }
}

#[test]
fn choices_are_judged_each_by_itself_and_leave_in_order() {
    let call = |index, name| {
        chunk(
            index,
            json!({"tool_calls": [full(0, "c", name, "{}")]}),
            None,
        )
    };
    let end = |index| chunk(index, json!({}), Some("tool_calls"));
    let events = [
        call(1, "a"),
        call(0, "b"),
        chunk(2, json!({"content": "Hi"}), Some("stop")),
        end(1),
        end(0),
    ];
    let out = relay(
        rules_for(&["a"], Delivery::default()),
        &(events.concat() + DONE),
    );
    let choices = out.choices();
    assert!(choices[&0].calls.is_empty() && choices[&0].text.contains("tool_not_allowlisted"));
    assert_eq!(choices[&0].finish.as_deref(), Some("stop"));
    assert_eq!(choices[&1].called(), [("a", "{}")]);
    assert_eq!(choices[&1].finish.as_deref(), Some("tool_calls"));
    assert_eq!(choices[&2].text, "Hi");
    let at = |what: &str| out.out.find(what).unwrap();
    assert!(at("tool_not_allowlisted") < at("\"tool_calls\":["));
}

#[test]
fn one_blocked_call_withholds_its_siblings_or_not_as_configured() {
    let events = [
        text("Hi"),
        pieces(json!([
            full(0, "c1", "a", "{}"),
            full(1, "c2", "secret", "{\"s\":1}"),
            full(2, "c3", "b", "{}")
        ])),
    ];
    let stream = stream(&events);
    let all = relay(rules(), &stream);
    assert!(all.first().calls.is_empty() && all.judged.iter().all(|one| !one.delivered));
    assert_eq!(all.first().finish.as_deref(), Some("stop"));
    let each = Delivery {
        each: true,
        ..Delivery::default()
    };
    let each = relay(rules_for(&["a", "b"], each), &stream);
    let seen = each.first();
    assert_eq!(seen.called(), [("a", "{}"), ("b", "{}")]);
    assert_eq!(seen.finish.as_deref(), Some("tool_calls"));
    assert!(seen.text.starts_with("Hi\n\nBlocked") && !each.out.contains("c2"));
    assert_eq!(each.judged.iter().filter(|one| one.delivered).count(), 2);
    let guarded = each
        .events()
        .into_iter()
        .find(|event| event.get("guard").is_some())
        .unwrap();
    assert_eq!(guarded["guard"]["code"], "tool_not_allowlisted");
}

#[test]
fn as_an_error_nothing_leaves_before_the_first_text() {
    let as_error = Delivery {
        as_error: true,
        ..Delivery::default()
    };
    let role = chunk(0, json!({"role": "assistant", "content": null}), None);
    let call = pieces(json!([full(0, "c", "secret", "{}")]));
    let silent = relay(
        rules_for(&[], as_error),
        &stream(&[role.clone(), call.clone()]),
    );
    assert_eq!((silent.out.as_str(), silent.refused.len()), ("", 1));
    let spoken = relay(
        rules_for(&[], as_error),
        &stream(&[role.clone(), text("Hi"), call.clone()]),
    );
    let last = spoken.events().pop().unwrap();
    assert_eq!(last["error"]["code"], "tool_call_blocked");
    assert!(spoken.is_done() && spoken.first().text == "Hi");
    let allowed = relay(rules_for(&["secret"], as_error), &stream(&[role, call]));
    assert_eq!(allowed.first().called(), [("secret", "{}")]);
    assert!(
        allowed.out.starts_with("data: {\"choices\"")
            || allowed.out.contains("\"role\":\"assistant\"")
    );
}

#[test]
fn an_error_after_calls_frees_none_and_repeats_no_text_of_theirs() {
    let error =
        event(&json!({"error": {"message": "tool_use_failed", "failed_generation": "secret"}}));
    let out = relay(
        rules(),
        &stream(&[
            text("Hi"),
            pieces(json!([full(0, "secret", "a", "{}")])),
            error,
        ]),
    );
    assert!(!out.out.contains("secret") && out.out.contains("\"error\""));
    let cut = chunk(
        0,
        json!({"tool_calls": [full(0, "secret", "a", "{}")]}),
        Some("error"),
    );
    let out = relay(rules(), &(cut + DONE));
    assert!(out.first().calls.is_empty());
}

#[test]
fn a_call_that_the_output_limit_cut_is_not_delivered() {
    for arguments in ["", "{\"to\":\"acct-1\",\"amo"] {
        let cut = chunk(
            0,
            json!({"tool_calls": [full(0, "c", "a", arguments)]}),
            Some("length"),
        );
        let seen = relay(rules(), &(cut + DONE)).first();
        assert!(
            seen.calls.is_empty() && seen.text.contains("output limit"),
            "{seen:?}"
        );
    }
}

#[test]
fn texts_of_failed_calls_and_single_tokens_of_calls_are_dropped() {
    let tokens = json!({"content": [{"token": "secret", "logprob": -0.1}]});
    for data in [
        json!({"choices": [{"index": 0, "delta": {"content": "Hi"}}], "__verbose": {"content": "secret"}}),
        json!({"choices": [{"index": 0, "delta": {"content": "Hi"}}], "x_groq": {"failed_generation": "secret"}}),
        json!({"choices": [{"index": 0, "delta": {"content": "Hi"}}], "metadata": {"raw": "secret"}}),
        json!({"choices": [{"index": 0, "delta": {"content": "Hi", "x": {"failed_generation": "secret"}}}]}),
        json!({"choices": [{"index": 0, "delta": {"content": "Hi", "tool_calls": [full(0, "c", "b", "{}")]}, "logprobs": tokens}]}),
        json!({"choices": [{"index": 0, "delta": {"content": ""}, "logprobs": tokens}]}),
    ] {
        let out = relay(rules(), &stream(&[event(&data)]));
        assert!(!out.out.contains("secret"), "{data} gives {}", out.out);
        assert!(out.tally.error.is_none());
    }
    let told = json!({"choices": [{"index": 0, "delta": {"content": "Hi"}, "logprobs": tokens}]});
    assert!(
        relay(rules(), &stream(&[event(&told)]))
            .out
            .contains("secret"),
        "of text they stay"
    );
}

#[test]
fn more_than_can_be_held_ends_the_stream() {
    let big = "x".repeat(700_000);
    let call = |id: &str| pieces(json!([full(0, id, "a", &format!("{{\"s\":\"{big}\"}}"))]));
    let out = relay(rules(), &stream(&[text("Hi"), call("1"), call("2")]));
    assert!(out.out.contains("malformed_output") && out.out.len() < 1000);
    let many: Vec<Value> = (0..200)
        .map(|at| full(at, &at.to_string(), "a", "{}"))
        .collect();
    let out = relay(rules(), &stream(&[text("Hi"), pieces(Value::Array(many))]));
    assert!(out.out.contains("malformed_output"));
}

#[test]
fn missing_ids_are_made_and_no_two_are_the_same() {
    let call = |name: &str| json!({"function": {"name": name, "arguments": "{}"}});
    let seen = relayed(&[pieces(json!([call("a"), call("b"), call("a")]))]).first();
    assert_eq!(seen.called(), [("a", "{}"), ("b", "{}"), ("a", "{}")]);
    assert!(seen.calls.iter().all(|(_, id, _)| id.starts_with("call_")));
}
