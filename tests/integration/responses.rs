//! The Responses API: calls judged in all their copies, answers that belong to the key that got
//! them, and budgets that hold although earlier turns are not in the request.

use serde_json::{Value, json};

use crate::support::{Answer, Gate, Reply, Setup, TestProxy, Upstream, client::Open};

const PATH: &str = "/v1/responses";

fn request(members: Value) -> String {
    let tool = json!({"type": "function", "name": "read_file", "parameters": {"type": "object"}});
    let mut body = json!({"model": "m-small", "input": "hi", "tools": [tool]});
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string()
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn call(name: &str) -> Value {
    json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name,
        "arguments": "{\"path\":\"secret\"}", "status": "completed"})
}

fn response(id: &str, status: &str, output: Value) -> Value {
    json!({"id": id, "object": "response", "status": status, "model": "m-small", "output": output,
        "error": null,
        "tools": [{"type": "function", "name": "read_file", "parameters": {"type": "object"}}],
        "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
            "input_tokens_details": {"cached_tokens": 0}}})
}

fn event(reply: Reply, event: &Value) -> Reply {
    let kind = event["type"].as_str().unwrap();
    reply.piece(format!("event: {kind}\ndata: {event}\n\n"))
}

/// The items of an answer as a stream, each with its first and last event alone.
fn streamed(items: &[Value]) -> Reply {
    let begun = json!({"type": "response.created", "sequence_number": 0,
        "response": response("resp_1", "in_progress", json!([]))});
    let mut reply = event(Reply::stream(), &begun);
    let mut number = 1;
    for (index, item) in items.iter().enumerate() {
        for kind in ["response.output_item.added", "response.output_item.done"] {
            let told = json!({"type": kind, "sequence_number": number, "output_index": index, "item": item});
            reply = event(reply, &told);
            number += 1;
        }
    }
    let end = json!({"type": "response.completed", "sequence_number": number,
        "response": response("resp_1", "completed", json!(items))});
    event(reply, &end)
}

fn events(answer: &Answer) -> Vec<Value> {
    assert!(answer.is_stream(), "{}", answer.text());
    let lines = answer.text().lines();
    let data = lines.filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

async fn asks(proxy: &TestProxy, members: Value) -> Answer {
    proxy.k1().post(PATH, request(members)).answer().await
}

async fn opens(proxy: &TestProxy, members: Value) -> Open {
    proxy.k1().post(PATH, request(members)).send().await
}

#[tokio::test]
async fn an_answer_passes_unchanged_and_is_charged() {
    let upstream = Upstream::start().await;
    let body = response(
        "resp_1",
        "completed",
        json!([message("Hello."), call("read_file")]),
    );
    upstream.replies(Reply::json(200, &body));
    let proxy = TestProxy::to(&upstream).await;
    let answer = asks(&proxy, json!({})).await;
    assert_eq!((answer.status, answer.json()), (200, body));
    assert_eq!(upstream.last_request().path, PATH);
    let record = proxy.last_settled(1).await;
    assert_eq!(
        (&record["input_tokens"], &record["output_tokens"]),
        (&json!(10), &json!(5))
    );
    assert_eq!(record["tool_calls"], 1);
}

#[tokio::test]
async fn a_tool_that_was_not_offered_is_blocked_whole_and_streamed() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let items = [message("Look:"), call("delete_file")];
    upstream.replies(Reply::json(
        200,
        &response("resp_1", "completed", json!(items)),
    ));
    let whole = asks(&proxy, json!({})).await;
    upstream.replies(streamed(&items));
    let stream = asks(&proxy, json!({"stream": true})).await;
    for answer in [&whole, &stream] {
        assert_eq!(answer.status, 200);
        for hidden in ["call_1", "fc_1", "secret", "\"delete_file\"}"] {
            assert!(!answer.text().contains(hidden), "{hidden}");
        }
        assert!(answer.text().contains("Blocked by Tallygate"));
        assert!(answer.text().contains("unknown_tool"));
    }
    let events = events(&stream);
    let end = events.last().unwrap();
    assert_eq!(end["type"], "response.completed");
    assert_eq!(end["guard"]["code"], "unknown_tool");
    assert_eq!(
        end["response"]["output"],
        whole_output(&end["response"]["output"], &whole)
    );
    let records = proxy.records("call_judged", 2).await;
    assert_eq!(records[0]["blocked"], "unknown_tool");
}

