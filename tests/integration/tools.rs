//! Tools that a request offers: refused or stripped before anything is sent.

use serde_json::{Value, json};

use crate::support::{Client, Reply, Setup, TestProxy, Upstream, reply};

const CHAT: &str = "/v1/chat/completions";

fn function(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
}

async fn proxy(upstream: &Upstream, tools: &str) -> TestProxy {
    TestProxy::start(Setup::to(upstream).k1(&format!("[tools]\n{tools}\n"))).await
}

/// The refusal of a request with these members, asked for whole and as a stream.
async fn refusal(client: &Client, members: &Value) -> (u16, String) {
    let mut streamed = members.clone();
    streamed["stream"] = true.into();
    let whole = client.chat_with("hi", members.clone()).await.refusal();
    let stream = client.chat_with("hi", streamed).await.refusal();
    assert_eq!(whole, stream, "{members}");
    whole
}

#[tokio::test]
async fn a_tool_that_is_not_allowed_is_refused_in_every_form() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream, "allow = [\"get_weather\"]").await;
    for members in [
        json!({"tools": [function("get_weather"), function("delete_account")]}),
        json!({"tools": [{"type": "function", "name": "delete_account"}]}),
        json!({"tools": [{"type": "custom", "custom": {"name": "delete_account"}}]}),
        json!({"functions": [{"name": "delete_account"}], "function_call": {"name": "delete_account"}}),
        json!({"tools": [{"type": "namespace", "name": "ops", "tools": [{"type": "function", "name": "get_weather"}]}]}),
        json!({"tools": {"functionDeclarations": [{"name": "delete_account"}]}}),
        json!({"messages": [{"role": "system", "content": "x", "tools": [function("delete_account")]}]}),
    ] {
        let refused = refusal(&proxy.k1(), &members).await;
        assert_eq!(
            refused,
            (403, "tool_not_allowlisted".to_owned()),
            "{members}"
        );
    }
    assert_eq!(upstream.hits(), 0);
    let allowed = json!({"tools": [function("get_weather")]});
    assert_eq!(
        proxy.k1().chat_with("hi", allowed.clone()).await.status,
        200
    );
    assert_eq!(upstream.last_request().json()["tools"], allowed["tools"]);
}

#[tokio::test]
async fn the_refusal_tells_the_whole_story_and_is_recorded() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream, "allow = [\"get_weather\", \"crm.*\"]").await;
    let refused = proxy
        .k1()
        .chat_with("hi", json!({"tools": [function("delete_account")]}))
        .await;
    let error = refused.error();
    assert_eq!(error.kind, "permission_error");
    assert_eq!(error.param.as_deref(), Some("tools"));
    for word in ["\"delete_account\"", "tools.allow", "get_weather, crm.*"] {
        assert!(error.message.contains(word), "{word}: {}", error.message);
    }
    assert_eq!(refused.json()["guard"]["rule"], "tools.allow");
    assert_eq!(refused.json()["guard"]["policy"], "k1");
    let record = &proxy.records("request_refused", 1).await[0];
    assert_eq!(record["code"], "tool_not_allowlisted");
    assert_eq!(record["rule"], "tools.allow");
}

#[tokio::test]
async fn what_the_provider_would_run_must_be_named() {
    let upstream = Upstream::start().await;
    let plain = TestProxy::to(&upstream).await;
    let hosted = [
        json!({"tools": [{"type": "web_search_preview"}]}),
        json!({"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}),
        json!({"tools": [{"type": "file_search", "vector_store_ids": ["v1"]}]}),
        json!({"tools": [{"type": "made_up"}]}),
        json!({"tools": [{"type": "mcp", "server_label": "w", "server_url": "https://mcp.example/"}]}),
        json!({"web_search_options": {}}),
        json!({"prompt": {"id": "pmpt_1"}}),
    ];
    for members in &hosted {
        let refused = refusal(&plain.k1(), members).await;
        assert_eq!(refused, (403, "hosted_tool_denied".to_owned()), "{members}");
    }
    assert_eq!(upstream.hits(), 0);
    assert_eq!(
        plain
            .k1()
            .chat_with("hi", json!({"tools": [function("any")]}))
            .await
            .status,
        200,
        "without rules every function may be offered"
    );
    let named = proxy(&upstream, "allow = [\"type:*\", \"mcp:mcp.example\"]").await;
    for members in hosted {
        let answer = named.k1().chat_with("hi", members.clone()).await;
        assert_eq!(answer.status, 200, "{members}: {}", answer.text());
        let (name, value) = members.as_object().unwrap().iter().next().unwrap();
        assert_eq!(upstream.last_request().json()[name], *value);
    }
}

#[tokio::test]
async fn a_stripped_tool_is_gone_and_every_other_byte_is_as_it_came() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream, "allow = [\"get_weather\"]\non_offer = \"strip\"").await;
    let keep = r#"{"type":"function", "function":{"name":"get_weather","x":1.10}}"#;
    let drop =
        r#"{ "type":"function","function":{"name":"delete_account","parameters":{"a":["]",{}]}} }"#;
    let body = |tools: &str| {
        format!(
            "{{\n \"x_vendor\":1.10, \"model\":\"m-small\",\"tools\" : [ {tools}]\t,\"messages\":\
             [{{\"role\":\"user\",\"content\":\"h\\u00e9\"}}]}}"
        )
    };
    for (offered, left) in [
        (format!("{drop}, {keep}"), keep.to_owned()),
        (format!("{keep}, {drop}"), keep.to_owned()),
    ] {
        let answer = proxy.k1().post(CHAT, body(&offered)).answer().await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let told = answer.header("x-tallygate-tools-stripped");
        assert_eq!(told, Some("delete_account"));
        assert_eq!(upstream.last_request().body, body(&left));
    }
    let record = &proxy.records("request_started", 2).await[1];
    assert_eq!(record["tools"], json!({"stripped": ["delete_account"]}));
}

