//! What an agent may do over a whole task: limits of its run, order, loops, repetitions.

use serde_json::{Value, json};

use crate::support::{Answer, Gate, Process, Reply, Setup, TestProxy, Upstream, ledger, reply};

fn offer(messages: &Value) -> Value {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    json!({"tools": [tool("fetch"), tool("submit"), tool("search")], "messages": messages})
}

fn proposing(calls: &[(&str, &str)]) -> Reply {
    let mut body = reply::completion("", reply::usage(10, 5));
    let call = |(at, (name, arguments)): (usize, &(&str, &str))| {
        json!({"id": format!("call_{at}"), "type": "function",
            "function": {"name": name, "arguments": arguments}})
    };
    body["choices"][0]["message"]["tool_calls"] = calls.iter().enumerate().map(call).collect();
    body["choices"][0]["finish_reason"] = json!("tool_calls");
    Reply::json(200, &body)
}

fn user() -> Value {
    json!([{"role": "user", "content": "go"}])
}

/// A conversation in which these calls were made and answered.
fn after(calls: &[(&str, &str)]) -> Value {
    let mut messages = vec![json!({"role": "user", "content": "go"})];
    for (at, (name, arguments)) in calls.iter().enumerate() {
        let id = format!("past_{at}");
        messages.push(
            json!({"role": "assistant", "tool_calls": [{"id": id, "type": "function",
            "function": {"name": name, "arguments": arguments}}]}),
        );
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": format!("r{at}")}));
    }
    messages.into()
}

async fn asks(proxy: &TestProxy, run: &str, messages: &Value) -> Answer {
    let request = proxy.k1().chat_request("", offer(messages));
    request.header("x-run-id", run).answer().await
}

fn calls(answer: &Answer) -> usize {
    let calls = answer.json()["choices"][0]["message"]["tool_calls"].clone();
    calls.as_array().map_or(0, Vec::len)
}

fn code(answer: &Answer) -> String {
    let body = answer.json();
    let code = body["error"]["code"]
        .as_str()
        .or(body["guard"]["code"].as_str());
    code.unwrap_or_default().to_owned()
}

async fn with(policy: &str, tables: &str, reply: Reply) -> (Upstream, TestProxy) {
    let upstream = Upstream::start().await;
    upstream.replies(reply);
    let setup = Setup::to(&upstream).tables(tables).k1(policy);
    (upstream, TestProxy::start(setup).await)
}

