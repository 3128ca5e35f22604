//! Another policy on what is on record: what it would have decided differently.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::support::{Answer, Reply, Setup, TestProxy, Upstream, ledger, reply};

/// What the product says of that version, and its exit code.
fn simulate(setup: &Setup, policy: &str, more: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tallygate"))
        .args(["policies", "simulate", policy, "--config"])
        .arg(setup.file())
        .args(["--since", "2026-11-30T00:00:00Z", "--until", "2026-12-02"])
        .args(more)
        .output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.unwrap();
    let text = if stdout.is_empty() { stderr } else { stdout };
    (status.code(), String::from_utf8(text).unwrap())
}

fn report(setup: &Setup, policy: &str, more: &[&str]) -> Value {
    let (code, text) = simulate(setup, policy, &[more, &["--json"]].concat());
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    let differs = report["differences"] != json!([]);
    assert_eq!(code, Some(if differs { 3 } else { 0 }), "{text}");
    report
}

/// `then now rule count` of each row.
fn rows(report: &Value) -> Vec<String> {
    let rows = report["differences"].as_array().unwrap().iter();
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    rows.map(|row| {
        let [then, now, rule] = ["then", "now", "rule"].map(|name| text(row, name));
        format!("{then} {now} {rule} {}", row["count"])
    })
    .collect()
}

fn version(setup: &Setup, version: u32, tables: &str) {
    let text = format!("id = \"k1\"\nversion = {version}\nstatus = \"draft\"\n{tables}\n");
    let file = setup.dir().join(format!("policies/k1-{version}.toml"));
    fs::write(file, text).unwrap();
}

fn calling(tool: &str, arguments: &str) -> Reply {
    let mut body = reply::completion("", reply::usage(10, 5));
    body["choices"][0]["message"]["tool_calls"] = json!([{"id": "c1", "type": "function",
        "function": {"name": tool, "arguments": arguments}}]);
    body["choices"][0]["finish_reason"] = "tool_calls".into();
    Reply::json(200, &body)
}

fn offer() -> Value {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    json!({"tools": [tool("search"), tool("pay"), tool("fetch"), tool("submit")]})
}

async fn asks(proxy: &TestProxy, run: &str, text: &str, more: Value) -> Answer {
    let mut members = offer();
    members
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let request = proxy.k1().chat_request(text, members);
    request.header("x-run-id", run).answer().await
}

const RULES: &str = r#"
[limits]
requests_per_minute = 40
parallel_requests = 3
[budget]
daily_cost_usd = "0.05"
total_requests = 60
max_output_tokens = 1000
[run]
max_iterations = 6
max_tool_calls = 5
[loops]
same_call = 2
[tools]
deny = ["pay"]
on_offer = "strip"
require_approval = ["submit"]
"#;
const CONTRACTS: &str = r#"
[approvals]
wait = "0s"
[tools.search]
max_calls_per_run = 3
[tools.fetch]
output = "untrusted"
[tools.submit]
after = ["fetch"]
schema = { file = "submit.json" }
[tenants.acme.budget]
total_requests = 61
"#;

