//! Tool calls that a model proposes: allowed ones arrive as they were meant, of blocked ones the
//! client gets the reason and nothing else.

use serde_json::{Value, json};

use crate::support::{Answer, Gate, Reply, Setup, TestProxy, Upstream, packed, reply};

/// The request offers this one only.
fn offer() -> Value {
    let function = json!({"name": "get_weather", "parameters": {"type": "object"}});
    json!({"tools": [{"type": "function", "function": function}]})
}

fn offer_and(members: &Value) -> Value {
    let mut offer = offer();
    for (name, value) in members.as_object().unwrap() {
        offer[name] = value.clone();
    }
    offer
}

fn call(index: u64, name: &str) -> Value {
    let arguments = format!("{{\"of\":\"argument_of_{name}\"}}");
    json!({"index": index, "id": format!("id_of_{name}"), "type": "function",
        "function": {"name": name, "arguments": arguments}})
}

fn choice(index: u64, delta: Value, finish: Option<&str>) -> Value {
    let mut chunk = reply::chunk(delta, finish);
    chunk["choices"][0]["index"] = json!(index);
    chunk
}

/// A stream that says `text`, if any, and proposes these calls.
fn proposing(text: &str, names: &[&str]) -> Reply {
    let mut stream = Reply::stream().data(&reply::chunk(
        json!({"role": "assistant", "content": null}),
        None,
    ));
    if !text.is_empty() {
        stream = stream.data(&reply::chunk(json!({"content": text}), None));
    }
    for (index, name) in (0..).zip(names) {
        stream = stream.data(&reply::chunk(
            json!({"tool_calls": [call(index, name)]}),
            None,
        ));
    }
    stream
        .data(&reply::chunk(json!({}), Some("tool_calls")))
        .data(&reply::usage_chunk(reply::usage(10, 5)))
        .done()
}

fn whole(names: &[&str]) -> Reply {
    let mut body = reply::completion("Let me see.", reply::usage(10, 5));
    let calls: Value = names.iter().map(|name| call(0, name)).collect();
    body["choices"][0]["message"]["tool_calls"] = calls;
    body["choices"][0]["finish_reason"] = json!("tool_calls");
    Reply::json(200, &body)
}

async fn proxy(upstream: &Upstream, tools: &str) -> TestProxy {
    let table = if tools.is_empty() { "" } else { "[tools]\n" };
    TestProxy::start(Setup::to(upstream).k1(&format!("{table}{tools}"))).await
}

async fn streamed(reply: Reply, tools: &str, members: &Value) -> (Answer, TestProxy) {
    let upstream = Upstream::start().await;
    upstream.replies(reply);
    let proxy = proxy(&upstream, tools).await;
    let open = proxy.k1().stream_with("hi", offer_and(members)).await;
    (open.answer().await, proxy)
}

fn calls(answer: &Answer) -> Vec<Value> {
    let chunks = if answer.is_stream() {
        answer.chunks()
    } else {
        vec![answer.json()]
    };
    let of = |chunk: &Value| {
        let choice = &chunk["choices"][0];
        let calls = choice["delta"]["tool_calls"].as_array();
        calls
            .or(choice["message"]["tool_calls"].as_array())
            .cloned()
    };
    chunks.iter().filter_map(of).flatten().collect()
}

fn tells_nothing_of(answer: &Answer, name: &str) {
    let text = answer.text();
    for secret in [format!("id_of_{name}"), format!("argument_of_{name}")] {
        assert!(!text.contains(&secret), "{secret} in {text}");
    }
}

#[tokio::test]
async fn a_blocked_call_is_told_in_the_answer_and_the_stream_ends_well() {
    let (answer, proxy) = streamed(proposing("Hm.", &["delete_account"]), "", &json!({})).await;
    assert_eq!((answer.status, answer.is_done()), (200, true));
    assert!(answer.content().starts_with("Hm.\n\nBlocked by Tallygate:"));
    assert!(
        answer
            .content()
            .contains("\"delete_account\" (unknown_tool)")
    );
    assert_eq!(answer.finish_reason().as_deref(), Some("stop"));
    tells_nothing_of(&answer, "delete_account");
    let decision = answer.header("x-tallygate-decision").unwrap();
    assert!(answer.content().contains(decision));
    let chunks = answer.chunks();
    let guard = chunks.iter().find_map(|chunk| chunk.get("guard")).unwrap();
    assert_eq!(
        (&guard["code"], &guard["decision"]),
        (&json!("unknown_tool"), &json!(decision))
    );
    let record = proxy.records("call_judged", 1).await.remove(0);
    assert_eq!(
        (&record["tool"], &record["blocked"]),
        (&json!("delete_account"), &json!("unknown_tool"))
    );
    assert_eq!(record["request_id"], answer.header("x-request-id").unwrap());
    assert!(!record.to_string().contains("argument_of"));
    let settled = proxy.last_settled(1).await;
    assert_eq!(
        (&settled["tool_calls"], &settled["cost_nano_usd"]),
        (&json!(1), &json!(30_000))
    );
}

