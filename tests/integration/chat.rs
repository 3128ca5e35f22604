//! Chat completions that are answered whole: what passes, what is counted, what is written down.

use serde_json::{Value, json};

use crate::support::{Reply, Setup, TestProxy, Upstream, reply};

#[tokio::test]
async fn an_answer_passes_and_is_settled_to_its_real_cost() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let answer = proxy.k1().chat("hi").await;
    assert_eq!(
        (answer.status, answer.content().as_str()),
        (200, "Hello there.")
    );
    let record = proxy.last_settled(1).await;
    assert_eq!(record["key"], "k1");
    assert_eq!(record["tenant"], "acme");
    assert_eq!(
        (&record["input_tokens"], &record["output_tokens"]),
        (&json!(10), &json!(5))
    );
    assert_eq!(record["cost_nano_usd"], 10 * 1_000 + 5 * 4_000);
    assert_eq!(
        (&record["outcome"], &record["estimated"]),
        (&json!("completed"), &json!(false))
    );
}

#[tokio::test]
async fn every_answer_carries_the_ids_that_join_it_to_the_ledger() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let served = proxy.k1().chat("hi").await;
    let refused = proxy
        .k1()
        .chat_with("hi", json!({"model": "m-forbidden"}))
        .await;
    let settled = proxy.last_settled(1).await;
    let refusal = proxy.records("request_refused", 1).await.remove(0);
    for (answer, record) in [(&served, &settled), (&refused, &refusal)] {
        assert_eq!(answer.header("x-request-id"), record["request_id"].as_str());
        assert!(answer.header("x-tallygate-decision").is_some());
    }
    assert_eq!(
        refused.json()["guard"]["decision"],
        refused.header("x-tallygate-decision").unwrap()
    );
}

#[tokio::test]
async fn a_request_that_no_rule_changes_is_forwarded_byte_for_byte() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let body = "{ \"x_vendor\":1.10,\n\"messages\" : [{\"content\":\"\\u0068i \\/\",\"role\":\"user\"}],\"reasoning_effort\":\"low\", \"model\":\"m-small\"}";
    let answer = proxy.k3().post("/v1/chat/completions", body).answer().await;
    assert_eq!(answer.status, 200);
    assert_eq!(upstream.last_request().body, body);
}

#[tokio::test]
async fn a_member_that_must_be_added_leaves_the_rest_as_it_was() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(Setup::to(&upstream).k1("[budget]\nmax_output_tokens = 77")).await;
    let body = "{\"zeta\": 1.10, \"model\":\"m-small\", \"messages\":[{\"role\":\"user\",\"content\":\"\\u0068i\"}]}";
    let mut sent = Vec::new();
    for _ in 0..2 {
        proxy.k1().post("/v1/chat/completions", body).answer().await;
        sent.push(upstream.last_request());
    }
    assert_eq!(
        sent[0].body, sent[1].body,
        "the provider's prompt cache needs equal prefixes"
    );
    let text = String::from_utf8(sent[0].body.to_vec()).unwrap();
    for spelling in [
        "\"zeta\": 1.10",
        "\"model\":\"m-small\"",
        "\"content\":\"\\u0068i\"",
    ] {
        assert!(text.contains(spelling), "{spelling} in {text}");
    }
    let cap = sent[0].json();
    assert_eq!(cap["max_completion_tokens"], 77);
}

#[tokio::test]
async fn members_of_an_answer_that_nobody_knows_reach_the_client() {
    let upstream = Upstream::start().await;
    let mut body = reply::completion("Hi.", reply::usage(1, 1));
    body["choices"][0]["message"]["reasoning_content"] = json!("thinking");
    body["x_vendor"] = json!({"a": [1.10, null]});
    body["service_tier"] = json!("default");
    upstream.replies(Reply::json(200, &body));
    let proxy = TestProxy::to(&upstream).await;
    assert_eq!(proxy.k1().chat("hi").await.text(), body.to_string());
}

