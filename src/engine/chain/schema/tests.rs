use super::judge;
use crate::engine::{chain::FindingKind, contract::Schema, json::Json};

fn contract(text: &str) -> Schema {
    Schema::compile(text).unwrap_or_else(|fault| panic!("{fault:?}"))
}

/// What is said of the arguments: nothing if they fit.
fn said(schema: &Schema, arguments: &str) -> String {
    let arguments = Json::parse(arguments).unwrap();
    let finding = judge(schema, &arguments, "rule");
    finding.map(|found| found.message).unwrap_or_default()
}

/// A chain of definitions, each made of two references to the next.
fn doubling(levels: usize, keyword: &str) -> String {
    let level = |n: usize| {
        let next = format!("{{\"$ref\":\"#/$defs/d{}\"}}", n + 1);
        format!("\"d{n}\":{{\"{keyword}\":[{next},{next}]}}")
    };
    let levels_text: Vec<String> = (0..levels).map(level).collect();
    format!(
        "{{\"$ref\":\"#/$defs/d0\",\"$defs\":{{{},\"d{levels}\":{{\"type\":\"string\"}}}}}}",
        levels_text.join(",")
    )
}

const PAYMENT: &str = r#"{
    "type": "object",
    "properties": {
        "amount": {"type": "number", "maximum": 100},
        "to": {"type": "string", "format": "email"},
        "lines": {"type": "array", "items": {"type": "object", "required": ["sku"]}}
    },
    "required": ["amount", "to"],
    "additionalProperties": false
}"#;

