//! Events like the one before: read by comparing them, they mean what a full reading finds.

use proptest::prelude::*;

use super::support::{Relayed, relay_cut, rules};

/// A comment makes the stream forget the event before, and leaves as it is.
const FORGET: &str = ":x\n\n";

/// The frames of events, with `@` where text stands.
const FRAMES: &[&str] = &[
    r#"{"id":"i","model":"m","choices":[{"index":0,"delta":{"content":"@"},"finish_reason":null}]}"#,
    r#"{"id":"i","choices":[{"index":0,"delta":{"content":"@"},"finish_reason":null}],"usage":null}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"@"}}],"usage":null,"obfuscation":"@"}"#,
    r#"{"choices":[{"index":1,"delta":{"content":null,"reasoning_content":"@"}}],"obfuscation":"@"}"#,
    r#"{"obfuscation":"@","choices":[{"index":0,"delta":{"reasoning":"@","refusal":"@"}}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"@"},"logprobs":{"content":[]}}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"@"},"finish_reason":"stop"}]}"#,
    r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"a","arguments":"@"}}]}}]}"#,
    r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#,
];

const TEXTS: &[&str] = &[
    "Hello",
    " world ",
    "",
    "\u{e9}\u{1f600}",
    r#"\"}],\"tool_calls\":[{"#,
    r"\n\t\\",
    r"\u00e9\u0000",
    r"\ud83d\ude00",
    r"\ud83d",
    r"\uDE00x",
    r"\x",
    r"\u12",
    "\t",
    "\u{7f}",
    // Raw quotes: members that were not there before.
    r#"","tool_calls":[{"index":0,"id":"e","function":{"name":"evil","arguments":"{}"}}],"x":""#,
    r#"","content":""#,
    r#""},"finish_reason":"stop","x":{"y":""#,
    r",\",
];

fn any_events() -> impl Strategy<Value = Vec<(usize, Vec<usize>)>> {
    let text = prop_oneof![6 => 0..8_usize, 1 => 0..TEXTS.len()];
    let texts = prop::collection::vec(text, 3);
    // The same frame some times in a row, then another.
    let row = (0..FRAMES.len(), prop::collection::vec(texts, 1..5));
    prop::collection::vec(row, 1..5).prop_map(|rows| {
        let row =
            |(frame, texts): (usize, Vec<_>)| texts.into_iter().map(move |text| (frame, text));
        rows.into_iter().flat_map(row).collect()
    })
}

fn written(frame: usize, texts: &[usize], line_end: &str) -> String {
    let mut data = FRAMES[frame].to_owned();
    for text in texts {
        data = data.replacen('@', TEXTS[*text], 1);
    }
    format!("data: {data}{line_end}{line_end}")
}

fn told(relayed: &Relayed) -> String {
    let Relayed { tally, judged, .. } = relayed;
    format!("{tally:?} {judged:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]
    #[test]
    fn what_repeats_means_what_a_full_reading_finds(
        events in any_events(),
        crlf in any::<bool>(),
        hide_usage in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let line_end = if crlf { "\r\n" } else { "\n" };
        let events: Vec<_> = events.iter().map(|(frame, texts)| written(*frame, texts, line_end)).collect();
        let rules = || {
            let mut rules = rules();
            rules.hide_usage = hide_usage;
            rules
        };
        let done = "data: [DONE]\n\n";
        let stream = FORGET.to_owned() + &events.concat() + done;
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        let fast = relay_cut(rules(), stream.as_bytes(), &cuts);
        let one_by_one = FORGET.to_owned() + &events.join(FORGET) + done;
        let slow = relay_cut(rules(), one_by_one.as_bytes(), &[]);
        prop_assert_eq!(fast.out.replace(FORGET, ""), slow.out.replace(FORGET, ""));
        prop_assert_eq!(told(&fast), told(&slow));
    }
}