#[tokio::test]
async fn cached_prompt_tokens_are_paid_once_at_their_own_price() {
    let mut usage = reply::usage(20_000, 1_000);
    usage["prompt_tokens_details"] = json!({"cached_tokens": 16_000});
    assert_eq!(cost_of(usage).await, 9_600_000);
}

#[tokio::test]
async fn audio_tokens_are_paid_once_at_their_own_price() {
    let mut usage = reply::usage(1_000, 200);
    usage["prompt_tokens_details"] = json!({"audio_tokens": 600});
    usage["completion_tokens_details"] = json!({"audio_tokens": 150});
    assert_eq!(cost_of(usage).await, 9_600_000);
}

/// In nano-dollars, for one answer of m-small.
async fn cost_of(usage: Value) -> Value {
    let upstream = Upstream::start().await;
    upstream.says("Hi.", usage);
    let proxy = TestProxy::to(&upstream).await;
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
    proxy.last_settled(1).await["cost_nano_usd"].clone()
}

#[tokio::test]
async fn an_answer_without_usage_is_estimated_from_its_text_and_calls() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let mut body = reply::completion(&"word ".repeat(400), Value::Null);
    let arguments = json!({"city": "Oslo ".repeat(400)}).to_string();
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}});
    body["choices"][0]["message"]["tool_calls"] = json!([call]);
    let tools = json!([{"type": "function", "function": {"name": "get_weather"}}]);
    for (count, missing) in [false, true].into_iter().enumerate() {
        if missing {
            body.as_object_mut().unwrap().remove("usage");
        }
        upstream.replies_once(Reply::json(200, &body));
        let answer = proxy.k1().chat_with("hi", json!({"tools": tools})).await;
        assert_eq!(answer.finish_reason().as_deref(), Some("stop"));
        let record = proxy.last_settled(count + 1).await;
        assert_eq!(record["estimated"], true);
        let output = record["output_tokens"].as_u64().unwrap();
        assert!(
            (1_000..=4_000).contains(&output),
            "{output} tokens for 2000 characters of text and 2000 of a call"
        );
        assert!(record["input_tokens"].as_u64().unwrap() > 0);
        assert!(record["cost_nano_usd"].as_u64().unwrap() > 0);
    }
}

#[tokio::test]
async fn an_alias_is_charged_as_the_model_it_resolves_to() {
    let upstream = Upstream::start().await;
    let alias = "[models.fast]\nroutes = [\"upstream/m-small\"]";
    let proxy = TestProxy::start(Setup::to(&upstream).tables(alias)).await;
    assert_eq!(
        proxy
            .k1()
            .chat_with("hi", json!({"model": "fast"}))
            .await
            .status,
        200
    );
    assert_eq!(upstream.last_request().json()["model"], "m-small");
    let record = proxy.last_settled(1).await;
    assert_eq!(record["requested_model"], "fast");
    assert_eq!(record["resolved_model"], "m-small");
    assert_eq!(record["answered_model"], "m-small-2031-01-01");
    assert_eq!(record["cost_nano_usd"], 30_000);
}

#[tokio::test]
async fn the_sandbox_answers_without_any_network() {
    let upstream = Upstream::start().await;
    let tables = "[providers.sandbox]\ndialect = \"sandbox\"";
    let proxy = TestProxy::start(Setup::to(&upstream).tables(tables)).await;
    let members = json!({"model": "sandbox-echo"});
    assert_eq!(
        proxy
            .k3()
            .chat_with("Hello, world", members.clone())
            .await
            .content(),
        "Hello, world"
    );
    let streamed = proxy
        .k3()
        .stream_with("Hello, world", members.clone())
        .await
        .answer()
        .await;
    assert_eq!(
        (streamed.content().as_str(), streamed.is_done()),
        ("Hello, world", true)
    );
    let refused = proxy.k1().chat_with("hi", members).await;
    assert!(
        matches!(refused.status, 403 | 404),
        "k1's policy does not allow it"
    );
    assert_eq!(upstream.hits(), 0);
}