#[test]
fn arguments_that_do_not_fit_are_told_by_place_and_rule_but_never_by_value() {
    let schema = contract(PAYMENT);
    let no = "The arguments do not fit the tool's schema at";
    for (arguments, message) in [
        (r#"{"amount":5,"to":"a@b.example"}"#, String::new()),
        (r#"{"amount":100.0,"to":"a@b.example"}"#, String::new()),
        (
            r#"{"to":"a@b.example"}"#,
            format!("{no} the top: \"amount\" is required."),
        ),
        (
            r#"{"amount":"5","to":"a@b.example"}"#,
            format!("{no} /amount: the rule \"type\" is broken."),
        ),
        (
            r#"{"amount":5000,"to":"a@b.example"}"#,
            format!("{no} /amount: the rule \"maximum\" is broken."),
        ),
        (
            r#"{"amount":5,"to":"SECRET"}"#,
            format!("{no} /to: the rule \"format\" is broken."),
        ),
        (
            r#"{"amount":5,"to":"a@b.example","cc":"SECRET"}"#,
            format!("{no} the top: \"cc\" is not a member it may have."),
        ),
        (
            r#"{"amount":5,"to":"a@b.example","<b>\n":1}"#,
            format!("{no} the top: \"?b??\" is not a member it may have."),
        ),
        (
            r#"{"amount":5,"to":"a@b.example","lines":[{"sku":1},{}]}"#,
            format!("{no} /lines/1: \"sku\" is required."),
        ),
        (
            r#"{"amount":1e999,"to":"a@b.example"}"#,
            "A number in the arguments is too large for the tool's schema.".to_owned(),
        ),
    ] {
        assert_eq!(said(&schema, arguments), message, "{arguments}");
    }
}

#[test]
fn a_contract_schema_that_cannot_be_used_is_refused_with_its_place() {
    for (text, place, message) in [
        (r#"{"type":"strng"}"#, "/type", "is not valid"),
        (
            r#"{"properties":{"a":{"type":"strng"}}}"#,
            "/properties/a/type",
            "is not valid",
        ),
        (
            r#"{"required":"a"}"#,
            "/required",
            "is not of type \"array\"",
        ),
        (
            r#"{"format":"emial"}"#,
            "/format",
            "Unknown format: 'emial'",
        ),
        (
            r#"{"pattern":"^(?!x)"}"#,
            "/pattern",
            "is no pattern that takes linear time",
        ),
        (
            r#"{"pattern":"("}"#,
            "/pattern",
            "is no pattern that takes linear time",
        ),
        (r##"{"$ref":"#/$defs/none"}"##, "", "does not exist"),
        (
            r#"{"$ref":"https://schemas.example/x.json"}"#,
            "",
            "leads out of it",
        ),
        (r#"{"$ref":"file:///etc/passwd"}"#, "", "leads out of it"),
        (r#"{"$ref":"other.json"}"#, "", "leads out of it"),
        (
            r##"{"$dynamicRef":"#a"}"##,
            "",
            "$dynamicRef is not supported",
        ),
        (
            r#"{"$defs":{"a":{"$anchor":"x"}}}"#,
            "",
            "$anchor is not supported",
        ),
        (
            r#"{"$defs":{"a":{"$id":"https://e/x"}}}"#,
            "",
            "$id is supported at the top only",
        ),
        (
            r#"{"$schema":"http://json-schema.org/draft-04/schema#","not":{"id":"https://e/x"}}"#,
            "",
            "id is supported at the top only",
        ),
        (
            r#"{"$schema":"https://x.example/s"}"#,
            "",
            "Unknown meta-schema",
        ),
        (
            r#"{"type":"string","type":"object"}"#,
            "",
            "the same member twice",
        ),
        ("[]", "", "it is no JSON object"),
        ("{", "", "it is not valid JSON"),
        (&doubling(40, "anyOf"), "", "asking it would take too long"),
    ] {
        let fault = Schema::compile(text).unwrap_err();
        assert_eq!(fault.place, place, "{text}");
        assert!(fault.message.contains(message), "{text}: {fault:?}");
    }
}

#[test]
fn a_schema_that_refers_to_itself_is_asked() {
    let schema = contract(
        r##"{"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},
            "additionalProperties":false}},"$ref":"#/$defs/n"}"##,
    );
    assert_eq!(said(&schema, r#"{"next":{"next":{}}}"#), "");
    assert_eq!(
        said(&schema, r#"{"next":{"next":{"x":1}}}"#),
        "The arguments do not fit the tool's schema."
    );
    for text in [
        r##"{"$ref":"#"}"##,
        r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##,
    ] {
        assert_eq!(said(&contract(text), "{}"), "");
    }
}

/// A number of alternatives doubled at each level, on arguments that fail at the last: without
/// bounds this would take 2 to the power of 60 steps.
#[test]
fn a_schema_cannot_keep_the_guard_busy() {
    let schema = contract(
        r##"{"$defs":{"n":{"type":"object","required":["x"],"properties":{
            "a":{"anyOf":[{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"}]}}}},"$ref":"#/$defs/n"}"##,
    );
    let nested = |levels| {
        (0..levels).fold("{}".to_owned(), |inner, _| {
            format!("{{\"x\":1,\"a\":{inner}}}")
        })
    };
    assert!(said(&schema, &nested(20)).contains("do not fit"));
    // Nested unevaluated members double the work at each level.
    let unevaluated = (0..20).fold("{}".to_owned(), |inner, _| {
        format!("{{\"allOf\":[{inner}],\"unevaluatedProperties\":false}}")
    });
    let fault = Schema::compile(&unevaluated).unwrap_err();
    assert_eq!(fault.message, "asking it would take too long");
    // A long chain of references does not deepen our stack without end.
    let chain: Vec<String> = (0..400)
        .map(|n| format!("\"d{n}\":{{\"$ref\":\"#/$defs/d{}\"}}", n + 1))
        .collect();
    let chain = format!(
        "{{\"$defs\":{{{},\"d400\":{{}}}},\"$ref\":\"#/$defs/d0\"}}",
        chain.join(",")
    );
    let fault = Schema::compile(&chain).unwrap_err();
    assert_eq!(fault.message, "it nests too deep along its references");
}

#[test]
fn what_would_take_too_long_is_not_decided_and_so_blocked() {
    let options: Vec<String> = (0..2_000).map(|n| format!("\"option {n}\"")).collect();
    let schema = contract(&format!(
        "{{\"additionalProperties\":{{\"items\":{{\"enum\":[{}]}}}}}}",
        options.join(",")
    ));
    let arguments = format!("{{\"a\":[{}1]}}", "0,".repeat(50_000));
    let finding = judge(&schema, &Json::parse(&arguments).unwrap(), "rule").unwrap();
    assert!(finding.kind == FindingKind::Unavailable);
    let few = r#"{"a":["option 1999"]}"#;
    assert!(judge(&schema, &Json::parse(few).unwrap(), "rule").is_none());
}

#[test]
fn a_pattern_that_backtracks_without_end_elsewhere_is_matched_in_one_pass() {
    let schema = contract(r#"{"properties":{"to":{"pattern":"^(a+)+$"}}}"#);
    let text = format!("{{\"to\":\"{}b\"}}", "a".repeat(50_000));
    assert!(said(&schema, &text).contains("/to: the rule \"pattern\" is broken"));
}

#[test]
fn an_offered_schema_may_hold_what_we_cannot_ask_but_not_nonsense() {
    let offered = |text: &str| Schema::offered(text);
    let schema = offered(
        r#"{"type":"object","properties":{"to":{"type":"string","format":"email",
            "pattern":"^(?!\\.)x"},"id":{"type":"string","pattern":"^[0-9]+$"}}}"#,
    )
    .unwrap();
    assert_eq!(schema.left_out(), 1);
    assert_eq!(said(&schema, r#"{"to":"no mail","id":"1"}"#), "");
    assert!(said(&schema, r#"{"to":5,"id":"1"}"#).contains("/to"));
    assert!(said(&schema, r#"{"to":"x","id":"x"}"#).contains("/id"));
    for text in [
        r#"{"type":"strng"}"#,
        r#"{"$ref":"https://e/x"}"#,
        "5",
        &doubling(40, "allOf"),
    ] {
        assert!(offered(text).is_err(), "{text}");
    }
    let many: Vec<String> = (0..257)
        .map(|n| format!("{{\"pattern\":\"{n}\"}}"))
        .collect();
    let many = format!("{{\"anyOf\":[{}]}}", many.join(","));
    assert!(offered(&many).unwrap_err().message.contains("256 patterns"));
    let large = format!("{{\"title\":\"{}\"}}", "x".repeat(64 << 10));
    assert!(offered(&large).is_err());
}

#[test]
fn a_client_cannot_keep_the_guard_busy_with_its_own_pattern() {
    let schema = |pattern: &str| {
        let text = serde_json::json!({ "properties": { "to": { "pattern": pattern } } });
        Schema::offered(&text.to_string()).unwrap()
    };
    let asked = |schema: &Schema, bytes: usize| {
        let arguments = format!("{{\"to\":\"{}\"}}", "ab".repeat(bytes / 2));
        judge(schema, &Json::parse(&arguments).unwrap(), "rule").map(|found| found.kind)
    };
    // Needs as many states as it has repetitions, at every byte.
    let heavy = schema("[ab]*a[ab]{100}c");
    assert!(asked(&heavy, 1_000) == Some(FindingKind::No));
    assert!(asked(&heavy, 1_000_000) == Some(FindingKind::Unavailable));
    let light = schema("^[a-z]+$");
    assert!(asked(&light, 1_000_000).is_none());
    let too_heavy = schema("[ab]*a[ab]{5000}c");
    assert_eq!(too_heavy.left_out(), 1);
    assert!(asked(&too_heavy, 1_000_000).is_none());
    // JavaScript's own spellings are translated.
    assert_eq!(schema(r"^\cA\/[\d-]$").left_out(), 0);
}
