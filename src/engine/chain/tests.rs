//! Whole calls put to the whole chain.

use std::sync::Arc;

use super::*;
use crate::engine::{
    contract::{Approval, ArgumentRule, Bound, Conditions, Contract, Effect, Schema},
    json::{Decimal, Pointer},
    policy::Pattern,
    record::{JudgedCall, Subject},
};

const SCHEMA: &str = r#"{"type":"object","properties":{"city":{"type":"string"}},
    "required":["city"],"additionalProperties":false}"#;

fn offered() -> Offered {
    let mut offered = Offered::default();
    offered.add(None, "get_weather", false, Some(SCHEMA));
    offered.add(None, "list_regions", false, None);
    offered.add(None, "delete_account", false, None);
    offered.add(None, "send_payment", false, None);
    offered.add(None, "search_docs", false, None);
    offered.add(Some("crm"), "find", false, None);
    offered.add(None, "apply_patch", true, None);
    offered.add_type("local_shell");
    offered
}

fn rules() -> ToolRules {
    ToolRules {
        deny: vec![Pattern::parse("delete_account").unwrap()],
        ..ToolRules::default()
    }
}

fn contracts() -> Contracts {
    let tenant = Contract {
        tenant_arguments: vec![Pointer::parse("/tenant").unwrap()],
        ..Contract::default()
    };
    let max = Decimal::parse("100").unwrap();
    let rule = ArgumentRule {
        at: Pointer::parse("/amount").unwrap(),
        required: true,
        observe: false,
        must: Conditions {
            max: Some(Bound {
                number: max,
                text: "100".into(),
            }),
            ..Conditions::default()
        },
    };
    let payment = Contract {
        schema: Some(Arc::new(
            Schema::compile(r#"{"properties":{"amount":{"type":"number"}}}"#).unwrap(),
        )),
        arguments: vec![rule],
        ..Contract::default()
    };
    Contracts::new([
        ("search_docs".into(), tenant),
        ("send_payment".into(), payment),
    ])
}

fn guard_with(rules: ToolRules, contracts: Contracts, offered: Offered) -> CallGuard {
    CallGuard::new(
        "basic@3".into(),
        Arc::new(rules),
        Arc::new(contracts),
        "acme".into(),
        Arc::new(offered),
        Arc::default(),
    )
}

fn guard() -> CallGuard {
    guard_with(rules(), contracts(), offered())
}

fn function(name: &str, arguments: &str) -> Call {
    Call {
        kind: CallKind::Function,
        id: "c1".into(),
        name: name.into(),
        namespace: None,
        arguments: arguments.into(),
        fault: None,
    }
}

/// The code with which the call is blocked, or nothing.
fn code(guard: &CallGuard, call: &Call) -> &'static str {
    guard.judge(call).blocked.map_or("", |block| block.code)
}

fn outcomes(judgement: &Judgement) -> Vec<(&'static str, GuardOutcome)> {
    judgement
        .results
        .iter()
        .map(|result| (result.code, result.outcome))
        .collect()
}

#[test]
fn an_allowed_call_passes_every_layer_and_keeps_its_text() {
    let text = "{\"city\" : \"Oslo\\u0041\"}\n";
    let judgement = guard().judge(&function("get_weather", text));
    assert_eq!(judgement.blocked, None);
    assert_eq!(judgement.arguments, text);
    let passed = |code: &&'static str| (*code, GuardOutcome::Passed);
    let codes = [
        "malformed_output",
        "unknown_tool",
        "tool_not_allowlisted",
        "cross_tenant_denied",
        "schema_invalid",
        "argument_denied",
        "sequence_violation",
        "loop_detected",
        "needs_human_approval",
    ];
    assert_eq!(
        outcomes(&judgement),
        codes.iter().map(passed).collect::<Vec<_>>()
    );
}

#[test]
fn the_first_no_ends_it() {
    let judgement = guard().judge(&function("delete_account", "{}"));
    assert_eq!(
        outcomes(&judgement),
        [
            ("malformed_output", GuardOutcome::Passed),
            ("unknown_tool", GuardOutcome::Passed),
            ("tool_not_allowlisted", GuardOutcome::Blocked),
        ]
    );
    let block = judgement.blocked.unwrap();
    assert_eq!(
        (&*block.rule, &*block.tool),
        ("tools.deny", "delete_account")
    );
}

