//! Commands as scripts use them: what is printed, and the exit code.

use std::process::{Command, Output};

use serde_json::{Value, json};
use sha2::Digest as _;

use crate::support::{Setup, TestProxy, Upstream};

fn run(setup: &Setup, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tallygate"))
        .args(arguments)
        .arg("--config")
        .arg(setup.file())
        .output();
    let Output { status, stdout, .. } = output.unwrap();
    (status.code(), String::from_utf8(stdout).unwrap())
}

fn setup() -> Setup {
    let tables = "[models.fast]\nroutes = [\"upstream/m-large\"]";
    let setup = Setup::at("http://127.0.0.1:1/v1").tables(tables);
    setup.write();
    setup
}

#[test]
fn models_tells_what_each_key_may_use_where_it_leads_and_what_it_costs() {
    let setup = setup();
    let (code, text) = run(&setup, &["models", "--json"]);
    assert_eq!(code, Some(0));
    let keys: Value = serde_json::from_str(&text).unwrap();
    let k1 = &keys[0];
    assert_eq!(
        (&k1["key"], &k1["tenant"], &k1["policy"]),
        (&json!("k1"), &json!("acme"), &json!("k1@1"))
    );
    assert_eq!(k1["patterns"], json!(["m-big-*"]));
    let models = k1["models"].as_array().unwrap();
    let named = |name: &str| models.iter().find(|model| model["name"] == name);
    let prices = json!({"input": "1.00", "cached_input": "0.10", "output": "4.00"});
    assert_eq!(
        named("m-small").unwrap(),
        &json!({
            "name": "m-small",
            "provider": "upstream",
            "upstream_model": "m-small",
            "usd_per_million_tokens": prices,
        })
    );
    assert_eq!(named("fast").unwrap()["upstream_model"], "m-large");
    assert_eq!(
        named("fast").unwrap()["usd_per_million_tokens"]["input"],
        "10.00"
    );
    assert_eq!(
        named("m-new").unwrap()["usd_per_million_tokens"],
        Value::Null
    );
    assert!(named("m-forbidden").is_none() && named("sandbox-echo").is_none());

    let (code, text) = run(&setup, &["models"]);
    assert_eq!(code, Some(0));
    for wanted in [
        "k1 (acme, k1@1)",
        "upstream/m-large",
        "and what fits m-big-*",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

#[tokio::test]
async fn migrate_makes_the_database_once_and_leaves_a_serving_one_alone() {
    let setup = setup();
    let (code, text) = run(&setup, &["migrate"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("tallygate.db: made"), "{text}");
    let (code, text) = run(&setup, &["migrate"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("already"), "{text}");
    let (code, text) = run(&setup, &["ledger", "verify"]);
    assert_eq!(
        (code, text.starts_with("0 records")),
        (Some(0), true),
        "{text}"
    );

    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let (code, _) = run(&proxy.setup, &["migrate"]);
    assert_eq!(code, Some(1));
    assert_eq!(proxy.k1().chat("hi").await.status, 200);
}

#[test]
fn a_token_for_an_operator_comes_with_the_lines_that_let_it_in() {
    let setup = setup();
    let (code, text) = run(
        &setup,
        &[
            "keys",
            "new",
            "--operator",
            "--name",
            "dana",
            "--role",
            "approver",
        ],
    );
    assert_eq!(code, Some(0));
    let (before, block) = text.split_once("[[operators]]").unwrap();
    let token = before
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("tgo-"));
    let digest = hex::encode(sha2::Sha256::digest(token.unwrap()));
    assert!(block.contains(&digest));
    let more = setup.tables(&format!("[[operators]]{block}"));
    more.write();
    let (code, text) = run(&more, &["check"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("operator   dana (approver)"), "{text}");
    let (code, _) = run(&more, &["keys", "new", "--name", "x", "--role", "viewer"]);
    assert_eq!(code, Some(2), "a client key has no role");
}

#[test]
fn every_command_has_an_example() {
    for command in [
        &["serve"][..],
        &["check"],
        &["keys", "new"],
        &["models"],
        &["spend"],
        &["ledger", "tail"],
        &["ledger", "verify"],
        &["ledger", "export"],
        &["ledger", "keygen"],
        &["ledger", "head"],
        &["migrate"],
        &["health"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tallygate"))
            .args(command)
            .arg("--help")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("Example:\n  tallygate"),
            "{command:?}: {text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_shown_and_compared() {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::start(Setup::to(&upstream).k1("[run]\nmax_iterations = 2")).await;
    for (id, tag, requests) in [
        ("a1", "agent", 3),
        ("a2", "agent", 1),
        ("w1", "workflow", 1),
    ] {
        for _ in 0..requests {
            let request = proxy.k1().chat_request("hi", json!({}));
            let named = request.header("x-run-id", id).header("x-run-tag", tag);
            named.answer().await;
        }
        let outcome = if id == "a1" { "failure" } else { "success" };
        let path = format!("/v1/tallygate/runs/{id}/outcome");
        let told = json!({"outcome": outcome}).to_string();
        assert_eq!(proxy.k1().post(&path, told).answer().await.status, 200);
    }
    proxy.records("run_reported", 3).await;
    let (code, text) = run(&proxy.setup, &["runs", "list", "--tag", "agent", "--json"]);
    let runs: Value = serde_json::from_str(&text).unwrap();
    let found = |id: &str| runs.as_array().unwrap().iter().find(|run| run["run"] == id);
    assert_eq!((code, runs.as_array().unwrap().len()), (Some(0), 2));
    let a1 = found("a1").unwrap();
    assert_eq!((&a1["steps"], &a1["model_calls"]), (&json!(2), &json!(2)));
    assert_eq!(
        (&a1["code"], &a1["outcome"]),
        (&json!("max_steps_exceeded"), &json!("failure"))
    );
    assert_eq!(found("a2").unwrap()["code"], Value::Null);
    let (code, text) = run(&proxy.setup, &["runs", "show", "a1"]);
    assert_eq!(code, Some(0));
    for part in [
        "asks m-small",
        "refused: max_steps_exceeded",
        "its caller says: failure",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, text) = run(&proxy.setup, &["runs", "compare", "--json"]);
    let groups: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &groups[0]["group"]), (Some(0), &json!("agent")));
    assert_eq!(
        (&groups[0]["runs"], &groups[0]["success_rate"]),
        (&json!(2), &json!(0.5))
    );
    assert_eq!(groups[0]["steps"]["median"], 1.5);
    assert_eq!(
        (&groups[1]["group"], &groups[1]["success_rate"]),
        (&json!("workflow"), &json!(1.0))
    );
    let (code, text) = run(&proxy.setup, &["runs", "compare", "agent", "workflow"]);
    assert_eq!(code, Some(0));
    assert!(
        text.contains("50 %") && text.contains("1.5 [1.2–1.8]"),
        "{text}"
    );
    for unknown in [["runs", "show", "nobody"], ["runs", "compare", "nobody"]] {
        assert_eq!(run(&proxy.setup, &unknown).0, Some(1));
    }
}