#[tokio::test]
async fn an_allowed_call_leaves_only_when_the_stream_has_ended() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let first = Reply::stream()
        .data(&reply::chunk(json!({"content": "Looking."}), None))
        .data(&reply::chunk(
            json!({"tool_calls": [call(0, "get_weather")]}),
            None,
        ))
        .data(&reply::chunk(json!({"content": "Soon."}), None))
        .wait(&gate);
    let end = Reply::stream()
        .data(&reply::chunk(json!({}), Some("tool_calls")))
        .done();
    upstream.replies(first.followed_by(end));
    let proxy = proxy(&upstream, "").await;
    let mut open = proxy.k1().stream_with("hi", offer()).await;
    let before = open.until("Soon.").await;
    assert!(!format!("{before:?}").contains("get_weather"));
    gate.open();
    let answer = open.answer().await;
    assert_eq!(calls(&answer), [call(0, "get_weather")]);
    assert_eq!(answer.finish_reason().as_deref(), Some("tool_calls"));
}

#[tokio::test]
async fn one_blocked_call_withholds_its_siblings_unless_each_is_told_apart() {
    let both = ["get_weather", "delete_account"];
    let (all, _) = streamed(proposing("", &both), "", &json!({})).await;
    assert_eq!(calls(&all), Vec::<Value>::new());
    tells_nothing_of(&all, "get_weather");
    let (each, _) = streamed(
        proposing("", &["delete_account", "get_weather"]),
        "batch = \"each\"",
        &json!({}),
    )
    .await;
    assert_eq!(calls(&each), [call(0, "get_weather")]);
    assert_eq!(each.finish_reason().as_deref(), Some("tool_calls"));
    tells_nothing_of(&each, "delete_account");
    let notice = each.text().find("Blocked by Tallygate").unwrap();
    assert!(notice < each.text().find("get_weather").unwrap());
}

