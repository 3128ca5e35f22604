use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::engine::{
    call::{ChatRequest, Edits},
    chain::{Call, CallGuard, CallKind},
    policy::Pattern,
};

fn patterns(names: &[&str]) -> Vec<Pattern> {
    names.iter().map(|n| Pattern::parse(n).unwrap()).collect()
}

fn rules(allow: Option<&[&str]>, deny: &[&str], on_offer: OnOffer) -> ToolRules {
    ToolRules {
        allow: allow.map(patterns),
        deny: patterns(deny),
        on_offer,
        ..ToolRules::default()
    }
}

fn refusing(allow: &[&str]) -> ToolRules {
    rules(Some(allow), &[], OnOffer::Refuse)
}

fn stripping(allow: &[&str]) -> ToolRules {
    rules(Some(allow), &[], OnOffer::Strip)
}

/// What is sent upstream, and what was noted; or why nothing is.
fn judged(rules: &ToolRules, members: Value) -> Result<(Value, OfferNotes), OfferDenied> {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
    body.as_object_mut()
        .unwrap()
        .append(&mut members.as_object().unwrap().clone());
    let body = Bytes::from(body.to_string());
    let request = ChatRequest::read(&body).unwrap();
    let admitted = judge(
        rules,
        &Contracts::default(),
        &request.offers,
        &body,
        &request,
    )?;
    let edits = Edits {
        tools: &admitted.patches,
        ..Edits::default()
    };
    let sent = serde_json::from_slice(&request.rewrite(&body, &edits)).unwrap();
    Ok((sent, admitted.notes))
}

fn code(rules: &ToolRules, members: Value) -> &'static str {
    judged(rules, members).map_or_else(|denied| denied.code, |_| "passed")
}

fn function(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name}})
}

#[test]
fn a_tool_that_is_not_allowed_is_refused_in_every_form() {
    let rules = refusing(&["ok", "ns.*"]);
    for offers in [
        json!({"tools": [function("ok"), function("delete_account")]}),
        json!({"tools": [{"type": "custom", "custom": {"name": "delete_account"}}]}),
        json!({"tools": [{"type": "function", "name": "delete_account"}]}),
        json!({"tools": {"function_declarations": [{"name": "delete_account"}]}}),
        json!({"functions": [{"name": "delete_account"}]}),
        json!({"tools": [{"type": "namespace", "name": "other", "tools": [{"name": "ok"}]}]}),
        json!({"messages": [{"role": "system", "tools": [function("delete_account")]}]}),
    ] {
        assert_eq!(code(&rules, offers.clone()), NOT_ALLOWLISTED, "{offers}");
    }
    for offers in [
        json!({}),
        json!({"tools": null}),
        json!({"tools": [function("ok")], "functions": []}),
        json!({"tools": [{"type": "namespace", "name": "ns", "tools": [{"name": "any"}]}]}),
    ] {
        assert_eq!(code(&rules, offers.clone()), "passed", "{offers}");
    }
}