/// Requests that meet every kind of rule; the ledger then has all of them.
async fn busy(proxy: &TestProxy, upstream: &Upstream) {
    let nothing = || json!({});
    for (tool, arguments) in [
        ("pay", "{}"),
        ("search", r#"{"q":1}"#),
        ("search", r#"{"q":2}"#),
    ] {
        upstream.replies(calling(tool, arguments));
        for _ in 0..3 {
            asks(proxy, tool, "go", nothing()).await;
        }
    }
    asks(proxy, "other", "go", json!({"model": "m-forbidden"})).await;
    for tool in ["submit", "fetch", "submit"] {
        upstream.replies(calling(tool, "{}"));
        asks(proxy, "order", "go", nothing()).await;
    }
    upstream.replies(calling("search", r#"{"q":3}"#));
    for text in ["one", "one", "one", "one", "two", "three"] {
        asks(proxy, "loops", text, nothing()).await;
    }
    upstream.says("Hello.", reply::usage(10, 5));
    for _ in 0..8 {
        asks(proxy, "steps", "go", nothing()).await;
    }
    for count in 0..30 {
        asks(proxy, &format!("many-{count}"), "go", nothing()).await;
    }
    proxy.clock.advance(61_000);
    for count in 0..40 {
        asks(proxy, &format!("later-{count}"), "go", nothing()).await;
    }
}

async fn begun() -> (Upstream, TestProxy) {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1(RULES).tables(CONTRACTS);
    fs::write(setup.dir().join("submit.json"), r#"{"type": "object"}"#).unwrap();
    let proxy = TestProxy::start(setup).await;
    busy(&proxy, &upstream).await;
    (upstream, proxy)
}

#[tokio::test]
async fn the_version_that_judged_would_decide_the_same_again() {
    let (_upstream, proxy) = begun().await;
    let setup = proxy.end().await;
    let all = ledger::records(&ledger::database(&setup), "request_refused", 1).await;
    let mut codes: Vec<&str> = all.iter().filter_map(|one| one["code"].as_str()).collect();
    codes.sort_unstable();
    codes.dedup();
    let expected = [
        "circuit_open",
        "insufficient_quota",
        "max_steps_exceeded",
        "model_denied",
        "rate_limit_exceeded",
    ];
    assert_eq!(codes, expected);
    let report = report(&setup, "k1@1", &[]);
    assert_eq!(rows(&report), [""; 0], "{report:#}");
    assert_eq!(report["undecided"], json!({}), "{report:#}");
    assert_eq!(
        report["requests"]["passed_then"],
        report["requests"]["passed_now"]
    );
    assert_eq!(report["cost"]["unknown_requests"], 0);
}

#[tokio::test]
async fn another_version_is_tried_beside_a_running_product_and_nothing_changes() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(Setup::to(&upstream).k1("[budget]\ndaily_tokens = 100000")).await;
    upstream.replies(calling("pay", "{}"));
    assert_eq!(asks(&proxy, "task", "go", json!({})).await.status, 200);
    upstream.says("Hello.", reply::usage(10, 5));
    for model in ["m-large", "m-small", "m-forbidden"] {
        asks(&proxy, "task", "go", json!({"model": model})).await;
    }
    proxy.settled(3).await;
    proxy.records("request_refused", 1).await;
    version(
        &proxy.setup,
        2,
        "[models]\nallow = [\"m-small\", \"m-forbidden\"]\n[tools]\ndeny = [\"pay\"]\n[run]\nmax_iterations = 3",
    );
    let found = report(&proxy.setup, "k1@2", &[]);
    let mut found_rows = rows(&found);
    found_rows.sort_unstable();
    assert_eq!(
        found_rows,
        [
            "passed blocked tools.deny 1",
            "passed refused models.allow 1",
            "refused passed model_denied 1",
        ],
        "{found:#}"
    );
    assert_eq!(
        found["requests"],
        json!({"all": 4, "passed_then": 3, "passed_now": 3})
    );
    assert_eq!(found["cost"]["unknown_requests"], 1);
    assert_eq!(found["undecided"], json!({"tools.on_offer": 3}));
    let call = found["differences"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["of"] == "call");
    let (key, model) = (&call.unwrap()["key"], &call.unwrap()["model"]);
    assert_eq!((key, model), (&json!("k1"), &json!("m-small")));

    let (code, text) = simulate(&proxy.setup, "k1@2", &[]);
    assert_eq!(code, Some(3));
    for words in [
        "k1@2 on",
        "3 of 4 passed then, 3 now",
        "tools.deny",
        "1 requests would cost",
        "Not decidable from the ledger",
        "tools.on_offer",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    // Nobody of the policy k2 asked anything; the key is looked at whatever its policy was.
    let none = report(&proxy.setup, "k2@1", &[]);
    assert_eq!(none["requests"]["all"], 0);
    let of_key = report(&proxy.setup, "k2@1", &["--key", "k1"]);
    assert_eq!(of_key["requests"]["all"], 4);
    // A file that stands elsewhere, and one with a mistake.
    let file = proxy.setup.dir().join("tried.toml");
    fs::write(
        &file,
        "id = \"k1\"\nversion = 1\nstatus = \"draft\"\n[models]\ndeny = [\"*\"]",
    )
    .unwrap();
    let tried = report(&proxy.setup, file.to_str().unwrap(), &[]);
    assert_eq!(tried["requests"]["passed_now"], 0);
    fs::write(
        &file,
        "id = \"k1\"\nversion = 1\nstatus = \"draft\"\n[limit]",
    )
    .unwrap();
    let (code, text) = simulate(&proxy.setup, file.to_str().unwrap(), &[]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("tried.toml:4:2: limit: unknown member; did you mean \"limits\"?"),
        "{text}"
    );
    let (code, text) = simulate(&proxy.setup, "k1@9", &[]);
    assert_eq!(
        (
            code,
            text.contains("there is no policy \"k1@9\"; known: k1@2, k1@1")
        ),
        (Some(1), true),
        "{text}"
    );
    assert_eq!(asks(&proxy, "after", "go", json!({})).await.status, 200);
}

#[tokio::test]
async fn what_a_budget_held_before_counts() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    for _ in 0..3 {
        proxy.k1().chat("hi").await;
    }
    proxy.settled(3).await;
    proxy.clock.advance(3_600_000);
    proxy.k1().chat("hi").await;
    proxy.settled(4).await;
    version(&proxy.setup, 2, "[budget]\ntotal_requests = 3");
    let all = report(&proxy.setup, "k1@2", &[]);
    assert_eq!(rows(&all), ["passed refused total_requests 1"]);
    let output = Command::new(env!("CARGO_BIN_EXE_tallygate"))
        .args(["policies", "simulate", "k1@2", "--json", "--config"])
        .arg(proxy.setup.file())
        .args(["--since", "2026-11-30T13:00:00Z", "--until", "2026-12-02"])
        .output();
    let late: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    assert_eq!(late["requests"]["all"], 1);
    assert_eq!(rows(&late), ["passed refused total_requests 1"]);
}
