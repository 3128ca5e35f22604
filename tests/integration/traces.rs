//! Requests as traces: what a collector is told, joined to the client's trace, and that no
//! collector can hold a request up.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{
    Answer, Gate, Reply, Setup, TestProxy, Upstream, eventually, otlp, otlp::Span, reply,
    setup::replace,
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const VIEWER: &str = "tgo-viewer-t5r4e3w2q1";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// A collector that takes everything.
async fn collector() -> Upstream {
    let collector = Upstream::start().await;
    collector.replies(Reply::new(200, "application/x-protobuf"));
    collector
}

fn telemetry(collector: &Upstream, members: &str) -> String {
    let address = collector.address();
    format!("[telemetry]\notlp_endpoint = \"http://{address}\"\n{members}\n")
}

struct Scene {
    upstream: Upstream,
    collector: Upstream,
    proxy: TestProxy,
}

impl Scene {
    async fn start() -> Self {
        Self::with(collector().await, "", |setup| setup).await
    }

    async fn with(collector: Upstream, members: &str, and: impl FnOnce(Setup) -> Setup) -> Self {
        let upstream = Upstream::start().await;
        let digest = hex::encode(Sha256::digest(VIEWER));
        let viewer =
            format!("[[operators]]\nname = \"v\"\nrole = \"viewer\"\nsha256 = \"{digest}\"\n");
        let setup = Setup::to(&upstream)
            .tables(&telemetry(&collector, members))
            .tables(&viewer);
        let proxy = TestProxy::start(and(setup)).await;
        Self {
            upstream,
            collector,
            proxy,
        }
    }

    async fn asks(&self, members: Value) -> Answer {
        let request = self.proxy.k1().chat_request("a planted prompt", members);
        let request = request.header("traceparent", &traceparent("01"));
        request.header("tracestate", "vendor=1").answer().await
    }

    /// All spans, once there are so many.
    async fn spans(&self, count: usize) -> Vec<Span> {
        spans(&self.collector, count).await
    }

    /// A sample of the metric about spans.
    async fn counted(&self, outcome: &str) -> u64 {
        let metrics = self.proxy.operator(VIEWER).get("/metrics").await;
        let start = format!("tallygate_spans_total{{outcome=\"{outcome}\"}} ");
        let text = metrics.text().to_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap().parse().unwrap()
    }
}

fn all(collector: &Upstream) -> Vec<Span> {
    let posts = collector.requests();
    posts
        .iter()
        .flat_map(|post| otlp::spans(&post.body))
        .collect()
}

async fn spans(collector: &Upstream, count: usize) -> Vec<Span> {
    eventually("spans at the collector", async || {
        all(collector).len() >= count
    })
    .await;
    let found = all(collector);
    assert_eq!(found.len(), count, "{found:#?}");
    found
}

fn of_kind(spans: &[Span], kind: u64) -> &Span {
    spans.iter().find(|span| span.kind == kind).unwrap()
}

fn server(spans: &[Span]) -> &Span {
    of_kind(spans, 2)
}

fn client(spans: &[Span]) -> &Span {
    of_kind(spans, 3)
}