#[tokio::test]
async fn the_same_valid_call_forever_ends_at_the_last_step() {
    let reply = proposing(&[("search", r#"{"q":"x"}"#)]);
    let (upstream, proxy) = with("[run]\nmax_iterations = 4", "", reply).await;
    for _ in 0..4 {
        let answer = asks(&proxy, "r1", &user()).await;
        assert_eq!((answer.status, calls(&answer)), (200, 1));
    }
    let ended = asks(&proxy, "r1", &user()).await;
    assert_eq!(
        (ended.status, code(&ended)),
        (403, "max_steps_exceeded".to_owned())
    );
    assert_eq!(upstream.hits(), 4);
    let judged = proxy.records("call_judged", 4).await;
    let replays = judged
        .iter()
        .filter(|one| one["idempotent_replay"] == true)
        .count();
    assert_eq!((judged.len(), replays), (4, 3));
    let refused = proxy.records("request_refused", 1).await;
    assert_eq!(
        (&refused[0]["run"], &refused[0]["step"]),
        (&json!("r1"), &json!(5))
    );
    // Another run has its own steps.
    assert_eq!(asks(&proxy, "r2", &user()).await.status, 200);
}

#[tokio::test]
async fn a_replay_may_be_withheld() {
    let reply = proposing(&[("search", r#"{"q":"x"}"#)]);
    let (_upstream, proxy) = with("[run]\non_replay = \"withhold\"", "", reply).await;
    assert_eq!(calls(&asks(&proxy, "r1", &user()).await), 1);
    let again = asks(&proxy, "r1", &user()).await;
    assert_eq!(
        (calls(&again), code(&again)),
        (0, "idempotent_replay".to_owned())
    );
}

#[tokio::test]
async fn an_idempotency_key_says_what_is_the_same_call() {
    let upstream = Upstream::start().await;
    for amount in [1, 2] {
        let arguments = format!(r#"{{"amount":{amount},"idempotency_key":"k"}}"#);
        upstream.replies_once(proposing(&[("search", &arguments)]));
    }
    let setup = Setup::to(&upstream).k1("[run]\non_replay = \"withhold\"");
    let proxy = TestProxy::start(setup).await;
    assert_eq!(calls(&asks(&proxy, "r1", &user()).await), 1);
    assert_eq!(calls(&asks(&proxy, "r1", &user()).await), 0);
}

#[tokio::test]
async fn tool_calls_of_a_run_are_counted_and_blocked_ones_are_not() {
    let upstream = Upstream::start().await;
    for n in 0..5 {
        let arguments = format!("{{\"n\":{n}}}");
        let name = if n == 1 { "unknown" } else { "search" };
        upstream.replies_once(proposing(&[(name, &arguments)]));
    }
    let setup = Setup::to(&upstream).k1("[run]\nmax_tool_calls = 3");
    let proxy = TestProxy::start(setup).await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        let answer = asks(&proxy, "r1", &user()).await;
        seen.push((calls(&answer), code(&answer)));
    }
    let codes: Vec<&str> = seen.iter().map(|(_, code)| code.as_str()).collect();
    assert_eq!(
        codes,
        ["", "unknown_tool", "", "", "run_tool_calls_exceeded"]
    );
}

#[tokio::test]
async fn parallel_requests_of_a_run_are_bounded() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.replies(
        Reply::json(200, &reply::completion("ok", reply::usage(1, 1))).wait_before_head(&gate),
    );
    let setup = Setup::to(&upstream).k1("[run]\nmax_parallel_units = 2");
    let proxy = TestProxy::start(setup).await;
    let messages = user();
    let asked = [0, 1].map(|_| asks(&proxy, "r1", &messages));
    let [one, two] = asked;
    let third = async {
        upstream.hit(2).await;
        let refused = asks(&proxy, "r1", &messages).await;
        let other = proxy
            .k1()
            .chat_request("", offer(&messages))
            .header("x-run-id", "r2");
        gate.open();
        assert_eq!(other.answer().await.status, 200);
        refused
    };
    let (one, two, refused) = tokio::join!(one, two, third);
    assert_eq!((one.status, two.status), (200, 200));
    assert_eq!(
        (refused.status, code(&refused)),
        (403, "parallel_units_exceeded".to_owned())
    );
}

#[tokio::test]
async fn a_run_has_a_deadline_and_a_budget() {
    let reply = Reply::json(200, &reply::completion("ok", reply::usage(10, 5)));
    let policy = "[run]\nmax_runtime = \"30m\"\nmax_tokens = 1000";
    let (upstream, proxy) = with(policy, "", reply).await;
    assert_eq!(asks(&proxy, "r1", &user()).await.status, 200);
    proxy.clock.advance(30 * 60 * 1000 - 1);
    assert_eq!(asks(&proxy, "r1", &user()).await.status, 200);
    proxy.clock.advance(1);
    let late = asks(&proxy, "r1", &user()).await;
    assert_eq!(
        (late.status, code(&late)),
        (403, "run_deadline_exceeded".to_owned())
    );
    let mut large = offer(&user());
    large["max_tokens"] = json!(2000);
    large["n"] = json!(4);
    large["messages"][0]["content"] = json!("x".repeat(4000));
    let request = proxy.k1().chat_request("", large).header("x-run-id", "r2");
    let refused = request.answer().await;
    assert_eq!(refused.status, 402);
    assert!(
        refused.text().contains("run.max_tokens"),
        "{}",
        refused.text()
    );
    assert_eq!(upstream.hits(), 2);
}

#[tokio::test]
async fn order_and_counts_hold_over_streamed_parallel_and_forged_calls() {
    let tables = "[tools.submit]\nafter = [\"fetch\"]\nmax_calls_per_run = 1";
    let submit = |n: u64| proposing(&[("submit", &format!("{{\"n\":{n}}}"))]);
    let upstream = Upstream::start().await;
    upstream.replies_once(submit(0));
    upstream.replies_once(proposing(&[("fetch", "{}"), ("submit", "{\"n\":1}")]));
    upstream.replies_once(submit(2));
    let setup = Setup::to(&upstream).tables(tables);
    let proxy = TestProxy::start(setup).await;
    let first = asks(&proxy, "r1", &user()).await;
    assert_eq!(code(&first), "sequence_violation");
    // In one answer, in the right order.
    assert_eq!(calls(&asks(&proxy, "r1", &user()).await), 2);
    let twice = asks(&proxy, "r1", &user()).await;
    assert_eq!(code(&twice), "sequence_violation");
    assert!(
        twice.text().contains("1 times in a run"),
        "{}",
        twice.text()
    );
}

#[tokio::test]
async fn of_parallel_requests_one_has_the_last_call() {
    let tables = "[tools.submit]\nmax_calls_per_run = 1\nidempotent = false";
    let (_upstream, proxy) = with("", tables, proposing(&[("submit", "{}")])).await;
    let messages = user();
    let all = (0..8).map(|_| asks(&proxy, "r1", &messages));
    let answers = futures_join(all).await;
    assert_eq!(answers.iter().map(calls).sum::<usize>(), 1);
}

async fn futures_join(all: impl Iterator<Item = impl Future<Output = Answer>>) -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut waiting: Vec<_> = all.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        waiting.retain_mut(|one| match one.as_mut().poll(cx) {
            std::task::Poll::Ready(answer) => {
                answers.push(answer);
                false
            }
            std::task::Poll::Pending => true,
        });
        match waiting.is_empty() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    answers
}

#[tokio::test]
async fn what_came_from_outside_forbids_and_stays_in_the_run() {
    let tables =
        "[tools.fetch]\noutput = \"untrusted\"\n[tools.submit]\nnever_after_untrusted = true";
    let (_upstream, proxy) = with("", tables, proposing(&[("submit", "{}")])).await;
    assert_eq!(calls(&asks(&proxy, "r1", &user()).await), 1);
    let hostile = after(&[("fetch", "{}")]);
    let answer = asks(&proxy, "r1", &hostile).await;
    assert_eq!(code(&answer), "sequence_violation");
    // The client leaves the result out of the next request: the run remembers.
    let answer = asks(&proxy, "r1", &user()).await;
    assert_eq!(code(&answer), "sequence_violation");
    assert_eq!(calls(&asks(&proxy, "r2", &user()).await), 1);
}

#[tokio::test]
async fn a_loop_stops_the_run_until_a_user_says_something_new() {
    let call = ("search", r#"{"q":"x"}"#);
    let (upstream, proxy) = with("[loops]\nsame_call = 3", "", proposing(&[call])).await;
    let past = after(&[call, call, call]);
    // No run is named: the conversation is the run.
    let client = proxy.k1();
    let found = client.chat_request("", offer(&past)).answer().await;
    assert_eq!(code(&found), "loop_detected");
    let stopped = client.chat_request("", offer(&past)).answer().await;
    assert_eq!(
        (stopped.status, code(&stopped)),
        (403, "circuit_open".to_owned())
    );
    assert_eq!(upstream.hits(), 1);
    let mut more = past.as_array().unwrap().clone();
    more.push(json!({"role": "user", "content": "try again"}));
    let forgiven = client.chat_request("", offer(&more.into())).answer().await;
    assert_eq!(calls(&forgiven), 1, "{}", forgiven.text());
    // 1 and 1.0 are one number, white space is nothing.
    let odd = after(&[
        ("search", r#"{"q":1}"#),
        ("search", r#"{ "q": 1.0 }"#),
        ("search", r#"{"q":1e0}"#),
    ]);
    upstream.replies(proposing(&[("search", r#"{"q":1}"#)]));
    let found = client
        .chat_request("", offer(&odd))
        .header("x-run-id", "odd")
        .answer()
        .await;
    assert_eq!(code(&found), "loop_detected");
}

#[tokio::test]
async fn cycles_are_found_and_pollable_tools_are_not() {
    let (a, b) = (("fetch", "{}"), ("search", "{}"));
    let rounds = after(&[a, b, a, b, a, b]);
    let policy = "[loops]\ncycle_rounds = 3\nsame_call = 10\non_open = \"retry\"";
    let (_upstream, proxy) = with(policy, "", proposing(&[a])).await;
    assert_eq!(code(&asks(&proxy, "r1", &rounds).await), "loop_detected");
    // The breaker does not open with "retry".
    assert_eq!(code(&asks(&proxy, "r1", &rounds).await), "loop_detected");
    let polls = after(&[a, a, a, a, a]);
    let tables = "[tools.fetch]\npollable = true";
    let (_upstream, proxy) = with("[loops]\nsame_call = 3", tables, proposing(&[a])).await;
    assert_eq!(calls(&asks(&proxy, "r1", &polls).await), 1);
}

#[tokio::test]
async fn a_missing_name_is_read_as_the_policy_says() {
    let reply = Reply::json(200, &reply::completion("ok", reply::usage(1, 1)));
    for (how, statuses) in [
        ("conversation", [200, 403, 200]),
        ("per_key", [200, 403, 403]),
        ("refuse", [400, 400, 400]),
        ("unlimited", [200, 200, 200]),
    ] {
        let policy = format!("[run]\nmax_iterations = 1\nmissing_run_id = \"{how}\"");
        let (_upstream, proxy) = with(&policy, "", reply.clone()).await;
        for (text, status) in ["one", "one", "two"].into_iter().zip(statuses) {
            assert_eq!(proxy.k1().chat(text).await.status, status, "{how} {text}");
        }
    }
    let (_upstream, proxy) = with("", "", reply).await;
    for name in ["a b", "", "a/b", &"x".repeat(129), "conversation:1"] {
        let request = proxy.k1().chat_request("hi", json!({}));
        let answer = request.header("x-run-id", name).answer().await;
        assert_eq!(answer.status, 400, "{name:?}");
    }
}

#[tokio::test]
async fn a_crash_forgets_nothing_of_a_run() {
    let upstream = Upstream::start().await;
    upstream.replies(proposing(&[("submit", "{}")]));
    let tables = "[tools.submit]\nmax_calls_per_run = 1";
    let setup = Setup::to(&upstream)
        .tables(tables)
        .k1("[run]\nmax_iterations = 3");
    let (setup, mut process) = Process::start(setup).await;
    let asks = async |process: &Process| {
        let request = process.client().chat_request("", offer(&user()));
        request.header("x-run-id", "r1").answer().await
    };
    assert_eq!(calls(&asks(&process).await), 1);
    // At once: the call is on disk before its client has it.
    process.kill().await;
    process = process.start_again(&setup).await;
    assert_eq!(code(&asks(&process).await), "sequence_violation");
    process.kill().await;
    process = process.start_again(&setup).await;
    asks(&process).await;
    let ended = asks(&process).await;
    assert_eq!(code(&ended), "max_steps_exceeded");
    assert!(upstream.hits() <= 3);
}

#[tokio::test]
async fn a_run_keeps_the_version_that_it_began_with() {
    let upstream = Upstream::start().await;
    upstream.replies(proposing(&[("submit", "{}")]));
    let (setup, process) = Process::start(Setup::to(&upstream)).await;
    let asks = async |run: &str| {
        let request = process.client().chat_request("", offer(&user()));
        request.header("x-run-id", run).answer().await
    };
    assert_eq!(calls(&asks("old").await), 1);
    let policy = "id = \"k1\"\nversion = 2\nstatus = \"published\"\n[tools]\nallow = [\"fetch\"]\non_offer = \"strip\"\n";
    std::fs::write(setup.dir().join("policies/k1-2.toml"), policy).unwrap();
    process.signal("HUP").await;
    let database = ledger::database(&setup);
    ledger::records(&database, "configuration_reloaded", 1).await;
    assert_eq!(calls(&asks("old").await), 1);
    assert_eq!(calls(&asks("new").await), 0);
    let settled = ledger::records(&database, "request_settled", 3).await;
    let policies: Vec<&Value> = settled.iter().map(|record| &record["policy"]).collect();
    assert_eq!(policies, ["k1@1", "k1@1", "k1@2"]);
}

#[tokio::test]
async fn a_call_that_may_be_made_once_is_made_once_whenever_the_process_dies() {
    let upstream = Upstream::start().await;
    upstream.replies(proposing(&[("submit", "{}")]));
    let tables = "[tools.submit]\nmax_calls_per_run = 1\nidempotent = false";
    let (setup, mut process) = Process::start(Setup::to(&upstream).tables(tables)).await;
    for (run, stream) in [("r1", true), ("r2", false), ("r3", true)] {
        let asks = async |process: &Process| {
            let mut members = offer(&user());
            members["stream"] = stream.into();
            let request = process.client().chat_request("", members);
            request.header("x-run-id", run).answer().await
        };
        let first = asks(&process).await;
        assert!(first.text().contains("\"tool_calls\""), "{}", first.text());
        process.kill().await;
        process = process.start_again(&setup).await;
        let again = asks(&process).await;
        assert!(
            again.text().contains("sequence_violation"),
            "{}",
            again.text()
        );
    }
}