#[test]
fn what_the_provider_brings_is_allowed_by_its_name_only() {
    for offers in [
        json!({"tools": [{"type": "web_search"}]}),
        json!({"tools": [{"type": "made_up"}]}),
        json!({"tools": [{"googleSearch": {}}]}),
        json!({"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}),
        json!({"tools": [{"type": "mcp", "server_url": "https://mcp.example"}]}),
        json!({"web_search_options": {}}),
        json!({"prompt": {"id": "pmpt_1"}}),
        json!({"mcp_servers": []}),
    ] {
        let any_function = rules(None, &[], OnOffer::Refuse);
        assert_eq!(
            code(&any_function, offers.clone()),
            HOSTED_DENIED,
            "{offers}"
        );
        assert_eq!(
            code(&refusing(&["*", "type:shell"]), offers.clone()),
            HOSTED_DENIED,
            "{offers}"
        );
        let named = refusing(&["type:*", "mcp:mcp.example"]);
        assert_eq!(code(&named, offers.clone()), "passed", "{offers}");
    }
    let both = json!({"tools": [{"type": "web_search"}], "web_search_options": {}});
    assert_eq!(code(&refusing(&["type:web_search"]), both), "passed");
}

#[test]
fn a_refusal_names_the_tool_the_rule_and_what_is_allowed() {
    let offers = json!({"tools": [function("ok"), function("delete\n"), {"type": "x"}]});
    let denied = judged(&refusing(&["ok", "crm.*"]), offers).unwrap_err();
    assert_eq!((denied.rule, denied.param), ("tools.allow", "tools"));
    assert_eq!(
        denied.message,
        "The request offers \"delete?\", a tool of the client; this key's policy does not allow \
         it (tools.allow). Nor may it offer type:x. Allowed: ok, crm.*. Take it out of \
         \"tools\", or ask the operator to allow \"delete?\"."
    );
    let deny = rules(None, &["type:web_search", "delete_*"], OnOffer::Refuse);
    let denied = judged(&deny, json!({"functions": [{"name": "Delete_All"}]})).unwrap_err();
    assert_eq!((denied.rule, denied.param), ("tools.deny", "functions"));
    let many: Vec<Value> = (0..20).map(|n| function(&format!("t{n}"))).collect();
    let denied = judged(&refusing(&[]), json!({"tools": many})).unwrap_err();
    assert!(denied.message.contains("and 11 more"), "{}", denied.message);
    assert!(
        denied.message.contains("No tool is allowed."),
        "{}",
        denied.message
    );
}

#[test]
fn stripping_sends_the_rest_and_notes_what_went() {
    let offers = json!({"tools": [function("a"), {"type": "web_search"}, function("b")],
        "web_search_options": {}, "tool_choice": "auto"});
    let (sent, notes) = judged(&stripping(&["b"]), offers).unwrap();
    assert_eq!(sent["tools"], json!([function("b")]));
    assert_eq!(sent["tool_choice"], "auto");
    assert!(sent.get("web_search_options").is_none());
    assert_eq!(notes.stripped, ["a", "type:web_search", "type:web_search"]);
    let all = json!({"tools": [function("a")], "tool_choice": "auto", "parallel_tool_calls": true});
    let (sent, _) = judged(&stripping(&["b"]), all).unwrap();
    let members: Vec<&String> = sent.as_object().unwrap().keys().collect();
    assert_eq!(members, ["model", "messages"]);
}

#[test]
fn a_choice_that_needs_a_stripped_tool_is_refused() {
    let offers =
        |choice: Value| json!({"tools": [function("a"), function("b")], "tool_choice": choice});
    for choice in [
        json!({"type": "function", "function": {"name": "a"}}),
        json!("a"),
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"name": "a"}, {"name": "b"}]}),
    ] {
        let denied = judged(&stripping(&["b"]), offers(choice)).unwrap_err();
        assert_eq!(
            (denied.code, denied.param),
            (NOT_ALLOWLISTED, "tool_choice")
        );
        assert!(denied.message.contains("\"a\""), "{}", denied.message);
    }
    assert_eq!(
        code(&stripping(&["b"]), offers(json!("required"))),
        "passed"
    );
    assert_eq!(
        code(&stripping(&["b"]), offers(json!({"name": "b"}))),
        "passed"
    );
    assert_eq!(
        code(&stripping(&["c"]), offers(json!("required"))),
        NOT_ALLOWLISTED
    );
    assert_eq!(code(&stripping(&["c"]), offers(json!("none"))), "passed");
}

fn server(members: Value) -> Value {
    let mut server =
        json!({"type": "mcp", "server_label": "w", "server_url": "https://mcp.example/x"});
    server
        .as_object_mut()
        .unwrap()
        .append(&mut members.as_object().unwrap().clone());
    json!({"tools": [server]})
}

