use super::{ArgumentRule, Bound, Conditions, HostPattern, Scalar, WholePattern, paths::is_below};
use crate::engine::json::{Decimal, Json, Pointer};

fn rule(must: Conditions) -> ArgumentRule {
    ArgumentRule {
        at: Pointer::parse("/x").unwrap(),
        required: true,
        observe: false,
        must,
    }
}

/// The member of the rule that the arguments break.
fn broken(rule: &ArgumentRule, arguments: &str) -> Option<&'static str> {
    rule.breach(&Json::parse(arguments).unwrap())
        .map(|(member, _)| member)
}

fn bound(text: &str) -> Option<Bound> {
    let number = Decimal::parse(text).unwrap();
    Some(Bound {
        number,
        text: text.into(),
    })
}

#[test]
fn numbers_are_compared_exactly() {
    let rule = rule(Conditions {
        min: bound("0.1"),
        max: bound("9007199254740993"),
        ..Conditions::default()
    });
    for (value, member) in [
        ("0.1", None),
        ("0.10", None),
        ("1e-1", None),
        ("9007199254740993", None),
        ("9007199254740992.9", None),
        ("0.09999999999999999999", Some("min")),
        ("-1", Some("min")),
        ("9007199254740993.00000000000000000001", Some("max")),
        ("9007199254740994", Some("max")),
        ("1e400", Some("max")),
        ("\"5\"", Some("min")),
        ("true", Some("min")),
        ("{}", Some("min")),
        ("[5,6]", None),
        ("[5,[6,1e400]]", Some("max")),
        ("null", Some("required")),
    ] {
        assert_eq!(
            broken(&rule, &format!("{{\"x\":{value}}}")),
            member,
            "{value}"
        );
    }
}

