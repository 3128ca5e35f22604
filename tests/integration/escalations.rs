//! What helps a run on after a loop or a failed provider, and the records of it.

use serde_json::{Value, json};

use crate::support::{Answer, Process, Reply, Setup, TestProxy, Upstream, ledger, reply};

const CALL: (&str, &str) = ("search", r#"{"q":"x"}"#);

/// `fast` leads to the first provider, then to the second.
fn two(first: &Upstream, second: &Upstream) -> Setup {
    Setup::to(first).tables(&format!(
        "[providers.second]\ndialect = \"openai\"\nbase_url = \"http://{}/v1\"\nmodels = []\n\
         [models.fast]\nroutes = [\"upstream/m-small\", \"second/m-large\"]\n",
        second.address()
    ))
}

fn looping() -> Reply {
    let mut body = reply::completion("", reply::usage(10, 5));
    let (name, arguments) = CALL;
    body["choices"][0]["message"]["tool_calls"] = json!([{"id": "c1", "type": "function",
        "function": {"name": name, "arguments": arguments}}]);
    body["choices"][0]["finish_reason"] = json!("tool_calls");
    Reply::json(200, &body)
}

/// A conversation in which the same call was made three times.
fn thrice(more: &[&str]) -> Value {
    let mut messages = vec![json!({"role": "user", "content": "go"})];
    for at in 0..3 {
        let (name, arguments) = CALL;
        messages.push(
            json!({"role": "assistant", "tool_calls": [{"id": format!("p{at}"),
            "type": "function", "function": {"name": name, "arguments": arguments}}]}),
        );
        messages.push(json!({"role": "tool", "tool_call_id": format!("p{at}"),
            "content": format!("r{at}")}));
    }
    let user = |text: &&str| json!({"role": "user", "content": text});
    messages.extend(more.iter().map(user));
    messages.into()
}

async fn asks(proxy: &TestProxy, messages: &Value) -> Answer {
    let members = json!({"model": "fast", "messages": messages,
        "tools": [{"type": "function", "function": {"name": "search"}}]});
    let request = proxy.k1().chat_request("", members);
    request.header("x-run-id", "r1").answer().await
}

fn code(answer: &Answer) -> String {
    let body = answer.json();
    let code = body["error"]["code"]
        .as_str()
        .or(body["guard"]["code"].as_str());
    code.unwrap_or_default().to_owned()
}

fn told(records: &[Value]) -> Vec<[&str; 3]> {
    let of = |record| ["reason", "action", "outcome"].map(|name| text(record, name));
    records.iter().map(of).collect()
}

fn text<'r>(record: &'r Value, name: &str) -> &'r str {
    record[name].as_str().unwrap()
}

async fn started(on_open: &str) -> (Upstream, Upstream, TestProxy) {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.replies(looping());
    let policy = format!("[loops]\nsame_call = 3\non_open = \"{on_open}\"");
    let proxy = TestProxy::start(two(&first, &second).k1(&policy)).await;
    (first, second, proxy)
}

#[tokio::test]
async fn a_looping_model_is_left_for_the_next_route_until_a_user_speaks() {
    let (first, second, proxy) = started("fallback").await;
    assert_eq!(code(&asks(&proxy, &thrice(&[])).await), "loop_detected");
    let helped = asks(&proxy, &thrice(&[])).await;
    assert!(helped.text().contains("there."), "{}", helped.text());
    asks(&proxy, &thrice(&[])).await;
    assert_eq!((first.hits(), second.hits()), (1, 2));
    let escalations = proxy.records("escalation", 2).await;
    assert_eq!(
        told(&escalations),
        [
            ["loop_detected", "upgrade_model", "pending"],
            ["loop_detected", "upgrade_model", "helped"]
        ]
    );
    assert_eq!(escalations[0]["escalation"], escalations[1]["escalation"]);
    assert_eq!(
        (&escalations[0]["run"], &escalations[0]["step"]),
        (&json!("r1"), &json!(1))
    );
    asks(&proxy, &thrice(&["again"])).await;
    assert_eq!(first.hits(), 2);
}

#[tokio::test]
async fn a_loop_at_every_route_stops_the_run() {
    let (first, second, proxy) = started("fallback").await;
    second.replies(looping());
    for _ in 0..2 {
        assert_eq!(code(&asks(&proxy, &thrice(&[])).await), "loop_detected");
    }
    let stopped = asks(&proxy, &thrice(&[])).await;
    assert_eq!(
        (stopped.status, code(&stopped)),
        (403, "circuit_open".to_owned())
    );
    assert_eq!((first.hits(), second.hits()), (1, 1));
    let escalations = proxy.records("escalation", 2).await;
    assert_eq!(
        told(&escalations)[1],
        ["loop_detected", "upgrade_model", "failed"]
    );
}

#[tokio::test]
async fn an_escalated_loop_waits_for_a_person() {
    let (first, _second, proxy) = started("escalate").await;
    assert_eq!(code(&asks(&proxy, &thrice(&[])).await), "loop_detected");
    assert_eq!(code(&asks(&proxy, &thrice(&[])).await), "circuit_open");
    assert_eq!(first.hits(), 1);
    assert_eq!(asks(&proxy, &thrice(&["I looked at it"])).await.status, 200);
    let escalations = proxy.records("escalation", 2).await;
    assert_eq!(
        told(&escalations),
        [
            ["loop_detected", "human_review", "pending"],
            ["loop_detected", "human_review", "new_input"]
        ]
    );
}