#[test]
fn no_arguments_are_the_empty_object() {
    for text in ["", "{}"] {
        let judgement = guard().judge(&function("list_regions", text));
        assert_eq!((judgement.blocked, &*judgement.arguments), (None, "{}"));
        assert_eq!(
            code(&guard(), &function("get_weather", text)),
            "schema_invalid"
        );
    }
}

#[test]
fn what_is_not_one_complete_object_is_malformed() {
    for text in [
        " ",
        "null",
        "[]",
        "5",
        "\"{}\"",
        "{",
        "{\"a\":",
        "{}{}",
        "{} ,",
        "{'a':1}",
        "NaN",
        r#"{"a":NaN}"#,
        r#"{"a":1,"a":1}"#,
        r#"{"x":{"a":1,"\u0061":2}}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"to":"acct-1","amo"#,
        "\u{feff}{}",
    ] {
        assert_eq!(
            code(&guard(), &function("list_regions", text)),
            "malformed_output",
            "{text}"
        );
    }
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(
        code(&guard(), &function("list_regions", &deep)),
        "malformed_output"
    );
    let fault = Call {
        fault: Some("Two names."),
        ..function("list_regions", "{}")
    };
    let block = guard().judge(&fault).blocked.unwrap();
    assert_eq!(
        (block.code, &*block.message),
        ("malformed_output", "Two names.")
    );
}

#[test]
fn members_with_a_meaning_elsewhere_are_members_like_others() {
    let text = r#"{"__proto__":{"a":1},"constructor":1}"#;
    assert_eq!(code(&guard(), &function("list_regions", text)), "");
    assert_eq!(
        code(&guard(), &function("get_weather", text)),
        "schema_invalid"
    );
}

#[test]
fn names_are_compared_exactly_and_must_be_visible() {
    for name in [
        "get_weather2",
        "Get_Weather",
        "get_wеather",
        "crm.find",
        "find",
        "functions.get_weather",
    ] {
        assert_eq!(
            code(&guard(), &function(name, "{}")),
            "unknown_tool",
            "{name}"
        );
    }
    for name in [
        "",
        " ",
        "get_weather ",
        "get_weather\n",
        "get\u{200b}weather",
        "\u{202e}x",
        "a\u{0}",
        "type:local_shell",
        "mcp:host",
        &"n".repeat(129),
    ] {
        assert_eq!(
            code(&guard(), &function(name, "{}")),
            "malformed_output",
            "{name:?}"
        );
    }
    let namespaced = |namespace: &str, name: &str| Call {
        namespace: Some(namespace.into()),
        ..function(name, "{}")
    };
    assert_eq!(code(&guard(), &namespaced("crm", "find")), "");
    assert_eq!(code(&guard(), &namespaced("erp", "find")), "unknown_tool");
    assert_eq!(
        code(&guard(), &namespaced("crm", "list_regions")),
        "unknown_tool"
    );
    assert_eq!(
        code(&guard(), &namespaced("type:", "x")),
        "malformed_output"
    );
}

#[test]
fn a_call_must_be_of_the_kind_that_was_offered() {
    let custom = |name: &str| Call {
        kind: CallKind::Custom,
        ..function(name, "*** Begin Patch")
    };
    assert_eq!(code(&guard(), &custom("apply_patch")), "");
    assert_eq!(
        guard().judge(&custom("apply_patch")).arguments,
        "*** Begin Patch"
    );
    assert_eq!(code(&guard(), &custom("list_regions")), "unknown_tool");
    assert_eq!(
        code(&guard(), &function("apply_patch", "{}")),
        "unknown_tool"
    );
    let large = Call {
        arguments: "x".repeat((1 << 20) + 1),
        ..custom("apply_patch")
    };
    assert_eq!(code(&guard(), &large), "malformed_output");
}