#[tokio::test]
async fn an_emptied_list_takes_its_choice_along_unless_that_demands_a_call() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream, "allow = []\non_offer = \"strip\"").await;
    let offered = |choice: Value| {
        json!({"tools": [function("a"), {"type": "web_search"}], "web_search_options": {},
            "parallel_tool_calls": false, "tool_choice": choice})
    };
    assert_eq!(
        proxy
            .k1()
            .chat_with("hi", offered(json!("auto")))
            .await
            .status,
        200
    );
    let sent = upstream.last_request().json();
    for member in [
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "web_search_options",
    ] {
        assert!(sent.get(member).is_none(), "{member} in {sent}");
    }
    let named = json!({"type": "function", "function": {"name": "a"}});
    for choice in [json!("required"), named] {
        let refused = refusal(&proxy.k1(), &offered(choice.clone())).await;
        assert_eq!(
            refused,
            (403, "tool_not_allowlisted".to_owned()),
            "{choice}"
        );
    }
    assert_eq!(upstream.hits(), 1);
}

#[tokio::test]
async fn an_mcp_server_is_known_by_its_host_and_has_to_ask() {
    let upstream = Upstream::start().await;
    let server = |address: &str, asks: &str| {
        json!({"tools": [{"type": "mcp", "server_label": "w", "server_url": address,
            "require_approval": asks}]})
    };
    let refusing = proxy(&upstream, "allow = [\"mcp:mcp.example\"]").await;
    for (address, asks, expected) in [
        (
            "https://evil.example/mcp.example",
            "always",
            (403, "hosted_tool_denied"),
        ),
        (
            "https://mcp.example.evil.example/",
            "always",
            (403, "hosted_tool_denied"),
        ),
        (
            "https://mcp.example:8443/",
            "always",
            (403, "hosted_tool_denied"),
        ),
        (
            "https://mcp.example/mcp",
            "never",
            (403, "hosted_tool_denied"),
        ),
        (
            "https://mcp.example@evil.example/",
            "always",
            (400, "invalid_request"),
        ),
        (
            "https://mcp.example\\@evil.example/",
            "always",
            (400, "invalid_request"),
        ),
        (
            "https://mcp.ex\u{430}mple/",
            "always",
            (400, "invalid_request"),
        ),
    ] {
        let refused = refusal(&refusing.k1(), &server(address, asks)).await;
        assert_eq!(
            refused,
            (expected.0, expected.1.to_owned()),
            "{address} {asks}"
        );
    }
    assert_eq!(upstream.hits(), 0);
    let asked = server("https://MCP.example:443/mcp", "always");
    assert_eq!(refusing.k1().chat_with("hi", asked).await.status, 200);

    let stripping = proxy(
        &upstream,
        "allow = [\"mcp:mcp.example\"]\non_offer = \"strip\"",
    )
    .await;
    let unasked = server("https://mcp.example/mcp", "never");
    assert_eq!(stripping.k1().chat_with("hi", unasked).await.status, 200);
    let sent = upstream.last_request().json();
    assert_eq!(sent["tools"][0]["require_approval"], "always");
    let record = &stripping.records("request_started", 1).await[0];
    assert_eq!(record["tools"], json!({"made_to_ask": ["mcp:mcp.example"]}));
}