#[tokio::test]
async fn a_second_try_that_loops_again_is_told_as_failed() {
    let (first, _second, proxy) = started("retry").await;
    for _ in 0..2 {
        assert_eq!(code(&asks(&proxy, &thrice(&[])).await), "loop_detected");
    }
    first.says("Something else.", reply::usage(10, 5));
    asks(&proxy, &thrice(&[])).await;
    let escalations = proxy.records("escalation", 4).await;
    let outcomes: Vec<&str> = told(&escalations).iter().map(|one| one[2]).collect();
    assert_eq!(outcomes, ["pending", "failed", "pending", "helped"]);
}

#[tokio::test]
async fn a_provider_that_failed_in_a_run_is_an_escalation_too() {
    let (first, _second, proxy) = started("stop").await;
    first.replies(Reply::error(503, "busy", "Come back later."));
    assert_eq!(asks(&proxy, &thrice(&[])).await.status, 200);
    let escalations = proxy.records("escalation", 1).await;
    assert_eq!(
        told(&escalations),
        [["provider_failure", "alternative_strategy", "helped"]]
    );
}

#[tokio::test]
async fn a_run_whose_version_is_archived_ends() {
    let upstream = Upstream::start().await;
    let (setup, process) = Process::start(Setup::to(&upstream)).await;
    let asks = async |run: &str| {
        let request = process.client().chat_request("hi", json!({}));
        request.header("x-run-id", run).answer().await
    };
    let database = ledger::database(&setup);
    assert_eq!(asks("old").await.status, 200);
    let first = setup.dir().join("policies/k1.toml");
    let archived = std::fs::read_to_string(&first)
        .unwrap()
        .replace("published", "archived");
    std::fs::write(&first, archived).unwrap();
    let next = "id = \"k1\"\nversion = 2\nstatus = \"published\"\n";
    std::fs::write(setup.dir().join("policies/k1-2.toml"), next).unwrap();
    process.signal("HUP").await;
    ledger::records(&database, "configuration_reloaded", 1).await;
    let ended = asks("old").await;
    assert_eq!(
        (ended.status, code(&ended)),
        (503, "policy_unavailable".to_owned())
    );
    assert!(
        ended.text().contains("k1@1, which is archived"),
        "{}",
        ended.text()
    );
    assert_eq!(asks("new").await.status, 200);
}

#[tokio::test]
async fn a_caller_tells_how_its_own_run_went_and_nobody_else_does() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let request = proxy.k1().chat_request("hi", json!({}));
    let tagged = request
        .header("x-run-id", "r1")
        .header("x-run-tag", "agent, v:2");
    assert_eq!(tagged.answer().await.status, 200);
    let opened = proxy.records("request_started", 1).await;
    assert_eq!(opened[0]["tags"], json!(["agent", "v:2"]));
    let path = "/v1/tallygate/runs/r1/outcome";
    let failed = json!({"outcome": "failure", "reason": "verifier_failure"}).to_string();
    let other = proxy.k2().post(path, failed.clone()).answer().await;
    assert_eq!(other.refusal(), (404, "run_not_found".to_owned()));
    let hint = proxy.k1().post(path, failed).answer().await;
    assert_eq!(hint.status, 200, "{}", hint.text());
    assert_eq!(hint.json()["escalation"]["action"], "expand_context");
    let well = json!({"outcome": "success"}).to_string();
    let well = proxy.k1().post(path, well).answer().await;
    assert_eq!(well.json()["escalation"], Value::Null);
    let reports = proxy.records("run_reported", 2).await;
    let reported = |at: usize| (text(&reports[at], "run"), text(&reports[at], "outcome"));
    assert_eq!(
        [reported(0), reported(1)],
        [("r1", "failure"), ("r1", "success")]
    );
    let escalations = proxy.records("escalation", 2).await;
    assert_eq!(
        told(&escalations),
        [
            ["verifier_failure", "expand_context", "pending"],
            ["verifier_failure", "expand_context", "helped"]
        ]
    );
    assert_eq!(upstream.hits(), 1);
}

#[tokio::test]
async fn a_report_or_a_tag_that_cannot_be_read_is_told_as_an_error() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let request = proxy.k1().chat_request("hi", json!({}));
    assert_eq!(request.header("x-run-id", "r1").answer().await.status, 200);
    let path = "/v1/tallygate/runs/r1/outcome";
    for body in [
        "",
        "[]",
        r#"{"outcome":"great"}"#,
        r#"{"outcome":"success","reason":"verifier_failure"}"#,
        r#"{"outcome":"success","note":"a prompt"}"#,
    ] {
        let answer = proxy.k1().post(path, body).answer().await;
        assert_eq!(
            answer.refusal(),
            (400, "invalid_request".to_owned()),
            "{body}"
        );
    }
    let known = proxy.k1().get(path).await;
    assert_eq!((known.status, known.header("allow")), (405, Some("POST")));
    let unnamed = proxy.k1().post("/v1/tallygate/runs/a/b/outcome", "{}");
    assert_eq!(unnamed.answer().await.status, 404);
    for tag in ["a b", "", "a,,b", "1,2,3,4,5,6,7,8,9"] {
        let request = proxy.k1().chat_request("hi", json!({}));
        let answer = request.header("x-run-tag", tag).answer().await;
        assert_eq!(answer.status, 400, "{tag:?}");
    }
}