#[test]
fn an_item_that_is_a_call_by_its_type_must_be_named() {
    let item = |kind: &str, action: &str| Call {
        kind: CallKind::Item(kind.into()),
        ..function("", action)
    };
    let shell = item("local_shell", r#"{"command":["ls"]}"#);
    assert_eq!(code(&guard(), &shell), "tool_not_allowlisted");
    let named = ToolRules {
        allow: Some(vec![Pattern::parse("type:local_shell").unwrap()]),
        ..rules()
    };
    let guard = guard_with(named, contracts(), offered());
    assert_eq!(code(&guard, &shell), "");
    assert_eq!(code(&guard, &item("shell", "{}")), "unknown_tool");
    assert_eq!(code(&guard, &item("local_shell", "{")), "malformed_output");
    assert_eq!(code(&guard, &item("", "{}")), "malformed_output");
}

#[test]
fn a_call_of_a_server_that_the_request_may_use_needs_no_name_of_its_own() {
    let mcp = Call {
        kind: CallKind::Item("mcp".into()),
        ..function("ask", "{}")
    };
    assert_eq!(code(&guard(), &mcp), "unknown_tool");
    let guard_of = |deny: &str| {
        let mut offered = offered();
        offered.add_type("mcp");
        let rules = ToolRules {
            allow: Some(vec![Pattern::parse("mcp:mcp.example").unwrap()]),
            deny: vec![Pattern::parse(deny).unwrap()],
            ..ToolRules::default()
        };
        guard_with(rules, contracts(), offered)
    };
    assert_eq!(code(&guard_of("pay"), &mcp), "");
    assert_eq!(code(&guard_of("type:mcp"), &mcp), "tool_not_allowlisted");
}

#[test]
fn a_registry_can_be_required() {
    let rules = ToolRules {
        require_contract: true,
        ..rules()
    };
    let guard = guard_with(rules, contracts(), offered());
    let block = guard
        .judge(&function("list_regions", "{}"))
        .blocked
        .unwrap();
    assert_eq!(
        (block.code, &*block.rule),
        ("unknown_tool", "tools.require_contract")
    );
    assert_eq!(
        code(&guard, &function("search_docs", r#"{"tenant":"acme"}"#)),
        ""
    );
}

#[test]
fn a_call_into_another_tenant_is_never_let_through() {
    for (arguments, blocked) in [
        (r#"{"tenant":"acme"}"#, false),
        (r#"{"tenant":"acme","user_id":"x"}"#, false),
        (r#"{"ten\u0061nt":"\u0061cme"}"#, false),
        (r#"{"tenant":"globex"}"#, true),
        (r#"{"tenant":"Acme"}"#, true),
        (r#"{"tenant":"acme "}"#, true),
        (r#"{"tenant":["acme"]}"#, true),
        (r#"{"tenant":{"acme":1}}"#, true),
        (r#"{"tenant":null}"#, true),
        (r#"{"x":{"tenant":"acme"}}"#, true),
        (r#"{"tenant":"acme","Tenant":"globex"}"#, true),
        (r#"{"Tenant":"acme"}"#, true),
        ("{}", true),
        ("", true),
    ] {
        let expected = if blocked { "cross_tenant_denied" } else { "" };
        assert_eq!(
            code(&guard(), &function("search_docs", arguments)),
            expected,
            "{arguments}"
        );
    }
}

#[test]
fn valid_is_not_the_same_as_plausible() {
    let pay = |arguments: &str| function("send_payment", arguments);
    assert_eq!(code(&guard(), &pay(r#"{"amount":100.00}"#)), "");
    assert_eq!(code(&guard(), &pay(r#"{"amount":"5"}"#)), "schema_invalid");
    let block = guard().judge(&pay(r#"{"amount":5000}"#)).blocked.unwrap();
    assert_eq!(block.code, "argument_denied");
    assert_eq!(block.rule, "contract.arguments[0].max");
    assert_eq!(
        block.message,
        "The argument /amount must be a number up to 100."
    );
}

#[test]
fn rules_about_arguments_block_free_text() {
    let mut offered = offered();
    offered.add(None, "search_docs", true, None);
    offered.add(None, "send_payment", true, None);
    let guard = guard_with(rules(), contracts(), offered);
    let custom = |name: &str| Call {
        kind: CallKind::Custom,
        ..function(name, "tenant acme")
    };
    assert_eq!(code(&guard, &custom("search_docs")), "cross_tenant_denied");
    assert_eq!(code(&guard, &custom("send_payment")), "schema_invalid");
}

#[test]
fn an_observed_layer_warns_and_the_others_stay_in_force() {
    let observe = ToolRules {
        observe: vec!["tool_not_allowlisted", "argument_denied"],
        ..rules()
    };
    let guard = guard_with(observe, contracts(), offered());
    let judgement = guard.judge(&function("delete_account", "{}"));
    assert_eq!(judgement.blocked, None);
    let warned = judgement
        .results
        .iter()
        .find(|r| r.outcome == GuardOutcome::Warn)
        .unwrap();
    assert_eq!(
        (warned.code, &*warned.rule),
        ("tool_not_allowlisted", "tools.deny")
    );
    let layers: Vec<_> = judgement.results.iter().map(|result| result.code).collect();
    assert_eq!(layers.len(), 9, "{layers:?}");
    assert_eq!(
        code(&guard, &function("send_payment", r#"{"amount":5000}"#)),
        ""
    );
    assert_eq!(
        code(&guard, &function("send_payment", r#"{"amount":"5"}"#)),
        "schema_invalid"
    );
    assert_eq!(
        code(&guard, &function("search_docs", "{}")),
        "cross_tenant_denied"
    );
}

#[test]
fn a_tool_offered_twice_must_fit_both_descriptions() {
    let mut offered = offered();
    offered.add(None, "list_regions", false, Some(r#"{"required":["a"]}"#));
    offered.add(None, "list_regions", false, Some(r#"{"required":["b"]}"#));
    let guard = guard_with(rules(), contracts(), offered);
    assert_eq!(
        code(&guard, &function("list_regions", r#"{"a":1}"#)),
        "schema_invalid"
    );
    assert_eq!(
        code(&guard, &function("list_regions", r#"{"a":1,"b":2}"#)),
        ""
    );
}

#[test]
fn a_tool_without_a_schema_takes_any_object() {
    for schema in [None, Some("null"), Some("{}"), Some("true")] {
        let mut offered = Offered::default();
        offered.add(None, "f", false, schema);
        let guard = guard_with(rules(), contracts(), offered);
        assert_eq!(code(&guard, &function("f", r#"{"a":1}"#)), "", "{schema:?}");
        assert_eq!(code(&guard, &function("f", "")), "", "{schema:?}");
    }
}

#[test]
fn an_offered_schema_that_cannot_be_used_blocks_its_calls() {
    for schema in [
        r#"{"type":"strng"}"#,
        r#"{"$ref":"https://e/x.json"}"#,
        "{",
        "[]",
    ] {
        let mut offered = Offered::default();
        offered.add(None, "f", false, Some(schema));
        let guard = guard_with(rules(), contracts(), offered);
        assert_eq!(
            code(&guard, &function("f", "{}")),
            "schema_invalid",
            "{schema}"
        );
    }
}

fn wrapped(name: &str, inner: &str) -> Call {
    function(name, &format!("{{\"tool_uses\":[{inner}]}}"))
}

#[test]
fn calls_in_a_wrapper_are_judged_one_by_one() {
    let weather = r#"{"recipient_name":"functions.get_weather","parameters":{"city":"Oslo"}}"#;
    let delete = r#"{"recipient_name":"functions.delete_account","parameters":{}}"#;
    for name in ["parallel", "multi_tool_use.parallel"] {
        assert_eq!(code(&guard(), &wrapped(name, weather)), "");
        let judgement = guard().judge(&wrapped(name, &format!("{weather},{delete}")));
        let block = judgement.blocked.unwrap();
        assert_eq!(
            (block.code, &*block.tool),
            ("tool_not_allowlisted", "delete_account")
        );
        let inner: Vec<_> = judgement.inner.iter().map(|call| &*call.tool).collect();
        assert_eq!(inner, ["get_weather", "delete_account"]);
    }
    let namespaced = Call {
        namespace: Some("multi_tool_use".into()),
        ..wrapped("parallel", delete)
    };
    assert_eq!(code(&guard(), &namespaced), "tool_not_allowlisted");
    let wrong = r#"{"recipient_name":"functions.get_weather","parameters":{"town":"Oslo"}}"#;
    assert_eq!(
        code(&guard(), &wrapped("parallel", wrong)),
        "schema_invalid"
    );
    let tenant = r#"{"recipient_name":"search_docs","parameters":{"tenant":"globex"}}"#;
    assert_eq!(
        code(&guard(), &wrapped("parallel", tenant)),
        "cross_tenant_denied"
    );
    let deny = ToolRules {
        deny: vec![Pattern::parse("parallel").unwrap()],
        ..rules()
    };
    let guard = guard_with(deny, contracts(), offered());
    assert_eq!(
        code(&guard, &wrapped("parallel", weather)),
        "tool_not_allowlisted"
    );
}

#[test]
fn a_wrapper_of_another_form_is_malformed() {
    let nested = r#"{"recipient_name":"functions.parallel","parameters":{"tool_uses":[]}}"#;
    for inner in [
        "",
        "5",
        "{}",
        nested,
        r#"{"recipient_name":"multi_tool_use.parallel","parameters":{}}"#,
        r#"{"recipient_name":"functions.get_weather"}"#,
        r#"{"recipient_name":"functions.get_weather","parameters":"{}"}"#,
        r#"{"recipient_name":5,"parameters":{}}"#,
        r#"{"recipient_name":"functions.get_weather","parameters":{"city":"x"},"more":1}"#,
        r#"{"name":"get_weather","parameters":{}}"#,
    ] {
        assert_eq!(
            code(&guard(), &wrapped("parallel", inner)),
            "malformed_output",
            "{inner}"
        );
    }
    for text in [
        "{}",
        r#"{"tool_uses":{}}"#,
        r#"{"Tool_Uses":[]}"#,
        r#"{"tool_uses":[],"x":1}"#,
    ] {
        assert_eq!(
            code(&guard(), &function("parallel", text)),
            "malformed_output",
            "{text}"
        );
    }
}

#[test]
fn a_tool_that_is_called_parallel_by_chance_is_a_tool() {
    let mut offered = offered();
    offered.add(None, "parallel", false, None);
    let guard = guard_with(rules(), contracts(), offered);
    assert_eq!(code(&guard, &function("parallel", r#"{"lines":2}"#)), "");
    let delete = r#"{"recipient_name":"functions.delete_account","parameters":{}}"#;
    assert_eq!(
        code(&guard, &wrapped("parallel", delete)),
        "tool_not_allowlisted"
    );
    assert_eq!(
        code(&guard, &function("parallel", r#"{"TOOL_USES":[]}"#)),
        "malformed_output"
    );
}

#[test]
fn equal_arguments_have_one_digest() {
    let digest = |text: &str| guard().judge(&function("list_regions", text)).digest;
    assert_eq!(
        digest(r#"{"a":1.0,"b":[]}"#),
        digest(r#"{ "b":[ ], "\u0061":1 }"#)
    );
    assert_eq!(digest(""), digest("{}"));
    assert_ne!(digest(r#"{"a":1}"#), digest(r#"{"a":"1"}"#));
    assert_eq!(digest("{}").len(), 64);
}

#[test]
fn the_record_has_names_codes_and_the_digest_but_no_content() {
    let judgement = guard().judge(&function(
        "send_payment",
        r#"{"amount":5000,"to":"SECRET"}"#,
    ));
    let subject = Subject {
        policy: Some("basic@3".into()),
        ..Subject::default()
    };
    let record = JudgedCall::of(&subject, &judgement);
    let text = serde_json::to_string(&record).unwrap();
    for part in [
        "send_payment",
        "argument_denied",
        "basic@3",
        &judgement.digest,
        "\"outcome\":\"passed\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for part in ["SECRET", "5000"] {
        assert!(!text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_person_decides_where_policy_contract_or_taint_say_so() {
    let contract = |approval| Contract {
        effect: Some(Effect::ExternalWrite),
        approval,
        ..Contract::default()
    };
    let judged = |listed: &[&str], approval, tainted| {
        let rules = ToolRules {
            require_approval: listed.iter().map(|n| Pattern::parse(n).unwrap()).collect(),
            ..ToolRules::default()
        };
        let contracts = Contracts::new([("get_weather".into(), contract(approval))]);
        let guard = CallGuard {
            facts: Arc::new(Facts { tainted, run: None }),
            ..guard_with(rules, contracts, offered())
        };
        let judgement = guard.judge(&function("get_weather", "{\"city\":\"Oslo\"}"));
        assert_eq!(judgement.blocked, None);
        judgement.paused
    };
    let rule = |rule: &str| Some(rule.to_owned());
    assert_eq!(judged(&[], Approval::Never, true), None);
    assert_eq!(
        judged(&[], Approval::Always, false),
        rule("contract.approval")
    );
    assert_eq!(judged(&[], Approval::WhenTainted, false), None);
    assert_eq!(
        judged(&[], Approval::WhenTainted, true),
        rule("contract.approval")
    );
    for listed in ["get_weather", "get_*", "external_write", "Get_Weather"] {
        let paused = judged(&[listed], Approval::Never, false);
        assert_eq!(paused, rule("tools.require_approval"), "{listed}");
    }
}

#[test]
fn nobody_is_asked_about_a_call_that_may_not_pass() {
    let rules = ToolRules {
        require_approval: Pattern::parse("*").into_iter().collect(),
        ..ToolRules::default()
    };
    let guard = guard_with(rules, Contracts::default(), offered());
    let judgement = guard.judge(&function("get_weather", "not json"));
    assert_eq!(
        (judgement.blocked.is_some(), judgement.paused),
        (true, None)
    );
}
