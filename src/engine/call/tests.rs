use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn read(body: &str) -> Result<ChatRequest, InvalidRequest> {
    ChatRequest::read(body.as_bytes())
}

fn param_of(body: &str) -> Option<String> {
    read(body).unwrap_err().param
}

const SMALL: &str =
    r#"{ "x_vendor":1.10, "model":"m-small","messages":[{"role":"user","content":"hi é"}]}"#;

#[test]
fn reads_what_the_guards_need() {
    let request = read(
        r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a\u00e9"},
        {"type":"image_url","image_url":{"url":"http://x"}}]},{"role":"assistant","content":null}],
        "stream":true,"stream_options":{"include_usage":true},"max_tokens":5,
        "max_completion_tokens":9,"n":2,"tools":[{"type":"function","function":{"name":"f"}}]}"#,
    )
    .unwrap();
    assert_eq!(
        (request.model.as_str(), request.stream, request.choices),
        ("m", true, 2)
    );
    assert_eq!(request.cap, Some(("max_completion_tokens", 9)));
    assert_eq!(request.include_usage, Some(true));
    assert_eq!((request.content.images, request.content.chars), (1, 2));
    assert_eq!(request.offers.tools.len(), 1);
}

#[test]
fn a_wrong_model_is_told_by_its_param() {
    for model in ["", r#""model":null,"#, r#""model":5,"#, r#""model":"  ","#] {
        let body = format!(r#"{{{model}"messages":[{{"role":"user","content":"x"}}]}}"#);
        assert_eq!(param_of(&body).as_deref(), Some("model"), "{model}");
    }
}

#[test]
fn members_that_matter_are_refused_twice_or_of_the_wrong_type() {
    let with = |extra: &str| {
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}],{extra}}}"#)
    };
    for (extra, param) in [
        (r#""model":"b""#, "model"),
        (r#""mod\u0065l":"b""#, "model"),
        (r#""stream":1"#, "stream"),
        (r#""stream":"true""#, "stream"),
        (r#""max_tokens":0"#, "max_tokens"),
        (r#""max_tokens":1.5"#, "max_tokens"),
        (r#""n":129"#, "n"),
        (r#""stream_options":5"#, "stream_options"),
        (
            r#""stream_options":{"include_usage":true,"include_usage":false}"#,
            "stream_options",
        ),
    ] {
        assert_eq!(param_of(&with(extra)).as_deref(), Some(param), "{extra}");
    }
    assert_eq!(
        param_of(r#"{"model":"m","messages":[]}"#).as_deref(),
        Some("messages")
    );
}

#[test]
fn what_is_not_plain_json_is_refused() {
    for body in ["", "[]", "{", "\u{feff}{}", "{}x", "{\"model\":NaN}"] {
        assert!(read(body).is_err(), "{body}");
    }
    assert!(ChatRequest::read(b"{\"model\":\"\xff\"}").is_err());
    let deep = format!("{{\"x\":{}", "[".repeat(100_000));
    assert!(read(&deep).unwrap_err().message.contains("nested deeper"));
}

#[test]
fn nesting_is_allowed_up_to_the_bound() {
    let nested = |levels: usize| {
        format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}],"x":{}{}}}"#,
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    assert!(read(&nested(MAX_DEPTH - 1)).is_ok());
    assert!(read(&nested(MAX_DEPTH)).is_err());
}

#[test]
fn a_body_that_needs_no_change_is_forwarded_byte_for_byte() {
    let body = Bytes::from_static(SMALL.as_bytes());
    let same = read(SMALL).unwrap().rewrite(&body, &Edits::default());
    assert_eq!(same.as_ptr(), body.as_ptr());
}

#[test]
fn an_inserted_member_leaves_the_rest_as_it_was() {
    let body = Bytes::from_static(SMALL.as_bytes());
    let edits = Edits {
        model: Some("real"),
        include_usage: true,
        cap: Some(("max_tokens", 7)),
        tools: &[],
    };
    let sent = read(SMALL).unwrap().rewrite(&body, &edits);
    assert_eq!(
        std::str::from_utf8(&sent).unwrap(),
        r#"{"max_tokens":7,"stream_options":{"include_usage":true}, "x_vendor":1.10, "model":"real","messages":[{"role":"user","content":"hi é"}]}"#
    );
}

#[test]
fn one_of_several_caps_goes_upstream() {
    let body = Bytes::from_static(
        br#"{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":9,"max_completion_tokens":99}"#,
    );
    let edits = Edits {
        cap: Some(("max_tokens", 5)),
        ..Edits::default()
    };
    let sent = ChatRequest::read(&body).unwrap().rewrite(&body, &edits);
    let sent: serde_json::Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(sent["max_tokens"], 5);
    assert!(sent["max_completion_tokens"].is_null());
}

#[test]
fn a_member_that_lets_the_provider_choose_is_noticed() {
    let body =
        r#"{"model":"m","messages":[{"role":"user","content":"x"}],"fallbacks":["m-forbidden"]}"#;
    assert_eq!(read(body).unwrap().substitute, Some("fallbacks"));
}

proptest! {
    #[test]
    fn rewriting_changes_the_named_members_only(
        text in "[ -~é\u{4e2d}]{0,40}", cap in 1_u64..100_000, had in any::<bool>(),
    ) {
        let mut value = serde_json::json!({
            "model": "m", "messages": [{ "role": "user", "content": text }], "z": [1, {"a": null}],
        });
        if had {
            value["max_tokens"] = 3.into();
        }
        let body = Bytes::from(value.to_string());
        let request = ChatRequest::read(&body).unwrap();
        let edits = Edits { cap: Some(("max_tokens", cap)), ..Edits::default() };
        let sent: serde_json::Value =
            serde_json::from_slice(&request.rewrite(&body, &edits)).unwrap();
        value["max_tokens"] = cap.into();
        prop_assert_eq!(sent, value);
    }
}
