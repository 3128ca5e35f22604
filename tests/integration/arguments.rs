//! Rules about arguments: asked of the whole call, in whatever form it comes.

use serde_json::{Value, json};

use crate::support::{Answer, Reply, Setup, TestProxy, Upstream, reply};

const CONTRACTS: &str = r#"
[tools.search_docs]
arguments = [{ at = "/path", path_prefixes = ["/srv/docs"] }]

[tools.send_payment]
arguments = [{ at = "/amount", max = 100 }]

[tools.note]
arguments = [{ at = "/text", pattern = "(a+)+" }]

[tools.list_regions]
effect = "read"
"#;

async fn proxy(upstream: &Upstream) -> TestProxy {
    TestProxy::start(Setup::to(upstream).tables(CONTRACTS)).await
}

fn offer() -> Value {
    let tool = |(name, required): (&str, Value)| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "required": required}}});
    let tools = [
        ("search_docs", json!(["path"])),
        ("send_payment", json!(["amount"])),
        ("note", json!([])),
        ("list_regions", json!([])),
    ];
    json!({"tools": tools.map(tool)})
}

/// `arguments` is whatever stands in the call; `None`: nothing does.
fn call(name: &str, arguments: Option<Value>) -> Value {
    let mut call =
        json!({"index": 0, "id": "id_a", "type": "function", "function": {"name": name}});
    if let Some(arguments) = arguments {
        call["function"]["arguments"] = arguments;
    }
    call
}

/// The call as a provider streams it, and in a whole answer.
async fn both_ways(upstream: &Upstream, proxy: &TestProxy, call: &Value) -> [Answer; 2] {
    let chunk = reply::chunk(json!({"tool_calls": [call]}), None);
    let end = reply::chunk(json!({}), Some("tool_calls"));
    upstream.replies(Reply::stream().data(&chunk).data(&end).done());
    let streamed = proxy.k1().stream_with("hi", offer()).await.answer().await;
    let mut body = reply::completion("", reply::usage(10, 5));
    body["choices"][0]["message"] =
        json!({"role": "assistant", "content": null, "tool_calls": [call]});
    body["choices"][0]["finish_reason"] = json!("tool_calls");
    upstream.replies(Reply::json(200, &body));
    [streamed, proxy.k1().chat_with("hi", offer()).await]
}

/// The arguments that the client gets of the one call, as the text that they must be.
fn arguments(answer: &Answer) -> Option<String> {
    let chunks = if answer.is_stream() {
        answer.chunks()
    } else {
        vec![answer.json()]
    };
    let of = |chunk: &Value| {
        let choice = &chunk["choices"][0];
        let calls = choice["delta"]["tool_calls"]
            .as_array()
            .or(choice["message"]["tool_calls"].as_array())?
            .clone();
        assert_eq!(calls.len(), 1);
        Some(
            calls[0]["function"]["arguments"]
                .as_str()
                .expect("a text")
                .to_owned(),
        )
    };
    chunks.iter().find_map(of)
}

fn is_blocked(answer: &Answer, code: &str) {
    assert_eq!(answer.status, 200);
    assert!(
        answer.content().contains(&format!("({code})")),
        "{code}: {}",
        answer.text()
    );
    assert_eq!(arguments(answer), None);
    assert!(!answer.text().contains("id_a"));
}

#[tokio::test]
async fn a_forbidden_value_cannot_hide_between_fragments() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    for (pieces, passes) in [
        (["{\"path\":\"/e", "tc/pa", "sswd\"}"], false),
        (["{\"path\":\"/srv/docs/../..", "/et", "c/passwd\"}"], false),
        (["{\"path\":\"/srv/d", "ocs/a", ".md\"}"], true),
    ] {
        let part = |piece| {
            reply::chunk(
                json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}),
                None,
            )
        };
        let first = reply::chunk(
            json!({"tool_calls": [call("search_docs", Some(json!("")))]}),
            None,
        );
        let end = reply::chunk(json!({}), Some("tool_calls"));
        upstream.replies(
            Reply::stream()
                .data(&first)
                .all_data(pieces.map(part))
                .data(&end)
                .done(),
        );
        let answer = proxy.k1().stream_with("hi", offer()).await.answer().await;
        if passes {
            assert_eq!(arguments(&answer), Some(pieces.concat()));
        } else {
            is_blocked(&answer, "argument_denied");
            for piece in ["/e", "tc/pa", "sswd", "/srv/docs/.."] {
                assert!(
                    !answer.text().contains(piece),
                    "{piece} in {}",
                    answer.text()
                );
            }
        }
    }
}

#[tokio::test]
async fn arguments_that_are_an_object_are_judged_like_text_and_arrive_as_text() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    for (amount, passes) in [(50, true), (5000, false)] {
        let object = json!({"amount": amount});
        for form in [object.clone(), json!(object.to_string())] {
            for answer in both_ways(&upstream, &proxy, &call("send_payment", Some(form))).await {
                if passes {
                    assert_eq!(arguments(&answer), Some(object.to_string()));
                } else {
                    is_blocked(&answer, "argument_denied");
                }
            }
        }
    }
}