/// The output of `whole`, with the ids of our own messages in `stream`: each answer has its own.
fn whole_output(stream: &Value, whole: &Answer) -> Value {
    let mut output = whole.json()["output"].clone();
    output[1]["id"] = stream[1]["id"].clone();
    output[1]["content"][0]["text"] = stream[1]["content"][0]["text"].clone();
    output
}

#[tokio::test]
async fn an_answer_in_the_other_shape_is_judged_and_told_as_it_was_asked_for() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for items in [
        [message("Look:"), call("read_file")],
        [message("Look:"), call("delete_file")],
    ] {
        let body = response("resp_1", "completed", json!(items));
        upstream.replies(Reply::json(200, &body));
        let stream = asks(&proxy, json!({"stream": true})).await;
        let events = events(&stream);
        let end = &events.last().unwrap()["response"];
        upstream.replies(streamed(&items));
        let whole = asks(&proxy, json!({})).await.json();
        assert_eq!(end["output"][0], whole["output"][0]);
        assert_eq!(end["output"][1]["type"], whole["output"][1]["type"]);
        assert_eq!(
            stream.text().contains("secret"),
            items[1]["name"] == "read_file"
        );
        assert_eq!(
            whole.to_string().contains("secret"),
            items[1]["name"] == "read_file"
        );
    }
}

#[tokio::test]
async fn text_leaves_when_it_arrives_also_behind_a_call() {
    let upstream = Upstream::start().await;
    let gates = [Gate::new(), Gate::new()];
    let added = json!({"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": call("read_file")});
    let message = json!({"type": "response.output_item.added", "sequence_number": 2, "output_index": 1,
        "item": {"type": "message", "id": "msg_1", "role": "assistant", "content": []}});
    let delta = |number: u64, text: &str| json!({"type": "response.output_text.delta", "sequence_number": number, "output_index": 1, "content_index": 0, "item_id": "msg_1", "delta": text});
    let mut reply = event(
        Reply::stream(),
        &json!({"type": "response.created", "sequence_number": 0, "response": response("resp_1", "in_progress", json!([]))}),
    );
    reply = event(event(reply, &added), &message);
    reply = event(reply, &delta(3, "first")).wait(&gates[0]);
    reply = event(reply, &delta(4, "second")).wait(&gates[1]);
    upstream.replies(reply.cut());
    let proxy = TestProxy::to(&upstream).await;
    let mut open = opens(&proxy, json!({"stream": true})).await;
    open.until("first").await;
    gates[0].open();
    open.until("second").await;
    gates[1].open();
    let answer = open.answer().await;
    let events = events(&answer);
    let kinds: Vec<&str> = events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    assert_eq!(kinds[kinds.len() - 2..], ["error", "response.failed"]);
    assert!(!answer.text().contains("call_1"));
}

#[tokio::test]
async fn where_the_request_forces_a_form_a_blocked_call_is_a_403() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for (members, reply) in [
        (
            json!({"tool_choice": "required"}),
            Reply::json(
                200,
                &response("resp_1", "completed", json!([call("delete_file")])),
            ),
        ),
        (
            json!({"tool_choice": "required", "stream": true}),
            streamed(&[call("delete_file")]),
        ),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}, "stream": true}),
            streamed(&[call("delete_file")]),
        ),
    ] {
        upstream.replies(reply);
        let answer = asks(&proxy, members).await;
        assert_eq!(answer.refusal(), (403, "tool_call_blocked".to_owned()));
    }
}

