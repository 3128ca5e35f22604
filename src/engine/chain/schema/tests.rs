use std::time::{Duration, Instant};

use super::{compile::Schema, judge};
use crate::engine::chain::{FindingKind, Json};

fn contract(text: &str) -> Schema {
    Schema::compile(text).unwrap_or_else(|fault| panic!("{fault:?}"))
}

fn fault(text: &str) -> String {
    let fault = Schema::compile(text).unwrap_err();
    format!("{} {}", fault.place, fault.message)
}

/// What is said of the arguments: nothing if they fit.
fn said(schema: &Schema, arguments: &str) -> String {
    let arguments = Json::parse(arguments).unwrap();
    judge(schema, &arguments, "rule")
        .map(|f| f.message)
        .unwrap_or_default()
}

#[test]
fn tmp_stack() {
    // chain of not
    for n in [50, 64, 120, 200, 250] {
        let mut defs = String::new();
        for i in 0..n {
            defs += &format!("\"d{i}\":{{\"$ref\":\"#/$defs/d{}\"}},", i + 1);
        }
        let text = format!(
            "{{\"$ref\":\"#/$defs/d0\",\"$defs\":{{{defs}\"d{n}\":{{\"type\":\"object\"}}}}}}"
        );
        eprintln!("{n} {:?}", Schema::compile(&text).map(|s| said(&s, "{}")));
    }
    let text = r##"{"$defs":{"n":{"type":"object","properties":{"a":{"$ref":"#/$defs/n"},"b":{"anyOf":[{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"}]}},"required":["x"]}},"$ref":"#/$defs/n"}"##;
    let s = contract(text);
    let deep = (0..62).fold("{}".to_owned(), |inner, _| {
        format!("{{\"x\":1,\"a\":{inner},\"b\":{inner2}}}", inner2 = "{}")
    });
    let t = Instant::now();
    eprintln!("{:?} {}", t.elapsed(), said(&s, &deep));
    let deep = (0..14).fold("{}".to_owned(), |inner, _| {
        format!("{{\"x\":1,\"b\":{inner}}}")
    });
    let t = Instant::now();
    eprintln!("{:?} {}", t.elapsed(), said(&s, &deep));
    let deep = (0..62).fold("{}".to_owned(), |inner, _| {
        format!("{{\"x\":1,\"b\":{inner}}}")
    });
    let t = Instant::now();
    let v = Json::parse(&deep).unwrap().to_value().unwrap();
    eprintln!("{}", s.validator().is_valid(&v));
    eprintln!("{:?} direct", t.elapsed());
    // doubling defs
    let n = 40;
    let mut defs = String::new();
    for i in 0..n {
        let j = i + 1;
        defs += &format!(
            "\"d{i}\":{{\"anyOf\":[{{\"$ref\":\"#/$defs/d{j}\"}},{{\"$ref\":\"#/$defs/d{j}\"}}]}},"
        );
    }
    let text =
        format!("{{\"$ref\":\"#/$defs/d0\",\"$defs\":{{{defs}\"d{n}\":{{\"type\":\"string\"}}}}}}");
    let t = Instant::now();
    eprintln!(
        "compile {:?} {:?}",
        Schema::compile(&text).err(),
        t.elapsed()
    );
    // unevaluated nest
    for n in [5, 10, 15, 20] {
        let text = (0..n).fold(
            r#"{"properties":{"x":{"type":"string"}}}"#.to_owned(),
            |inner, _| format!("{{\"allOf\":[{inner}],\"unevaluatedProperties\":false}}"),
        );
        let t = Instant::now();
        let s = Schema::compile(&text).unwrap();
        eprintln!("{n} {} {:?}", said(&s, "{\"x\":\"a\"}"), t.elapsed());
    }
    // pattern faults
    for p in [
        "(a+)+$",
        "^(?!x)a",
        "(",
        "\\d+\\w\\p{L}",
        "[^\\s]{1,255}",
        "(?:(?:a{0,50}){0,50}){0,50}",
        "\\u0041",
        "a{2000}",
    ] {
        let text = serde_json::json!({"properties": {"to": {"pattern": p}}}).to_string();
        match Schema::compile(&text) {
            Ok(s) => {
                let t = Instant::now();
                let a = format!("{{\"to\":\"{}b\"}}", "a".repeat(50_000));
                eprintln!("{p} ok {} {:?}", said(&s, &a), t.elapsed())
            }
            Err(e) => eprintln!("{p} {e:?}"),
        }
        let o = Schema::offered(&text).map(|s| s.left_out().map(str::to_owned).collect::<Vec<_>>());
        eprintln!("   offered {o:?}");
    }
    for t in [
        r##"{"$ref":"https://schemas.example/x.json"}"##,
        r##"{"$ref":"#/$defs/none"}"##,
        r#"{"type":"strng"}"#,
        r#"{"properties":{"a":{"type":"strng"}}}"#,
        r#"{"format":"emial"}"#,
        r#"{"$schema":"https://x.example/s"}"#,
        r#"{"properties":{"a":{"format":"email","minimum":"1"}}}"#,
        "[]",
        "tru",
        r#"{"type":"string","type":"object"}"#,
        r#"{"required":"a"}"#,
        r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##,
        r##"{"$ref":"#"}"##,
        r##"{"properties":{"a":{"$id":"https://e/x","$ref":"#/x"}}}"##,
    ] {
        match Schema::compile(t) {
            Ok(s) => eprintln!("{t} ok {}", said(&s, "{}")),
            Err(e) => eprintln!("{t} {e:?}"),
        }
    }
    panic!();
}