#[test]
fn a_missing_place_breaks_the_rule_unless_it_may_be_missing() {
    let limited = rule(Conditions {
        max: bound("1"),
        ..Conditions::default()
    });
    assert_eq!(broken(&limited, "{}"), Some("required"));
    assert_eq!(broken(&limited, r#"{"X":1}"#), Some("at"));
    assert_eq!(broken(&limited, r#"{"x":1,"X":9}"#), Some("at"));
    let optional = ArgumentRule {
        required: false,
        ..limited
    };
    assert_eq!(broken(&optional, "{}"), None);
    assert_eq!(broken(&optional, r#"{"x":null}"#), None);
    assert_eq!(broken(&optional, r#"{"X":1}"#), Some("at"));
    assert_eq!(broken(&optional, r#"{"x":2}"#), Some("max"));
}

#[test]
fn allow_is_exact_and_deny_catches_every_spelling() {
    let zero = || Scalar::Number(Decimal::parse("0").unwrap());
    let allow = rule(Conditions {
        allow: Some(vec![Scalar::Text("eu".into()), Scalar::Bool(true), zero()]),
        ..Conditions::default()
    });
    for value in ["\"eu\"", "true", "0", "0.0", "-0", "[\"eu\",0]"] {
        assert_eq!(
            broken(&allow, &format!("{{\"x\":{value}}}")),
            None,
            "{value}"
        );
    }
    for value in [
        "\"EU\"",
        "\"eu \"",
        "\"true\"",
        "\"0\"",
        "1",
        "{}",
        "[\"eu\",\"us\"]",
    ] {
        assert_eq!(
            broken(&allow, &format!("{{\"x\":{value}}}")),
            Some("allow"),
            "{value}"
        );
    }
    let deny = rule(Conditions {
        deny: vec![
            Scalar::Text("root".into()),
            Scalar::Bool(true),
            zero(),
            Scalar::Text("7".into()),
        ],
        ..Conditions::default()
    });
    for value in [
        "\"root\"",
        "\"ROOT\"",
        "\" root\\n\"",
        "true",
        "\"True\"",
        "0",
        "0e9",
        "-0.0",
        "\"0\"",
        "\" +0.00 \"",
        "7",
        "7.0",
        "\"7.0\"",
        "[1,\"root\"]",
    ] {
        assert_eq!(
            broken(&deny, &format!("{{\"x\":{value}}}")),
            Some("deny"),
            "{value}"
        );
    }
    for value in ["\"rooted\"", "false", "1", "\"\"", "{\"a\":0}"] {
        assert_eq!(
            broken(&deny, &format!("{{\"x\":{value}}}")),
            None,
            "{value}"
        );
    }
}

#[test]
fn a_pattern_must_match_the_whole_text() {
    let pattern = |text: &str| {
        rule(Conditions {
            pattern: Some(WholePattern::parse(text).unwrap()),
            ..Conditions::default()
        })
    };
    for (expression, value, member) in [
        ("[a-z]+", r#""abc""#, None),
        ("[a-z]+", r#""abc1""#, Some("pattern")),
        ("[a-z]+", r#""abc\n""#, Some("pattern")),
        ("[a-z]+", r#""\nabc""#, Some("pattern")),
        ("a|b", r#""ax""#, Some("pattern")),
        ("^a$", r#""a""#, None),
        ("^a$", r#""a\n""#, Some("pattern")),
        ("(?m)^a$", r#""b\na""#, Some("pattern")),
        ("[0-9]+", "5", Some("pattern")),
    ] {
        let rule = pattern(expression);
        assert_eq!(
            broken(&rule, &format!("{{\"x\":{value}}}")),
            member,
            "{expression} {value}"
        );
    }
    for text in ["(", "a)|(b", "^(?!x)", r"(a)\1"] {
        assert!(WholePattern::parse(text).is_err(), "{text}");
    }
}

#[test]
fn only_plain_paths_lead_below_a_prefix() {
    let below = |path: &str, prefix: &str| is_below(path, &[prefix.into()]);
    for path in [
        "/data",
        "/data/",
        "/data/a.txt",
        "/data/a b/.hidden/ü漢",
        "/data/a..b",
        "/data/…x".trim_end_matches("…x"),
    ] {
        assert!(below(path, "/data"), "{path}");
        assert!(below(path, "/data/"), "{path}");
        assert!(below(path, "/"), "{path}");
    }
    assert!(below("src/main.rs", "src"));
    for path in [
        "",
        "/",
        "/datashop",
        "data/a",
        "/etc/passwd",
        "/data/../etc/passwd",
        "/data/..",
        "/data/.",
        "/data/./a",
        "/data//a",
        "//data/a",
        "/data/a//",
        "/data\\..\\etc",
        "/data/%2e%2e/etc",
        "/data/..%2fetc",
        "/data/a\u{0}.txt",
        "/data/a\n",
        "/data/.. /etc",
        "/data/.../etc",
        "/data/a./b",
        "/data/a /b",
        "/data/ a",
        "/data/．．/etc",
        "/data／..",
        "/data/\u{2025}/etc",
        "/data/.\u{200b}./etc",
        "/data/.\u{ad}./etc",
        "~/data",
        "/Data/a",
        "file:///data/a",
        " /data/a",
    ] {
        assert!(!below(path, "/data"), "{path:?}");
    }
    assert!(!below("/a/../b", "/"));
    assert!(!below("~root/x", "~root"));
}

#[test]
fn only_plain_urls_lead_to_a_host() {
    let leads = |url: &str, host: &str| HostPattern::parse(host).unwrap().matches(url);
    for url in [
        "https://api.example.com",
        "http://api.example.com/",
        "HTTPS://API.example.COM/a?b#c",
        "https://api.example.com:443/",
        "https://api.example.com/@evil.com",
        "https://api.example.com?q=//x",
    ] {
        assert!(leads(url, "api.example.com"), "{url}");
        assert!(leads(url, "*.example.com"), "{url}");
    }
    for url in [
        "",
        "api.example.com",
        "//api.example.com",
        "ftp://api.example.com/",
        "javascript:alert(1)",
        "https://evil.com/",
        "https://api.example.com.evil.com/",
        "https://evilapi.example.com/",
        "https://user@api.example.com/",
        "https://api.example.com@evil.com/",
        "https://api.example.com:80@evil.com/",
        "https://evil.com#@api.example.com/",
        "https://evil.com\\@api.example.com/",
        "https://api.example.com\\@evil.com",
        "https:\\\\api.example.com/",
        "https:/api.example.com/",
        "https:api.example.com",
        "https:///api.example.com/",
        "https://api.example.com./",
        "https://api.example.com:8443/",
        "https://api%2eexample.com/",
        "https://api.example。com/",
        "https://аpi.example.com/",
        "https://api.example.com\u{ff0f}.evil.com/",
        " https://api.example.com/",
        "https://api.example.com/\n",
        "https://api.exa\tmple.com/",
        "https://api..example.com/",
    ] {
        assert!(!leads(url, "api.example.com"), "{url:?}");
    }
    assert!(!leads("https://example.com/", "*.example.com"));
    assert!(!leads("https://.example.com/", "*.example.com"));
    assert!(leads("https://example.com:8443/", "example.com:8443"));
    assert!(!leads("https://example.com/", "example.com:8443"));
    for address in [
        "http://0x7f.1/",
        "http://2130706433/",
        "http://127.1/",
        "http://0177.0.0.1/",
    ] {
        assert!(!leads(address, "127.0.0.1"), "{address}");
    }
    assert!(leads("http://127.0.0.1/", "127.0.0.1"));
    assert!(leads("http://[::1]/", "[::1]"));
    for host in [
        "",
        "*",
        "https://a.example",
        "a.example/x",
        "user@a.example",
        "a example",
        "münchen.example",
        "a.example.",
    ] {
        assert_eq!(HostPattern::parse(host), None, "{host}");
    }
}
