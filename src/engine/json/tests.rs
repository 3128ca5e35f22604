use proptest::prelude::*;

use super::{Fault, Json, MAX_BYTES, MAX_DEPTH, MAX_VALUES, canonical};

fn read(text: &str) -> Json {
    Json::parse(text).unwrap_or_else(|fault| panic!("{fault:?}: {text}"))
}

#[test]
fn the_text_of_numbers_is_kept() {
    let text = r#"{"a":1.10,"b":1e400,"c":123456789012345678901234567890,"d":-0,"e":[0.0]}"#;
    assert_eq!(read(text).to_string(), text);
}

#[test]
fn strings_are_read_and_written_whole() {
    let text = r#" [ "\ud83d\ude00\u0041\/\"\\\b\f\n\r\t\u0000é漢" , "" ] "#;
    assert_eq!(
        read(text),
        Json::Array(vec![
            Json::String("😀A/\"\\\u{8}\u{c}\n\r\t\0é漢".into()),
            Json::String(String::new()),
        ])
    );
    assert_eq!(read(&read(text).to_string()), read(text));
}

#[test]
fn what_readers_could_disagree_about_is_refused() {
    let deep = |levels| "[".repeat(levels) + &"]".repeat(levels);
    let many = |values: usize| format!("[{}0]", "0,".repeat(values - 2));
    for (text, fault) in [
        ("", Fault::Incomplete),
        (" ", Fault::Incomplete),
        (r#"{"a":1"#, Fault::Incomplete),
        (r#"{"a"#, Fault::Incomplete),
        (r#"{"a":"\"#, Fault::Incomplete),
        (r#"{"a":"\u12"#, Fault::Incomplete),
        (r#"["\ud83d"#, Fault::Incomplete),
        (r#"["\ud83d\u"#, Fault::Incomplete),
        ("tru", Fault::Incomplete),
        ("-", Fault::Incomplete),
        ("{}{}", Fault::Trailing),
        ("{} x", Fault::Trailing),
        ("{}\u{0}", Fault::Trailing),
        ("\u{feff}{}", Fault::Syntax),
        ("{}\u{a0}", Fault::Trailing),
        ("{'a':1}", Fault::Syntax),
        ("{a:1}", Fault::Syntax),
        (r#"{"a":1,}"#, Fault::Syntax),
        ("[1,]", Fault::Syntax),
        ("[,]", Fault::Syntax),
        ("[1}", Fault::Syntax),
        ("NaN", Fault::Syntax),
        ("Infinity", Fault::Syntax),
        ("-Infinity", Fault::Syntax),
        ("nul1", Fault::Syntax),
        ("True", Fault::Syntax),
        ("[01]", Fault::Syntax),
        ("[1.]", Fault::Syntax),
        ("[.5]", Fault::Syntax),
        ("[+1]", Fault::Syntax),
        ("[1e]", Fault::Syntax),
        ("[0x1]", Fault::Syntax),
        ("[1 2]", Fault::Syntax),
        ("/*c*/{}", Fault::Syntax),
        ("{} // c", Fault::Trailing),
        ("[\"a\tb\"]", Fault::Syntax),
        ("[\"a\nb\"]", Fault::Syntax),
        (r#"["\x41"]"#, Fault::Syntax),
        (r#"["\u00zz"]"#, Fault::Syntax),
        (r#"["\ud800"]"#, Fault::Surrogate),
        (r#"["\udc00"]"#, Fault::Surrogate),
        (r#"["\ud800x"]"#, Fault::Surrogate),
        (r#"["\ud800\ud800"]"#, Fault::Surrogate),
        (r#"["\ud800\u0041"]"#, Fault::Surrogate),
        (r#"{"a":1,"a":1}"#, Fault::Duplicate),
        (r#"{"a":1,"b":2,"\u0061":3}"#, Fault::Duplicate),
        (r#"{"x":[{"a":1,"a":2}]}"#, Fault::Duplicate),
        ("[1e9999999999]", Fault::Number),
        (&deep(MAX_DEPTH + 1), Fault::Deep),
        (&"[".repeat(100_000), Fault::Deep),
        (&"{\"a\":".repeat(100_000), Fault::Deep),
        (&many(MAX_VALUES + 1), Fault::Large),
        (&format!("{}[]", " ".repeat(MAX_BYTES)), Fault::Large),
    ] {
        let start: String = text.chars().take(40).collect();
        assert_eq!(Json::parse(text), Err(fault), "{start}");
    }
    assert!(Json::parse(&deep(MAX_DEPTH)).is_ok());
    assert!(Json::parse(&many(MAX_VALUES)).is_ok());
}

#[test]
fn spellings_of_one_value_have_one_canonical_text() {
    for (text, expected) in [
        (r#"{"b":1.0,"a":[1e1, -0.0]}"#, r#"{"a":[1e1,0],"b":1}"#),
        (r#"{"\u0061" : 10 , "b":"\/"}"#, r#"{"a":1e1,"b":"/"}"#),
        (r#"{"a":"1"}"#, r#"{"a":"1"}"#),
        (r#"[true,false,null,{}]"#, "[true,false,null,{}]"),
        (r#""\u001f\u007f\u2028""#, "\"\\u001f\u{7f}\u{2028}\""),
    ] {
        assert_eq!(canonical(&read(text)), expected);
    }
    for (one, other) in [
        ("1", "\"1\""),
        ("[1,2]", "[2,1]"),
        ("0.1", "0.10000000000000000001"),
    ] {
        assert_ne!(canonical(&read(one)), canonical(&read(other)));
    }
}

/// Values of every kind, with names that sort and escape in interesting ways.
fn values() -> impl Strategy<Value = Json> {
    let name = prop_oneof![Just("a".to_owned()), Just("__proto__".to_owned()), ".{0,6}"];
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,8})?([eE][+-]?[0-9]{1,3})?"
            .prop_map(|text| Json::Number(text.into())),
        ".{0,12}".prop_map(Json::String),
        any::<String>().prop_map(Json::String),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let members = prop::collection::btree_map(name.clone(), inner.clone(), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(Json::Array),
            members.prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

/// The same value with the members of all its objects in another order.
fn reversed(value: &Json) -> Json {
    match value {
        Json::Array(items) => Json::Array(items.iter().map(reversed).collect()),
        Json::Object(members) => Json::Object(
            members
                .iter()
                .rev()
                .map(|(name, value)| (name.clone(), reversed(value)))
                .collect(),
        ),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_the_same(value in values()) {
        prop_assert_eq!(Json::parse(&value.to_string()), Ok(value));
    }

    #[test]
    fn the_canonical_text_is_a_fixed_point_and_knows_no_order(value in values()) {
        let text = canonical(&value);
        prop_assert_eq!(canonical(&read(&text)), text.clone());
        prop_assert_eq!(canonical(&reversed(&value)), text);
    }

    #[test]
    fn another_reader_finds_the_same_value(value in values()) {
        let text = value.to_string();
        if let Some(converted) = value.to_value() {
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&text).ok(), Some(converted));
        }
    }

    #[test]
    fn whatever_is_accepted_is_json_for_others_too(text in json_like()) {
        let accepted = Json::parse(&text).is_ok();
        let raw = serde_json::from_str::<Box<serde_json::value::RawValue>>(&text);
        prop_assert!(raw.is_ok() || !accepted, "{}", text);
        // What they take for a value and we do not has one of the reasons that we know.
        if serde_json::from_str::<serde_json::Value>(&text).is_ok() && !accepted {
            let fault = Json::parse(&text).unwrap_err();
            prop_assert!(matches!(fault, Fault::Duplicate | Fault::Number), "{fault:?} {}", text);
        }
    }
}

/// Texts near JSON: its own signs in random order.
fn json_like() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"a\"",
        "\"",
        "\\",
        "1",
        "-",
        "0",
        ".",
        "e",
        "E5",
        " ",
        "\n",
        "true",
        "null",
        "\\u0061",
        "\\ud83d\\ude00",
        "\"b\":",
        "é",
        "\u{feff}",
        "NaN",
        "x",
    ]);
    prop::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat())
}