#[tokio::test]
async fn the_output_cap_goes_upstream_in_the_member_of_this_api() {
    let upstream = Upstream::start().await;
    upstream.replies(Reply::json(
        200,
        &response("resp_1", "completed", json!([message("Hi")])),
    ));
    let setup =
        Setup::to(&upstream).k1("[budget]\nmax_output_tokens = 100\ndaily_tokens = 100000\n");
    let proxy = TestProxy::start(setup).await;
    let answer = asks(&proxy, json!({"max_output_tokens": 5000})).await;
    assert_eq!(answer.header("x-tallygate-output-cap"), Some("100"));
    assert_eq!(upstream.last_request().json()["max_output_tokens"], 100);
    asks(&proxy, json!({"stream": true})).await;
    let sent = upstream.last_request().json();
    assert_eq!(sent["max_output_tokens"], 100);
    assert!(sent.get("stream_options").is_none());
}

#[tokio::test]
async fn what_is_not_served_is_refused_before_anything_is_sent() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for (members, wanted) in [
        (json!({"background": true}), "invalid_request"),
        (json!({"conversation": "conv_1"}), "invalid_request"),
        (json!({"prompt": {"id": "pmpt_1"}}), "hosted_tool_denied"),
        (
            json!({"tools": [{"type": "web_search"}]}),
            "hosted_tool_denied",
        ),
        (json!({"input": []}), "invalid_request"),
        (json!({"previous_response_id": 5}), "invalid_request"),
        (json!({"messages": []}), "invalid_request"),
        (
            json!({"previous_response_id": "resp_never"}),
            "response_not_found",
        ),
        (
            json!({"input": [{"type": "item_reference", "id": "msg_never"}]}),
            "response_not_found",
        ),
        (
            json!({"input": [{"id": "msg_never"}]}),
            "response_not_found",
        ),
        (
            json!({"input": [{"type": "mcp_approval_response", "approval_request_id": "mcpr_never", "approve": true}]}),
            "response_not_found",
        ),
    ] {
        assert_eq!(
            asks(&proxy, members.clone()).await.code(),
            wanted,
            "{members}"
        );
    }
    for path in [
        "/v1/responses/resp_1/cancel",
        "/v1/responses/resp_1/input_items",
        "/v1/responses/compact/x",
        "/v1/responses/a%2Fb",
    ] {
        assert_eq!(
            proxy.k1().get(path).await.refusal(),
            (404, "endpoint_not_allowed".to_owned()),
            "{path}"
        );
    }
    let wrong = proxy.k1().post("/v1/responses/resp_1", "").answer().await;
    assert_eq!(wrong.status, 405);
    assert_eq!(upstream.hits(), 0);
}

#[tokio::test]
async fn an_answer_belongs_to_the_key_that_got_it_also_after_a_restart() {
    let upstream = Upstream::start().await;
    let kept = response("resp_1", "completed", json!([message("Hello.")]));
    upstream.replies(Reply::json(200, &kept));
    let proxy = TestProxy::to(&upstream).await;
    assert_eq!(asks(&proxy, json!({})).await.status, 200);
    let proxy = proxy.restart().await;
    for members in [
        json!({"previous_response_id": "resp_1"}),
        json!({"input": [{"type": "item_reference", "id": "msg_1"}]}),
    ] {
        assert_eq!(asks(&proxy, members.clone()).await.status, 200, "{members}");
        let hits = upstream.hits();
        let other = proxy
            .k2()
            .post(PATH, request(members.clone()))
            .answer()
            .await;
        assert_eq!(other.refusal(), (404, "response_not_found".to_owned()));
        assert_eq!(upstream.hits(), hits, "{members}");
    }
    let hits = upstream.hits();
    for method in ["GET", "DELETE"] {
        let other = proxy
            .k2()
            .request(method, "/v1/responses/resp_1")
            .answer()
            .await;
        let never = proxy
            .k2()
            .request(method, "/v1/responses/resp_2")
            .answer()
            .await;
        assert_eq!(other.refusal(), (404, "response_not_found".to_owned()));
        assert_eq!(never.refusal(), other.refusal());
        assert_eq!(
            never.text().replace("resp_2", "resp_1").len(),
            other.text().len()
        );
    }
    assert_eq!(upstream.hits(), hits);
    assert_eq!(proxy.k1().get("/v1/responses/resp_1").await.json(), kept);
    assert_eq!(upstream.last_request().path, "/v1/responses/resp_1");
}