#[test]
fn a_server_is_judged_by_host_and_by_the_tools_it_is_held_to() {
    let host = refusing(&["mcp:mcp.example"]);
    assert_eq!(code(&host, server(json!({}))), "passed");
    assert_eq!(
        code(
            &host,
            server(json!({"server_url": "https://mcp.example:8443"}))
        ),
        HOSTED_DENIED
    );
    assert_eq!(
        code(&host, server(json!({"server_url": "http://mcp.example"}))),
        HOSTED_DENIED
    );
    let tools = refusing(&["mcp:mcp.example/read", "mcp:mcp.example/find_*"]);
    for (allowed, expected) in [
        (json!(null), HOSTED_DENIED),
        (json!([]), HOSTED_DENIED),
        (json!(["read", "find_x"]), "passed"),
        (json!({"tool_names": ["read"]}), "passed"),
        (json!(["read", "write"]), HOSTED_DENIED),
    ] {
        assert_eq!(
            code(&tools, server(json!({"allowed_tools": allowed}))),
            expected,
            "{allowed}"
        );
    }
    assert_eq!(code(&refusing(&["type:mcp"]), server(json!({}))), "passed");
    for deny in [
        "type:mcp",
        "mcp:mcp.example",
        "mcp:*",
        "mcp:mcp.example/write",
        "write",
    ] {
        let rules = rules(Some(&["mcp:*"]), &[deny], OnOffer::Refuse);
        let offers = server(json!({"allowed_tools": ["read", "write"]}));
        assert_eq!(code(&rules, offers), HOSTED_DENIED, "{deny}");
    }
}

#[test]
fn a_server_that_would_not_ask_is_refused_or_made_to() {
    for value in [json!("never"), json!({"never": {"tool_names": ["read"]}})] {
        let offers = server(json!({"require_approval": value}));
        let denied = judged(&refusing(&["mcp:mcp.example"]), offers.clone()).unwrap_err();
        assert_eq!(
            (denied.code, denied.rule),
            (HOSTED_DENIED, "tools.on_offer")
        );
        assert!(
            denied.message.contains("require_approval"),
            "{}",
            denied.message
        );
        let (sent, notes) = judged(&stripping(&["mcp:mcp.example"]), offers).unwrap();
        assert_eq!(sent["tools"][0]["require_approval"], "always");
        assert_eq!(notes.made_to_ask, ["mcp:mcp.example"]);
    }
}

#[test]
fn a_layer_that_only_observes_lets_the_tool_through_and_notes_it() {
    let rules = ToolRules {
        observe: vec![NOT_ALLOWLISTED],
        ..refusing(&["ok"])
    };
    let offers = json!({"tools": [function("a"), function("ok")]});
    let (sent, notes) = judged(&rules, offers.clone()).unwrap();
    assert_eq!(sent["tools"], offers["tools"]);
    assert_eq!(notes.observed, ["a"]);
    assert_eq!(
        code(&rules, json!({"tools": [{"type": "x"}]})),
        HOSTED_DENIED
    );
}

#[test]
fn calls_are_judged_by_what_was_offered_and_left() {
    let body = br#"{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[
        {"type":"function","function":{"name":"a","parameters":{"type":"object"}}},
        {"type":"function","function":{"name":"gone"}},
        {"type":"namespace","name":"n","tools":[{"name":"b"}]},{"type":"local_shell"}]}"#;
    let request = ChatRequest::read(body).unwrap();
    let rules = stripping(&["a", "n.b", "type:local_shell"]);
    let contracts = Contracts::default();
    let admitted = judge(&rules, &contracts, &request.offers, body, &request).unwrap();
    let guard = CallGuard::new(
        "p@1".into(),
        rules.into(),
        contracts.into(),
        "acme".into(),
        admitted.offered.into(),
        std::sync::Arc::default(),
    );
    let call = |kind: CallKind, namespace: Option<&str>, name: &str| Call {
        kind,
        id: "c1".into(),
        name: name.into(),
        namespace: namespace.map(Into::into),
        arguments: "{}".into(),
        fault: None,
    };
    for call in [
        call(CallKind::Function, None, "a"),
        call(CallKind::Function, Some("n"), "b"),
        call(CallKind::Item("local_shell".into()), None, ""),
    ] {
        assert_eq!(guard.judge(&call).blocked, None, "{call:?}");
    }
    for call in [
        call(CallKind::Function, None, "gone"),
        call(CallKind::Function, None, "b"),
        call(CallKind::Item("shell".into()), None, ""),
    ] {
        let blocked = guard.judge(&call).blocked.map(|block| block.code);
        assert_eq!(blocked, Some("unknown_tool"), "{call:?}");
    }
}