#[tokio::test]
async fn a_request_continues_the_clients_trace_and_the_provider_ours() {
    let scene = Scene::start().await;
    let answer = scene.asks(json!({"max_tokens": 50})).await;
    let spans = scene.spans(2).await;
    let (server, client) = (server(&spans), client(&spans));
    assert_eq!((&*server.trace, &*server.parent), (TRACE, PARENT));
    assert_eq!(server.name, "POST /v1/chat/completions");
    assert_eq!((&client.trace, &client.parent), (&server.trace, &server.id));
    assert_eq!(client.name, "chat m-small");
    let sent = scene.upstream.last_request();
    let led = format!("00-{TRACE}-{}-01", client.id);
    assert_eq!(sent.header("traceparent"), Some(&*led));
    assert_eq!(sent.header("tracestate"), Some("vendor=1"));
    assert!(server.began <= client.began && client.ended <= server.ended);
    assert!(
        client.began < client.ended,
        "they are told finer than milliseconds"
    );

    let told = &server.attributes;
    assert_eq!(told["http.request.method"], "POST");
    assert_eq!(told["http.route"], "/v1/chat/completions");
    assert_eq!(told["http.response.status_code"], 200);
    assert_eq!(
        told["tallygate.request.id"],
        answer.header("x-request-id").unwrap()
    );
    assert_eq!(
        told["tallygate.decision.id"],
        answer.header("x-tallygate-decision").unwrap()
    );
    assert_eq!(
        (&told["tallygate.key"], &told["tallygate.tenant"]),
        (&json!("k1"), &json!("acme"))
    );
    assert_eq!(told["tallygate.policy.id"], "k1");
    assert_eq!(told["tallygate.policy.version"], 1);
    assert_eq!(told["tallygate.outcome"], "completed");
    let told = &client.attributes;
    assert_eq!(told["gen_ai.operation.name"], "chat");
    assert_eq!(told["gen_ai.provider.name"], "openai");
    assert_eq!(told["openai.api.type"], "chat_completions");
    assert_eq!(told["gen_ai.request.model"], "m-small");
    assert_eq!(told["gen_ai.response.model"], "m-small-2031-01-01");
    assert_eq!(told["gen_ai.usage.input_tokens"], 10);
    assert_eq!(told["gen_ai.usage.output_tokens"], 5);
    assert_eq!(told["tallygate.provider"], "upstream");
    assert_eq!(told["tallygate.cost_usd"], 0.00003);
    assert_eq!(told["server.address"], "127.0.0.1");
    assert_eq!(told["server.port"], scene.upstream.address().port());
    assert!(!client.failed && !server.failed);

    let post = scene.collector.last_request();
    assert_eq!((&*post.method, &*post.path), ("POST", "/v1/traces"));
    assert_eq!(post.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(otlp::resource(&post.body)["service.name"], "tallygate");
    eventually("a count of exported spans", async || {
        scene.counted("exported").await == 2
    })
    .await;
    assert_eq!(scene.counted("dropped").await, 0);
}

#[tokio::test]
async fn without_a_trace_of_the_client_the_request_id_names_it() {
    let scene = Scene::start().await;
    let request = scene.proxy.k1().chat_request("hi", json!({}));
    // What cannot be read is no trace; what it says beside belongs to none.
    let request = request.header("traceparent", "00-nonsense");
    let answer = request.header("tracestate", "vendor=1").answer().await;
    let spans = scene.spans(2).await;
    let id = answer.header("x-request-id").unwrap();
    assert_eq!(format!("req_{}", server(&spans).trace), id);
    assert_eq!(server(&spans).parent, "");
    let sent = scene.upstream.last_request();
    let led = sent.header("traceparent").unwrap();
    assert!(led.contains(&client(&spans).id), "{led}");
    assert_eq!(sent.header("tracestate"), None);
}

#[tokio::test]
async fn what_the_client_does_not_sample_and_what_is_off_leaves_no_span_and_the_header_as_it_is() {
    let scene = Scene::start().await;
    let asks = async |flags: &str| {
        let request = scene.proxy.k1().chat_request("hi", json!({}));
        request
            .header("traceparent", &traceparent(flags))
            .answer()
            .await;
        scene
            .upstream
            .last_request()
            .header("traceparent")
            .map(str::to_owned)
    };
    assert_eq!(asks("00").await, Some(traceparent("00")));
    assert_ne!(asks("01").await, Some(traceparent("01")));
    scene.spans(2).await;
    let file = scene.proxy.setup.file();
    let text = std::fs::read_to_string(&file).unwrap();
    let off = text.replace(&telemetry(&scene.collector, ""), "");
    assert_ne!(text, off);
    replace(&file, &off);
    scene.proxy.records("configuration_reloaded", 1).await;
    assert_eq!(asks("01").await, Some(traceparent("01")));
    let (collector, posts) = (&scene.collector, scene.collector.hits());
    scene.proxy.end().await;
    assert_eq!(collector.hits(), posts);
}

#[tokio::test]
async fn calls_and_what_the_guards_said_of_them_are_events_and_no_content_is_told() {
    let scene = Scene::start().await;
    let call = json!({"index": 0, "id": "c1", "type": "function",
        "function": {"name": "rm_rf", "arguments": "{\"path\":\"planted-argument\"}"}});
    let stream = Reply::stream()
        .data(&reply::chunk(json!({"content": "a planted answer"}), None))
        .data(&reply::chunk(
            json!({"tool_calls": [call]}),
            Some("tool_calls"),
        ))
        .data(&reply::usage_chunk(reply::usage(7, 3)))
        .done();
    scene.upstream.replies(stream);
    let tools = json!([{"type": "function", "function": {"name": "ls"}}]);
    scene.asks(json!({"stream": true, "tools": tools})).await;
    let spans = scene.spans(2).await;
    let (name, told) = &server(&spans).events[0];
    assert_eq!(name, "tallygate.tool_call");
    assert_eq!(told["gen_ai.tool.name"], "rm_rf");
    assert_eq!(told["tallygate.code"], "unknown_tool");
    assert_eq!(told["tallygate.call.delivered"], false);
    let guards = told["tallygate.call.guards"].as_array().unwrap();
    assert!(
        guards.contains(&json!("unknown_tool: blocked")),
        "{guards:?}"
    );
    assert_eq!(client(&spans).attributes["gen_ai.request.stream"], true);
    assert!(server(&spans).attributes["tallygate.time_to_first_token"].is_f64());
    for post in scene.collector.requests() {
        assert!(
            !post.everything().contains("planted"),
            "{}",
            post.everything()
        );
    }
}

#[tokio::test]
async fn each_attempt_has_a_span_that_its_provider_was_told() {
    let second = Upstream::start().await;
    let address = second.address();
    let two = format!(
        "[providers.second]\ndialect = \"openai\"\nbase_url = \"http://{address}/v1\"\nmodels = []\n\
         [models.fast]\nroutes = [\"upstream/m-small\", \"second/m-large\"]\n"
    );
    let scene = Scene::with(collector().await, "", |setup| setup.tables(&two)).await;
    scene
        .upstream
        .replies(Reply::error(503, "busy", "Come back later."));
    scene.asks(json!({"model": "fast"})).await;
    let spans = scene.spans(3).await;
    let attempts: Vec<&Span> = spans.iter().filter(|span| span.kind == 3).collect();
    let [failed, helped] = attempts[..] else {
        panic!("{attempts:#?}")
    };
    for (attempt, provider) in [(failed, &scene.upstream), (helped, &second)] {
        let sent = provider.last_request();
        let led = format!("00-{TRACE}-{}-01", attempt.id);
        assert_eq!(sent.header("traceparent"), Some(&*led));
        assert_eq!(attempt.parent, server(&spans).id);
    }
    assert_eq!(failed.attributes["error.type"], "error_status");
    assert_eq!(failed.attributes["http.response.status_code"], 503);
    assert_eq!(helped.name, "chat m-large");
    assert_eq!(helped.attributes["tallygate.attempt"], 2);
    assert!(failed.failed && !helped.failed && !server(&spans).failed);
}

#[tokio::test]
async fn a_refusal_tells_its_code_and_a_provider_that_fails_is_a_failure() {
    let scene = Scene::start().await;
    scene.asks(json!({"model": "m-forbidden"})).await;
    let spans = scene.spans(1).await;
    assert_eq!(spans[0].attributes["tallygate.code"], "model_denied");
    assert_eq!(spans[0].attributes["http.response.status_code"], 403);
    assert!(!spans[0].failed, "a client's mistake is none of the server");
    scene
        .upstream
        .replies(Reply::error(500, "broken", "It broke."));
    let answer = scene.asks(json!({})).await;
    let spans = scene.spans(3).await.split_off(1);
    assert!(server(&spans).failed && client(&spans).failed);
    assert_eq!(
        server(&spans).attributes["http.response.status_code"],
        answer.status
    );
    assert_eq!(client(&spans).attributes["error.type"], "500");
}

#[tokio::test]
async fn a_call_that_waits_is_told_and_who_comes_back_for_it() {
    let approval = "[tools]\nrequire_approval = [\"pay\"]";
    let scene = Scene::with(collector().await, "", |setup| {
        setup.tables("[approvals]\nwait = \"0s\"").k1(approval)
    })
    .await;
    let mut body = reply::completion("", reply::usage(1, 1));
    body["choices"][0]["message"]["tool_calls"] = json!([{"id": "c1", "type": "function",
        "function": {"name": "pay", "arguments": "{\"to\":\"planted\"}"}}]);
    scene.upstream.replies(Reply::json(200, &body));
    let offer = json!({"tools": [{"type": "function", "function": {"name": "pay"}}]});
    let first = scene.asks(offer.clone()).await;
    let spans = scene.spans(2).await;
    let events = &server(&spans).events;
    let named = |name| &events.iter().find(|(event, _)| event == name).unwrap().1;
    let opened = named("tallygate.approval.opened");
    assert_eq!(opened["gen_ai.tool.name"], "pay");
    assert!(
        first
            .text()
            .contains(opened["tallygate.approval.id"].as_str().unwrap())
    );
    let decided = named("tallygate.approval.decided");
    assert_eq!(decided["tallygate.approval.outcome"], "pending");
    scene.asks(offer).await;
    let spans = scene.spans(3).await;
    let resumed = spans.last().unwrap();
    assert_eq!(
        resumed.attributes["tallygate.resumes"],
        first.header("x-request-id").unwrap()
    );
    assert_eq!(scene.upstream.hits(), 1, "so no attempt has a span");
}

#[tokio::test]
async fn an_answer_that_a_provider_keeps_is_fetched_under_a_span_too() {
    let scene = Scene::start().await;
    let response = json!({"id": "resp_1", "object": "response", "status": "completed",
        "model": "m-small", "output": [], "usage": {"input_tokens": 1, "output_tokens": 1,
        "total_tokens": 2}});
    scene.upstream.replies(Reply::json(200, &response));
    let body = json!({"model": "m-small", "input": "hi"}).to_string();
    scene.proxy.k1().post("/v1/responses", body).answer().await;
    let got = scene.proxy.k1().get("/v1/responses/resp_1").await;
    assert_eq!(got.status, 200, "{}", got.text());
    let spans = scene.spans(4).await;
    let fetched = spans.iter().find(|span| span.name == "GET").unwrap();
    let above = spans.iter().find(|span| span.id == fetched.parent).unwrap();
    assert_eq!(above.name, "GET /v1/responses/{id}");
    let led = scene.upstream.last_request();
    assert!(led.header("traceparent").unwrap().contains(&fetched.id));
}

#[tokio::test]
async fn headers_come_from_where_they_are_referred_to() {
    let members = "headers = { authorization = { file = \"collector.key\" } }\n\
                   service_name = \"gate-7\"";
    let scene = Scene::with(collector().await, members, |setup| {
        let file = setup.dir().join("collector.key");
        std::fs::write(file, "Bearer collectors-secret\n").unwrap();
        setup
    })
    .await;
    scene.asks(json!({})).await;
    scene.spans(2).await;
    let post = scene.collector.last_request();
    assert_eq!(
        post.header("authorization"),
        Some("Bearer collectors-secret")
    );
    assert_eq!(otlp::resource(&post.body)["service.name"], "gate-7");
}

#[tokio::test]
async fn what_a_collector_cannot_take_now_is_sent_again_and_what_it_refuses_is_not() {
    let collector = collector().await;
    collector.replies_once(Reply::new(503, "text/plain"));
    let scene = Scene::with(collector, "", |setup| setup).await;
    scene.asks(json!({})).await;
    scene.collector.hit(2).await;
    let posts = scene.collector.requests();
    assert_eq!(posts[0].body, posts[1].body);
    eventually("a count of exported spans", async || {
        scene.counted("exported").await == 2
    })
    .await;
    scene.collector.replies_once(Reply::new(500, "text/plain"));
    scene.asks(json!({})).await;
    eventually("a count of dropped spans", async || {
        scene.counted("dropped").await == 2
    })
    .await;
    // It says itself of how many it has no use.
    let partial: &'static [u8] = &[0x0a, 2, 0x08, 1];
    let reply = Reply::new(200, "application/x-protobuf").piece(partial);
    scene.collector.replies_once(reply);
    scene.asks(json!({})).await;
    eventually("one more dropped span", async || {
        scene.counted("dropped").await == 3
    })
    .await;
    assert_eq!(scene.counted("exported").await, 3);
}

#[tokio::test]
async fn a_collector_that_is_gone_or_silent_holds_up_neither_requests_nor_the_end() {
    for silent in [true, false] {
        let collector = Upstream::start().await;
        collector.replies(Reply::silence());
        let mut scene = Scene::with(collector, "", |setup| setup).await;
        if !silent {
            let gone = Upstream::start().await;
            drop(std::mem::replace(&mut scene.collector, gone));
        }
        assert_eq!(scene.asks(json!({})).await.status, 200);
        if silent {
            scene.collector.hit(1).await;
        }
        assert_eq!(scene.asks(json!({})).await.status, 200);
        crate::support::within("the end", scene.proxy.end()).await;
    }
}

#[tokio::test]
async fn what_is_not_told_yet_is_told_at_the_end() {
    let scene = Scene::start().await;
    let gate = Gate::new();
    let word = |text: &str| reply::chunk(json!({"content": text}), None);
    let stream = Reply::stream().data(&word("before ")).wait(&gate);
    let stream = stream.data(&reply::chunk(json!({}), Some("stop"))).done();
    scene.upstream.replies(stream);
    let mut open = scene.proxy.k1().stream("hi").await;
    open.until("before").await;
    let ending = tokio::spawn(scene.proxy.end());
    gate.open();
    open.until("[DONE]").await;
    drop(open);
    ending.await.unwrap();
    assert_eq!(all(&scene.collector).len(), 2);
}