#[tokio::test]
async fn a_conversation_with_a_blocked_call_can_be_gone_on_with() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let kept = response("resp_1", "completed", json!([call("delete_file")]));
    upstream.replies(Reply::json(200, &kept));
    let notice = asks(&proxy, json!({})).await.json()["output"][0]["id"].clone();
    let input = |input: Value| json!({"previous_response_id": "resp_1", "input": input});
    let result = json!({"type": "function_call_output", "call_id": "call_1",
        "output": "Blocked by Tallygate: the call was not run."});
    let said = json!({"role": "user", "content": "go on"});
    for (given, sent) in [
        (json!("go on"), json!([result, said])),
        (json!([said]), json!([result, said])),
        (json!([]), json!([result])),
    ] {
        assert_eq!(asks(&proxy, input(given.clone())).await.status, 200);
        assert_eq!(upstream.last_request().json()["input"], sent, "{given}");
    }
    let refers = json!([{"type": "item_reference", "id": notice}, said]);
    assert_eq!(asks(&proxy, json!({"input": refers})).await.status, 200);
    let sent = upstream.last_request().json()["input"].clone();
    assert_eq!((&sent[0]["role"], &sent[1]), (&json!("assistant"), &said));
    let other = proxy
        .k2()
        .post(PATH, request(json!({"input": refers})))
        .answer()
        .await;
    assert_eq!(other.status, 404);
}

#[tokio::test]
async fn an_answer_is_judged_again_when_it_is_read_again() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let kept = response(
        "resp_1",
        "completed",
        json!([call("read_file"), call("delete_file")]),
    );
    upstream.replies(Reply::json(200, &kept));
    asks(&proxy, json!({})).await;
    let again = proxy.k1().get("/v1/responses/resp_1").await;
    assert_eq!(again.status, 200);
    assert!(again.text().contains("Blocked by Tallygate") && !again.text().contains("secret"));
    let streams = proxy.k1().get("/v1/responses/resp_1?stream=true").await;
    assert_eq!(streams.refusal(), (400, "invalid_request".to_owned()));
    upstream.replies(Reply::json(
        200,
        &json!({"id": "resp_1", "object": "response", "deleted": true}),
    ));
    let deleted = proxy
        .k1()
        .request("DELETE", "/v1/responses/resp_1")
        .answer()
        .await;
    assert_eq!(deleted.json()["deleted"], true);
    assert_eq!(upstream.last_request().method, "DELETE");
}

#[tokio::test]
async fn an_id_that_two_keys_were_given_is_nobodys() {
    let upstream = Upstream::start().await;
    upstream.replies(Reply::json(
        200,
        &response("resp_1", "completed", json!([message("Hi")])),
    ));
    let proxy = TestProxy::to(&upstream).await;
    asks(&proxy, json!({})).await;
    proxy.k2().post(PATH, request(json!({}))).answer().await;
    for client in [proxy.k1(), proxy.k2()] {
        assert_eq!(client.get("/v1/responses/resp_1").await.status, 404);
    }
}

#[tokio::test]
async fn earlier_turns_count_in_the_reservation_although_they_are_not_in_the_request() {
    let upstream = Upstream::start().await;
    let mut long = response("resp_1", "completed", json!([message("Hi")]));
    long["usage"] = json!({"input_tokens": 4000, "output_tokens": 1000});
    upstream.replies(Reply::json(200, &long));
    let setup = Setup::to(&upstream).k1("[budget]\ndaily_tokens = 9000\nmax_output_tokens = 100\n");
    let proxy = TestProxy::start(setup).await;
    assert_eq!(asks(&proxy, json!({})).await.status, 200);
    let refused = asks(&proxy, json!({"previous_response_id": "resp_1"})).await;
    assert_eq!(refused.refusal(), (402, "insufficient_quota".to_owned()));
    assert_eq!(asks(&proxy, json!({})).await.status, 200);
    assert_eq!(upstream.hits(), 2);
}

