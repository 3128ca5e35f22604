//! What an auditor finds: an entry for every request and every call, whatever became of it.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Answer, Client, Reply, Setup, TestProxy, Upstream, proxy::NOON_MS, reply};

fn offer() -> Value {
    let function = json!({"name": "get_weather", "parameters": {"type": "object"}});
    json!({"tools": [{"type": "function", "function": function}]})
}

fn calling(names: &[&str]) -> Reply {
    let call = |name: &&str| {
        json!({"id": format!("id_{name}"), "type": "function",
        "function": {"name": name, "arguments": "{\"city\" : \"Oslo\"}"}})
    };
    let mut body = reply::completion("", reply::usage(10, 5));
    body["choices"][0]["message"]["tool_calls"] = names.iter().map(call).collect();
    body["choices"][0]["finish_reason"] = json!("tool_calls");
    Reply::json(200, &body)
}

#[tokio::test]
async fn every_kind_of_refusal_leaves_one_entry_that_tells_who_what_and_why() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream)
        .server("max_request_body = \"1KiB\"")
        .k1("[limits]\nrequests_per_minute = 2\n[budget]\ntotal_tokens = 1000\n[tools]\nallow = [\"get_weather\"]");
    let proxy = TestProxy::start(setup).await;
    let k1 = proxy.k1();
    let small = |members: Value| k1.chat_request("hi", members).answer();
    let too_much = json!({"max_tokens": 16, "messages": [{"role": "user", "content": "x".repeat(900)}], "n": 4});
    let mut told = vec![
        proxy.with_key("tg-unknown-key-123456").chat("hi").await,
        small(json!({"model": "m-forbidden"})).await,
        small(json!({"model": "gpt-9"})).await,
        small(json!({"messages": null})).await,
        k1.chat(&"x".repeat(2_000)).await,
        small(json!({"tools": [{"type": "function", "function": {"name": "delete_account"}}]}))
            .await,
        small(too_much).await,
    ];
    for _ in 0..2 {
        assert_eq!(small(json!({"max_tokens": 16})).await.status, 200);
    }
    told.push(small(json!({"max_tokens": 16})).await);
    let entries = proxy.records("request_refused", told.len()).await;
    assert_eq!(entries.len(), told.len(), "one each");
    let wanted = [
        ("invalid_api_key", 401, None),
        ("model_denied", 403, Some("m-forbidden")),
        ("model_not_found", 404, Some("gpt-9")),
        ("invalid_request", 400, None),
        ("input_too_large", 413, None),
        ("tool_not_allowlisted", 403, Some("m-small")),
        ("insufficient_quota", 402, Some("m-small")),
        ("rate_limit_exceeded", 429, Some("m-small")),
    ];
    for ((answer, entry), (code, status, model)) in told.iter().zip(&entries).zip(wanted) {
        assert_eq!(answer.refusal(), (status, code.to_owned()));
        assert_eq!(
            (&entry["code"], &entry["status"]),
            (&json!(code), &json!(status))
        );
        assert_eq!(entry["requested_model"], json!(model), "{code}");
        assert_eq!(entry["at"], NOON_MS, "{code}");
        assert_eq!(
            entry["request_id"].as_str(),
            answer.header("x-request-id"),
            "{code}"
        );
        let known = code != "invalid_api_key";
        let who = if known {
            (json!("k1"), json!("acme"))
        } else {
            (Value::Null, Value::Null)
        };
        assert_eq!(
            (&entry["key"], &entry["tenant"]),
            (&who.0, &who.1),
            "{code}"
        );
    }
    for secret in ["tg-k1", "tg-unknown"] {
        assert!(!json!(entries).to_string().contains(secret));
    }
}