#[tokio::test]
async fn what_two_readers_could_take_for_two_things_is_a_bad_request() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream, "allow = [\"ok\"]").await;
    for (member, value) in [
        (
            "tools",
            r#"[{"type":"function","function":{"name":"ok","name":"delete_account"}}]"#,
        ),
        (
            "tools",
            r#"[{"type":"function","type":"web_search","function":{"name":"ok"}}]"#,
        ),
        (
            "tools",
            r#"[{"type":"function","function":{"name":"ok"},"function":{"name":"bad"}}]"#,
        ),
        (
            "tools",
            r#"[{"type":"function","name":"ok","function":{"name":"bad"}}]"#,
        ),
        ("tools", r#"[{"name":"ok"},{"name":"ok"}]"#),
        ("tools", r#"[{"name":"ok"}],"t\u006fols":[{"name":"bad"}]"#),
        ("tools", r#""ok""#),
        ("tools", r#"[{}]"#),
        ("tool_choice", r#""bad""#),
        (
            "tool_choice",
            r#"{"type":"function","function":{"name":"bad"}}"#,
        ),
        ("function_call", r#"{"name":"bad"}"#),
    ] {
        let body = format!(
            r#"{{"model":"m-small","messages":[{{"role":"user","content":"x"}}],"{member}":{value}}}"#
        );
        let refused = proxy.k1().post(CHAT, body).answer().await;
        assert_eq!(
            refused.refusal(),
            (400, "invalid_request".to_owned()),
            "{member} {value}"
        );
        assert_eq!(refused.error().param.as_deref(), Some(member), "{value}");
    }
    assert_eq!(upstream.hits(), 0);
}

#[tokio::test]
async fn a_rule_that_only_observes_changes_nothing_but_the_record() {
    let upstream = Upstream::start().await;
    let rules = "allow = [\"ok\"]\nobserve = [\"tool_not_allowlisted\"]";
    let proxy = proxy(&upstream, rules).await;
    let offered = json!({"tools": [function("ok"), function("other")]});
    assert_eq!(
        proxy.k1().chat_with("hi", offered.clone()).await.status,
        200
    );
    assert_eq!(upstream.last_request().json()["tools"], offered["tools"]);
    let record = &proxy.records("request_started", 1).await[0];
    assert_eq!(record["tools"], json!({"observed": ["other"]}));
}

#[tokio::test]
async fn a_blocked_call_is_an_error_where_text_would_be_no_answer() {
    let upstream = Upstream::start().await;
    let mut completion = reply::completion("", reply::usage(10, 5));
    let call = json!({"id": "call_1", "type": "function",
        "function": {"name": "get_weather", "arguments": "{\"city\":5}"}});
    completion["choices"][0]["message"] = json!({"role": "assistant", "tool_calls": [call]});
    upstream.replies(Reply::json(200, &completion));
    let strict = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tool =
        json!({"type": "function", "function": {"name": "get_weather", "parameters": strict}});
    let plain = TestProxy::to(&upstream).await;
    let replaced = plain.k1().chat_with("hi", json!({"tools": [tool]})).await;
    assert_eq!(replaced.status, 200);
    assert!(
        replaced.content().contains("schema_invalid"),
        "{}",
        replaced.text()
    );
    for members in [
        json!({"tools": [tool], "tool_choice": "required"}),
        json!({"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}),
        json!({"tools": [tool], "response_format": {"type": "json_object"}}),
    ] {
        let refused = plain.k1().chat_with("hi", members.clone()).await.refusal();
        assert_eq!(refused, (403, "tool_call_blocked".to_owned()), "{members}");
    }
    let always = proxy(&upstream, "on_block = \"error\"").await;
    let refused = always.k1().chat_with("hi", json!({"tools": [tool]})).await;
    assert_eq!(refused.refusal(), (403, "tool_call_blocked".to_owned()));
}

#[tokio::test]
async fn a_contract_gives_a_tool_the_scope_that_a_policy_allows() {
    let upstream = Upstream::start().await;
    let contract = "[tools.\"search.web\"]\nscope = \"search:read\"";
    let setup = Setup::to(&upstream)
        .tables(contract)
        .k1("[tools]\nallow = [\"search:read\", \"mcp:mcp.example/read\"]\n");
    let proxy = TestProxy::start(setup).await;
    let ok = json!({"tools": [function("search.web"), {"type": "mcp", "server_label": "w",
        "server_url": "https://mcp.example/", "allowed_tools": ["read"]}]});
    assert_eq!(proxy.k1().chat_with("hi", ok).await.status, 200);
    // A tool that merely calls itself like the scope gains nothing by it.
    let posing = json!({"tools": [function("search:read")]});
    let refused = refusal(&proxy.k1(), &posing).await;
    assert_eq!(refused, (403, "tool_not_allowlisted".to_owned()));
}