#[tokio::test]
async fn under_a_budget_what_nobody_can_bound_is_refused() {
    let upstream = Upstream::start().await;
    let mut untold = response("resp_1", "completed", json!([message("Hi")]));
    untold["usage"] = Value::Null;
    upstream.replies(Reply::json(200, &untold));
    let setup = Setup::to(&upstream).k1("[budget]\ndaily_tokens = 90000\n");
    let proxy = TestProxy::start(setup).await;
    assert_eq!(asks(&proxy, json!({})).await.status, 200);
    let file = json!([{"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}]);
    for members in [
        json!({"previous_response_id": "resp_1"}),
        json!({"input": file}),
    ] {
        assert_eq!(
            asks(&proxy, members.clone()).await.refusal(),
            (400, "invalid_request".to_owned()),
            "{members}"
        );
    }
    assert_eq!(upstream.hits(), 1);
}

#[tokio::test]
async fn input_guards_read_the_input_of_this_api() {
    let upstream = Upstream::start().await;
    let setup =
        Setup::to(&upstream).k1("[input]\nmax_chars = 20\nunsupported_patterns = [\"<binary>\"]\n");
    let proxy = TestProxy::start(setup).await;
    let item =
        |text: &str| json!([{"role": "user", "content": [{"type": "input_text", "text": text}]}]);
    for (members, code) in [
        (json!({"input": "a".repeat(21)}), "context_length_exceeded"),
        (
            json!({"input": item(&"a".repeat(21))}),
            "context_length_exceeded",
        ),
        (
            json!({"instructions": "a".repeat(21)}),
            "context_length_exceeded",
        ),
        (json!({"input": item("<binary>")}), "input_unsupported"),
        (
            json!({"input": [{"type": "function_call_output", "call_id": "c", "output": "<binary>"}]}),
            "input_unsupported",
        ),
    ] {
        assert_eq!(
            asks(&proxy, members.clone()).await.code(),
            code,
            "{members}"
        );
    }
    assert_eq!(upstream.hits(), 0);
}

#[tokio::test]
async fn a_key_can_be_kept_to_other_endpoints() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1_key("endpoints = [\"chat\"]");
    let proxy = TestProxy::start(setup).await;
    assert_eq!(
        asks(&proxy, json!({})).await.refusal(),
        (403, "endpoint_not_allowed".to_owned())
    );
    let stored = proxy.k1().get("/v1/responses/resp_1").await;
    assert_eq!(stored.refusal(), (403, "endpoint_not_allowed".to_owned()));
}

#[tokio::test]
async fn errors_of_the_provider_keep_their_status_and_a_dead_stream_ends_properly() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    upstream.replies(Reply::error(400, "model_not_found", "no such model"));
    assert_eq!(
        asks(&proxy, json!({"stream": true})).await.refusal(),
        (400, "model_not_found".to_owned())
    );
    let first = json!({"type": "error", "error": {"message": "too many", "code": "1302"}});
    upstream.replies(event(Reply::stream(), &first));
    let answer = asks(&proxy, json!({"stream": true})).await;
    assert_eq!(
        (answer.status, answer.error().message.as_str()),
        (502, "too many")
    );
    let records = proxy.settled(2).await;
    assert!(records.iter().all(|record| record["cost_nano_usd"] == 0));
}

#[tokio::test]
async fn events_that_say_nothing_do_not_end_the_stream() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for nothing in ["data: \"\"\n\n", "data: null\n\n", "event: ping\ndata:\n\n"] {
        let first = Reply::stream().piece(nothing);
        upstream.replies(first.followed_by(streamed(&[message("Hello.")])));
        let answer = asks(&proxy, json!({"stream": true})).await;
        let events = events(&answer);
        assert_eq!(events[0]["type"], "response.created", "{nothing:?}");
        assert_eq!(
            events.last().unwrap()["type"],
            "response.completed",
            "{nothing:?}"
        );
    }
}