#[tokio::test]
async fn no_arguments_in_any_form_are_the_empty_object() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    for none in [Some(json!("")), None, Some(Value::Null), Some(json!("{}"))] {
        for answer in both_ways(&upstream, &proxy, &call("list_regions", none.clone())).await {
            assert_eq!(
                arguments(&answer).as_deref(),
                Some("{}"),
                "{none:?}: {}",
                answer.text()
            );
        }
        for answer in both_ways(&upstream, &proxy, &call("send_payment", none.clone())).await {
            is_blocked(&answer, "schema_invalid");
        }
    }
}

#[tokio::test]
async fn a_call_that_the_output_limit_cut_is_not_usable() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    let half = call("send_payment", Some(json!("{\"to\":\"acct-1\",\"amo")));
    for finish in ["length", "tool_calls"] {
        let chunk = reply::chunk(json!({"tool_calls": [half]}), None);
        let end = reply::chunk(json!({}), Some(finish));
        upstream.replies(Reply::stream().data(&chunk).data(&end).done());
        let streamed = proxy.k1().stream_with("hi", offer()).await.answer().await;
        let mut body = reply::completion("", reply::usage(10, 5));
        body["choices"][0]["message"] =
            json!({"role": "assistant", "content": null, "tool_calls": [half]});
        body["choices"][0]["finish_reason"] = json!(finish);
        upstream.replies(Reply::json(200, &body));
        for answer in [streamed, proxy.k1().chat_with("hi", offer()).await] {
            is_blocked(&answer, "malformed_output");
            assert!(!answer.text().contains("acct-1"));
        }
    }
}

/// A pattern and a nesting that bring other engines to a stand.
#[tokio::test]
async fn hostile_arguments_are_decided_at_once() {
    let upstream = Upstream::start().await;
    let proxy = proxy(&upstream).await;
    let long = "a".repeat(50_000);
    let deep = format!(
        "{{\"text\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    for (text, code) in [
        (
            json!({"text": format!("{long}b")}).to_string(),
            "argument_denied",
        ),
        (deep, "malformed_output"),
    ] {
        for answer in both_ways(&upstream, &proxy, &call("note", Some(json!(text)))).await {
            is_blocked(&answer, code);
        }
    }
    let fits = json!({"text": long}).to_string();
    for answer in both_ways(&upstream, &proxy, &call("note", Some(json!(fits)))).await {
        assert_eq!(arguments(&answer).as_ref(), Some(&fits));
    }
}

#[tokio::test]
async fn what_cannot_be_decided_is_withheld_and_recorded_as_such() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let options: Vec<String> = (0..2_000).map(|n| format!("option {n}")).collect();
    let schema = json!({"additionalProperties": {"items": {"enum": options}}});
    let tools = json!({"tools": [{"type": "function", "function": {"name": "note", "parameters": schema}}]});
    for (items, passes) in [(1, true), (50_000, false)] {
        let text = json!({"a": vec!["option 7"; items]}).to_string();
        let chunk = reply::chunk(
            json!({"tool_calls": [call("note", Some(json!(text)))]}),
            None,
        );
        let end = reply::chunk(json!({}), Some("tool_calls"));
        upstream.replies(Reply::stream().data(&chunk).data(&end).done());
        let answer = proxy
            .k1()
            .stream_with("hi", tools.clone())
            .await
            .answer()
            .await;
        if passes {
            assert_eq!(arguments(&answer), Some(text));
        } else {
            is_blocked(&answer, "guard_unavailable");
        }
    }
    let judged = proxy.records("call_judged", 2).await;
    assert_eq!(
        (&judged[1]["blocked"], &judged[1]["delivered"]),
        (&json!("guard_unavailable"), &json!(false))
    );
}

#[tokio::test]
async fn an_observed_rule_lets_the_call_through_and_the_record_tells_what_it_would_have_done() {
    let upstream = Upstream::start().await;
    let contract = r#"
[tools.send_payment]
arguments = [{ at = "/amount", max = 100, mode = "observe" }, { at = "/to", allow = ["acct-1"] }]
"#;
    let proxy = TestProxy::start(Setup::to(&upstream).tables(contract)).await;
    for (to, passes) in [("acct-1", true), ("acct-2", false)] {
        let text = json!({"amount": 5000, "to": to}).to_string();
        for answer in both_ways(&upstream, &proxy, &call("send_payment", Some(json!(text)))).await {
            if passes {
                assert_eq!(arguments(&answer).as_ref(), Some(&text));
            } else {
                is_blocked(&answer, "argument_denied");
            }
        }
    }
    for (at, judged) in proxy.records("call_judged", 4).await.iter().enumerate() {
        let results = judged["results"].as_array().unwrap();
        let told = |outcome: &str, rule: &str| {
            results.iter().any(|one| {
                one["outcome"] == outcome && one["rule"] == rule && one["code"] == "argument_denied"
            })
        };
        assert!(told("warn", "contract.arguments[0].max"), "{judged}");
        assert_eq!(
            told("blocked", "contract.arguments[1].allow"),
            at >= 2,
            "{judged}"
        );
        assert_eq!(judged["delivered"], at < 2);
    }
}
