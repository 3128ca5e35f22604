//! Text streams: bytes, usage, endings.

use bytes::Bytes;
use proptest::prelude::*;

use super::support::{DONE, rules};
use crate::engine::chat::{ChatStream, StreamRules, Tally, shaped};

fn run(rules: &StreamRules, stream: &[u8], cut_at: &[usize], broken: bool) -> (Vec<u8>, Tally) {
    let mut chat = ChatStream::new(rules.clone());
    let mut out = Vec::new();
    let mut from = 0;
    for to in cut_at.iter().copied().chain([stream.len()]) {
        chat.feed(Bytes::copy_from_slice(&stream[from..to]), &mut out);
        from = to;
    }
    chat.end(broken, &mut out);
    (out.concat(), chat.tally().clone())
}

const TEXT: &str = concat!(
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"H\u{e9}\"},\"finish_reason\":null}],\"usage\":null}\n\n",
    ": keep-alive\n\n",
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n",
    "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\n",
    "data: [DONE]\n\n",
);

#[test]
fn a_stream_that_nothing_changes_leaves_as_the_bytes_that_came() {
    let mut chat = ChatStream::new(rules());
    let piece = Bytes::from_static(TEXT.as_bytes());
    let mut out = Vec::new();
    chat.feed(piece.clone(), &mut out);
    assert_eq!(out.concat(), TEXT.as_bytes());
    assert_eq!(out[0].as_ptr(), piece.as_ptr(), "not copied");
    assert_eq!(chat.tally().usage.unwrap().usage.output, 2);
}

#[test]
fn usage_that_only_we_asked_for_stays_here() {
    let rules = StreamRules {
        hide_usage: true,
        ..rules()
    };
    let (out, tally) = run(&rules, TEXT.as_bytes(), &[], false);
    let out = String::from_utf8(out).unwrap();
    assert!(
        !out.contains("usage") && !out.contains("\"choices\":[]"),
        "{out}"
    );
    assert!(out.contains("H\u{e9}") && out.ends_with("data: [DONE]\n\n"));
    assert_eq!(tally.usage.unwrap().usage.input, 5);
}

#[test]
fn a_complete_stream_without_done_is_ended_properly() {
    let stream = TEXT.replace("data: [DONE]\n\n", "");
    let (out, tally) = run(&rules(), stream.as_bytes(), &[], false);
    assert!(out.ends_with(DONE.as_bytes()));
    assert!(tally.error.is_none());
}

#[test]
fn a_stream_that_breaks_off_ends_in_an_error_and_without_done() {
    let stream = &TEXT.as_bytes()[..TEXT.find(": keep").unwrap()];
    for broken in [true, false] {
        let (out, tally) = run(&rules(), stream, &[], broken);
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.contains("\"error\":{") && !out.contains("[DONE]"),
            "{out}"
        );
        assert!(tally.error.is_some());
    }
}

#[test]
fn an_error_before_anything_was_sent_is_kept_for_a_status() {
    let stream = b"data: {\"error\":{\"message\":\"too many\",\"code\":1302}}\n\ndata: [DONE]\n\n";
    let (out, tally) = run(&rules(), stream, &[], false);
    assert_eq!(out, b"");
    assert_eq!(tally.error.unwrap()["code"], "1302");
}

#[test]
fn what_sdks_trip_over_is_taken_out() {
    for (event, wanted) in [
        ("event: ping\ndata:\n\n", ""),
        ("id: 7\n\n", ""),
        ("data: \"\"\n\n", ""),
        ("data: null\n\n", ""),
        (
            "event: x\ndata: {\"choices\":[]}\n\n",
            "data: {\"choices\":[]}\n\n",
        ),
        (
            "data: {\"choices\":[],\"error\":null}\n\n",
            "data: {\"choices\":[]}\n\n",
        ),
        (
            "data: {\"choices\":[] , \"error\" : {}}\n\n",
            "data: {\"choices\":[]}\n\n",
        ),
        (
            "data: {\"id\":\"x\"}\n\n",
            "data: {\"id\":\"x\",\"choices\":[]}\n\n",
        ),
    ] {
        let mut chat = ChatStream::new(rules());
        let mut out = Vec::new();
        chat.feed(Bytes::copy_from_slice(event.as_bytes()), &mut out);
        assert!(chat.tally().error.is_none());
        assert_eq!(String::from_utf8(out.concat()).unwrap(), wanted);
    }
}

#[test]
fn what_cannot_be_read_is_never_passed_on() {
    for event in [
        "data: {\"choices\":[{\"delta\":{\"content\":NaN}}]}\n\n",
        "data: {\n\n",
        "data: \"NaN\"\n\n",
    ] {
        let (out, _) = run(
            &rules(),
            TEXT.replace("data: [DONE]", event.trim_end()).as_bytes(),
            &[],
            false,
        );
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.contains("malformed_output") && !out.contains("NaN"),
            "{out}"
        );
    }
}

#[test]
fn an_event_above_the_bound_ends_the_stream() {
    let rules = StreamRules {
        largest_event: 100,
        ..rules()
    };
    let (_, tally) = run(&rules, &[b'x'; 200], &[50, 101], false);
    assert_eq!(tally.error.unwrap()["code"], "malformed_output");
}

#[test]
fn an_errors_failed_call_is_never_shown() {
    let error = shaped(r#"{"message":"m","code":"tool_use_failed","failed_generation":"rm -rf"}"#);
    assert!(!error.to_string().contains("rm -rf"));
}

proptest! {
    #[test]
    fn cuts_at_any_byte_change_nothing(mut cuts in prop::collection::vec(0..TEXT.len(), 0..12)) {
        cuts.sort_unstable();
        for hide_usage in [false, true] {
            let rules = StreamRules { hide_usage, ..rules() };
            let (whole, _) = run(&rules, TEXT.as_bytes(), &[], false);
            let (cut, tally) = run(&rules, TEXT.as_bytes(), &cuts, false);
            prop_assert_eq!(whole, cut);
            prop_assert_eq!(tally.usage.unwrap().usage.input, 5);
        }
    }
}