#[tokio::test]
async fn where_words_would_not_do_a_blocked_call_is_a_403() {
    let forced = [
        json!({"tool_choice": "required"}),
        json!({"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}),
        json!({"response_format": {"type": "json_object"}}),
    ];
    let configured = [("on_block = \"error\"", json!({}))];
    let cases = forced
        .map(|members| ("", members))
        .into_iter()
        .chain(configured);
    for (tools, members) in cases {
        let (answer, proxy) = streamed(proposing("", &["delete_account"]), tools, &members).await;
        assert_eq!(
            answer.refusal(),
            (403, "tool_call_blocked".to_owned()),
            "{members}"
        );
        assert!(
            answer
                .error()
                .message
                .contains("\"delete_account\" (unknown_tool)")
        );
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        tells_nothing_of(&answer, "delete_account");
        assert_eq!(proxy.last_settled(1).await["status"], 403);
    }
}

#[tokio::test]
async fn after_the_first_text_a_blocked_call_is_an_error_inside_the_stream() {
    let reply = proposing("{\"half\":", &["delete_account"]);
    let (answer, _) = streamed(reply, "on_block = \"error\"", &json!({})).await;
    assert_eq!((answer.status, answer.is_done()), (200, true));
    assert_eq!(
        answer.stream_error().code.as_deref(),
        Some("tool_call_blocked")
    );
    assert_eq!(answer.finish_reason(), None);
    tells_nothing_of(&answer, "delete_account");
}

#[tokio::test]
async fn whole_answers_are_judged_alike() {
    let cases = [
        ("", 200, vec![], Some("stop")),
        (
            "batch = \"each\"",
            200,
            vec!["get_weather"],
            Some("tool_calls"),
        ),
        ("on_block = \"error\"", 403, vec![], None),
    ];
    for (tools, status, wanted, finish) in cases {
        let upstream = Upstream::start().await;
        upstream.replies(whole(&["get_weather", "delete_account"]));
        let proxy = proxy(&upstream, tools).await;
        let answer = proxy.k1().chat_with("hi", offer()).await;
        assert_eq!(answer.status, status, "{tools}");
        tells_nothing_of(&answer, "delete_account");
        if status == 200 {
            let names: Vec<Value> = calls(&answer)
                .iter()
                .map(|call| call["function"]["name"].clone())
                .collect();
            assert_eq!(names, wanted);
            assert!(answer.content().starts_with("Let me see.\n\nBlocked"));
            assert_eq!(answer.finish_reason().as_deref(), finish);
            assert_eq!(answer.json()["guard"]["code"], "unknown_tool");
        } else {
            assert_eq!(answer.code(), "tool_call_blocked");
        }
        assert_eq!(proxy.records("call_judged", 2).await.len(), 2);
    }
}

#[tokio::test]
async fn every_choice_is_judged_by_itself() {
    let end = |index| choice(index, json!({}), Some("tool_calls"));
    let reply = Reply::stream()
        .data(&choice(
            1,
            json!({"tool_calls": [call(0, "delete_account")]}),
            None,
        ))
        .data(&choice(
            0,
            json!({"tool_calls": [call(0, "get_weather")]}),
            None,
        ))
        .data(&end(0))
        .data(&end(1))
        .done();
    let (answer, _) = streamed(reply, "", &json!({"n": 2})).await;
    let chunks = answer.chunks();
    let of = |index: u64| -> Vec<&Value> {
        let choices = chunks.iter().map(|chunk| &chunk["choices"][0]);
        choices.filter(|choice| choice["index"] == index).collect()
    };
    assert_eq!(
        of(0)[0]["delta"]["tool_calls"],
        json!([call(0, "get_weather")])
    );
    assert_eq!(of(0)[1]["finish_reason"], "tool_calls");
    assert!(
        of(1)[0]["delta"]["content"]
            .as_str()
            .unwrap()
            .contains("delete_account")
    );
    assert_eq!(of(1)[1]["finish_reason"], "stop");
    tells_nothing_of(&answer, "delete_account");
}

#[tokio::test]
async fn legacy_calls_are_judged_and_stay_legacy() {
    let functions = json!({"functions": [{"name": "get_weather", "parameters": {"type": "object"}}], "tools": null});
    for (name, allowed) in [("get_weather", true), ("delete_account", false)] {
        let arguments = format!("{{\"of\":\"argument_of_{name}\"}}");
        let reply = Reply::stream()
            .data(&reply::chunk(
                json!({"function_call": {"name": name}}),
                None,
            ))
            .data(&reply::chunk(
                json!({"function_call": {"arguments": arguments}}),
                None,
            ))
            .data(&reply::chunk(json!({}), Some("function_call")))
            .done();
        let (answer, _) = streamed(reply, "", &functions).await;
        let sent = answer.text().contains("argument_of");
        assert_eq!(sent, allowed, "{}", answer.text());
        let finish = if allowed { "function_call" } else { "stop" };
        assert_eq!(answer.finish_reason().as_deref(), Some(finish));
    }
}

#[tokio::test]
async fn the_text_of_a_failed_call_never_reaches_the_client() {
    let error = json!({"error": {"message": "Failed to call a function.", "type": "invalid_request_error",
        "code": "tool_use_failed", "failed_generation": "argument_of_delete_account"}});
    for reply in [
        Reply::json(400, &error),
        Reply::stream().data(&error),
        Reply::stream()
            .data(&reply::chunk(json!({"content": "Hm."}), None))
            .data(&error),
        Reply::json(200, &error),
    ] {
        let (answer, _) = streamed(reply, "", &json!({})).await;
        assert!(answer.text().contains("Failed to call a function."));
        tells_nothing_of(&answer, "delete_account");
    }
}

#[tokio::test]
async fn compressed_answers_are_judged_too() {
    let mut stream = String::new();
    for data in [
        reply::chunk(json!({"tool_calls": [call(0, "delete_account")]}), None),
        reply::chunk(json!({}), Some("tool_calls")),
    ] {
        stream += &format!("data: {data}\n\n");
    }
    stream += "data: [DONE]\n\n";
    let mut body = reply::completion("", reply::usage(10, 5));
    body["choices"][0]["message"]["tool_calls"] = json!([call(0, "delete_account")]);
    for coding in ["gzip", "deflate", "br", "zstd"] {
        for (reply, plain) in [
            (Reply::stream(), stream.clone()),
            (Reply::new(200, "application/json"), body.to_string()),
        ] {
            let reply = reply.header("content-encoding", coding);
            let reply = reply.piece(packed(coding, plain.as_bytes()));
            let (answer, _) = streamed(reply, "", &json!({})).await;
            assert!(
                answer.content().contains("Blocked by Tallygate"),
                "{coding}"
            );
            tells_nothing_of(&answer, "delete_account");
        }
    }
}

#[tokio::test]
async fn a_refused_turn_can_be_sent_back_as_history() {
    let (answer, _) = streamed(proposing("", &["delete_account"]), "", &json!({})).await;
    let mut message = json!({});
    for chunk in answer.chunks() {
        for (name, value) in chunk["choices"][0]["delta"]
            .as_object()
            .into_iter()
            .flatten()
        {
            match (&message[name], value) {
                (Value::String(so_far), Value::String(more)) => {
                    message[name] = json!(format!("{so_far}{more}"))
                }
                _ => message[name] = value.clone(),
            }
        }
    }
    let members = message.as_object().unwrap();
    assert_eq!(members.len(), 2, "{message}");
    assert_eq!(message["role"], "assistant");
    assert!(!message["content"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn an_unreadable_event_ends_the_answer_and_frees_no_call() {
    let reply = Reply::stream()
        .data(&reply::chunk(json!({"content": "Hm."}), None))
        .data(&reply::chunk(
            json!({"tool_calls": [call(0, "get_weather")]}),
            None,
        ))
        .piece("data: {\"choices\":[{\"delta\":{\"content\":NaN}}]}\n\n")
        .done();
    let (answer, proxy) = streamed(reply, "", &json!({})).await;
    assert_eq!(
        answer.stream_error().code.as_deref(),
        Some("malformed_output")
    );
    tells_nothing_of(&answer, "get_weather");
    let settled = proxy.last_settled(1).await;
    assert!(
        settled["cost_nano_usd"].as_u64().unwrap() > 0,
        "what was received is charged"
    );
    assert_eq!(
        proxy.records("call_judged", 1).await[0]["blocked"],
        "malformed_output"
    );
}

#[tokio::test]
async fn a_json_answer_to_a_stream_request_is_judged_and_streamed() {
    for (names, content) in [
        (vec!["get_weather"], "Let me see."),
        (vec!["delete_account"], "Blocked by"),
    ] {
        let (answer, proxy) = streamed(whole(&names), "", &json!({})).await;
        assert!(answer.is_stream() && answer.is_done());
        assert!(answer.content().contains(content), "{}", answer.text());
        assert!(
            answer
                .chunks()
                .iter()
                .all(|chunk| chunk.get("usage").is_none())
        );
        if names == ["get_weather"] {
            assert_eq!(calls(&answer), [call(0, "get_weather")]);
            assert_eq!(answer.finish_reason().as_deref(), Some("tool_calls"));
        } else {
            tells_nothing_of(&answer, "delete_account");
            assert_eq!(answer.finish_reason().as_deref(), Some("stop"));
        }
        assert_eq!(proxy.last_settled(1).await["cost_nano_usd"], 30_000);
    }
    let asked = json!({"stream_options": {"include_usage": true}});
    let (answer, _) = streamed(whole(&["get_weather"]), "", &asked).await;
    assert_eq!(
        answer.chunks().last().unwrap()["usage"],
        reply::usage(10, 5)
    );
}

#[tokio::test]
async fn a_stream_in_answer_to_a_plain_request_is_judged_and_sent_whole() {
    for name in ["get_weather", "delete_account"] {
        let upstream = Upstream::start().await;
        upstream.replies(proposing("Hm.", &[name]));
        let proxy = proxy(&upstream, "").await;
        let answer = proxy.k1().chat_with("hi", offer()).await;
        let message = &answer.json()["choices"][0]["message"];
        assert_eq!(answer.json()["object"], "chat.completion");
        assert_eq!(answer.json()["usage"], reply::usage(10, 5));
        if name == "get_weather" {
            assert_eq!(message["content"], "Hm.");
            let mut call = call(0, name);
            call.as_object_mut().unwrap().remove("index");
            assert_eq!(message["tool_calls"], json!([call]));
        } else {
            assert!(
                message["content"]
                    .as_str()
                    .unwrap()
                    .starts_with("Hm.\n\nBlocked")
            );
            assert!(message.get("tool_calls").is_none());
            tells_nothing_of(&answer, name);
        }
        assert_eq!(proxy.last_settled(1).await["cost_nano_usd"], 30_000);
    }
    let upstream = Upstream::start().await;
    upstream.replies(
        Reply::stream()
            .data(&reply::chunk(json!({"content": "Hm."}), None))
            .cut(),
    );
    let proxy = proxy(&upstream, "").await;
    assert_eq!(proxy.k1().chat("hi").await.status, 502);
}