#[tokio::test]
async fn every_way_to_fail_leaves_an_entry_with_its_cost_and_its_request() {
    let upstream = Upstream::start().await;
    let limits = "first_byte_timeout = \"100ms\"";
    let proxy = TestProxy::start(Setup::to(&upstream).provider(limits)).await;
    let begun = || Reply::stream().data(&reply::chunk(json!({"content": "some words"}), None));
    let body = json!({"model": "m-small", "messages": [{"role": "user", "content": "hi"}], "stream": true}).to_string();
    let ask = || proxy.k1().post("/v1/chat/completions", body.clone());
    let cases = [
        (Reply::silence(), "upstream_failed", 504),
        (
            Reply::error(500, "server_error", "No."),
            "upstream_error",
            500,
        ),
        (begun().reset(), "upstream_failed", 200),
        (begun().hang(), "client_gone", 200),
    ];
    for (count, (reply, outcome, status)) in cases.into_iter().enumerate() {
        upstream.replies_once(reply);
        let mut open = ask().send().await;
        assert_eq!(open.status, status, "{outcome}");
        let id = open.head.header("x-request-id").unwrap().to_owned();
        if outcome == "client_gone" {
            open.until("some words").await;
            drop(open);
        } else {
            open.answer().await;
        }
        let started = proxy
            .records("request_started", count + 1)
            .await
            .pop()
            .unwrap();
        let settled = proxy.last_settled(count + 1).await;
        let digest: String = Sha256::digest(&body)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(started["body_sha256"], digest);
        assert_eq!(
            (&started["request_id"], &settled["request_id"]),
            (&json!(id), &json!(id))
        );
        assert_eq!(
            (&settled["outcome"], &settled["status"]),
            (&json!(outcome), &json!(status))
        );
        assert!(settled["duration_ms"].is_i64(), "{settled}");
        let something_came = status == 200;
        let estimated = settled["estimated"] == true && settled["output_tokens"].as_u64() > Some(0);
        assert_eq!(estimated, something_came, "{settled}");
        assert_eq!(
            settled["cost_nano_usd"].as_u64() > Some(0),
            something_came,
            "{settled}"
        );
    }
}

#[tokio::test]
async fn an_answer_with_a_blocked_call_lists_every_call_under_the_id_of_its_header() {
    let upstream = Upstream::start().await;
    upstream.replies(calling(&["get_weather", "delete_account"]));
    let proxy = TestProxy::to(&upstream).await;
    let answer = proxy.k1().chat_with("hi", offer()).await;
    assert_eq!(answer.status, 200);
    let id = json!(answer.header("x-request-id").unwrap());
    let calls = proxy.records("call_judged", 2).await;
    // Of {"city":"Oslo"}, however it was spaced.
    let digest: String = Sha256::digest("{\"city\":\"Oslo\"}")
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    for (call, (tool, blocked, rule)) in calls.iter().zip([
        ("get_weather", Value::Null, None),
        (
            "delete_account",
            json!("unknown_tool"),
            Some("unknown_tool"),
        ),
    ]) {
        assert_eq!((&call["tool"], &call["blocked"]), (&json!(tool), &blocked));
        assert_eq!(
            (&call["request_id"], &call["arguments_sha256"]),
            (&id, &json!(digest))
        );
        assert_eq!(
            (&call["key"], &call["policy"]),
            (&json!("k1"), &json!("k1@1"))
        );
        assert_eq!(call["delivered"], false, "the whole turn is withheld");
        let results = call["results"].as_array().unwrap();
        let no = results.iter().find(|result| result["outcome"] == "blocked");
        assert_eq!(no.map(|result| result["rule"].as_str().unwrap()), rule);
        assert!(results.iter().any(|result| result["outcome"] == "passed"));
    }
    let settled = proxy.last_settled(1).await;
    assert_eq!(
        (&settled["request_id"], &settled["tool_calls"]),
        (&id, &json!(2))
    );
}

async fn turn(client: &Client) -> Answer {
    client.chat_with("hi", offer()).await
}

#[tokio::test]
async fn what_was_allowed_is_recorded_like_what_was_not() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for _ in 0..5 {
        for reply in [calling(&["get_weather"]), calling(&["get_weather"])] {
            upstream.replies(reply);
            assert_eq!(
                turn(&proxy.k1()).await.finish_reason().as_deref(),
                Some("tool_calls")
            );
        }
        upstream.says("No call.", reply::usage(10, 5));
        assert_eq!(turn(&proxy.k1()).await.content(), "No call.");
    }
    upstream.replies(calling(&["delete_account"]));
    turn(&proxy.k1()).await;
    let settled = proxy.settled(16).await;
    assert_eq!(settled.len(), 16);
    let calls: Vec<&Value> = settled.iter().map(|entry| &entry["tool_calls"]).collect();
    assert_eq!(
        calls.iter().filter(|count| **count == &json!(1)).count(),
        11
    );
    let judged = proxy.records("call_judged", 11).await;
    let members =
        |entry: &Value| -> Vec<String> { entry.as_object().unwrap().keys().cloned().collect() };
    let (denied, allowed) = judged.split_last().unwrap();
    for entry in allowed {
        assert_eq!(
            (&entry["tool"], &entry["delivered"]),
            (&json!("get_weather"), &json!(true))
        );
        let mut detail = members(entry);
        detail.push("blocked".to_owned());
        detail.sort();
        let mut wanted = members(denied);
        wanted.sort();
        assert_eq!(detail, wanted);
    }
}
