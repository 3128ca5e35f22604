//! The life of a policy version: a draft changes freely, a published one never, an archived one
//! serves nobody.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;

use crate::support::{Process, Setup, Upstream, ledger};

fn run(setup: &Setup, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tallygate"))
        .args(arguments)
        .args(["--config", setup.file().to_str().unwrap()])
        .output()
        .unwrap()
}

fn printed(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8(all).unwrap()
}

/// Another version of k1's policy, in a file of its own.
fn write_version(setup: &Setup, version: u32, status: &str, tables: &str) {
    let text = format!(
        "id = \"k1\" # {status}\nversion = {version}\nstatus = \"{status}\"\n[models]\nallow = [\"*\"]\n{tables}\n"
    );
    let file = setup.dir().join(format!("policies/k1-{version}.toml"));
    fs::write(file, text).unwrap();
}

#[tokio::test]
async fn a_published_version_that_changed_is_refused_at_start_with_the_fix() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[limits]\nparallel_requests = 2");
    let (mut setup, mut process) = Process::start(setup).await;
    let database = ledger::database(&setup);
    let published = ledger::records(&database, "policy_published", 3).await;
    assert!(published.iter().any(|record| record["policy"] == "k1@1"));
    process.signal("TERM").await;
    process.ended().await;
    setup.set_k1("[limits]\nparallel_requests = 3");
    setup.write();
    let (code, words) = Process::fails(&setup).await;
    assert_eq!(code, Some(1));
    assert!(
        words.contains("version 1 of \"k1\" was published with other content"),
        "{words}"
    );
    assert!(words.contains("bump version to 2"), "{words}");
    // As it was before, or under a new version, it starts.
    setup.set_k1_version(2);
    setup.write();
    process.start_again(&setup).await;
}

#[tokio::test]
async fn a_reload_with_a_changed_version_changes_nothing_and_says_so() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream).k1("[budget]\ntotal_requests = 1");
    let (mut setup, process) = Process::start(setup).await;
    assert_eq!(process.client().chat("hi").await.status, 200);
    setup.set_k1("[budget]\ntotal_requests = 100");
    setup.write();
    process.signal("HUP").await;
    ledger::records(&ledger::database(&setup), "configuration_refused", 1).await;
    assert_eq!(process.client().chat("hi").await.status, 402);
    setup.set_k1_version(2);
    setup.write();
    process.signal("HUP").await;
    ledger::records(&ledger::database(&setup), "configuration_reloaded", 1).await;
    assert_eq!(process.client().chat("hi").await.status, 200);
}

#[tokio::test]
async fn a_draft_serves_nobody_until_it_is_published_and_archiving_goes_back() {
    let upstream = Upstream::start().await;
    let (setup, process) = Process::start(Setup::to(&upstream)).await;
    let database = ledger::database(&setup);
    write_version(&setup, 7, "draft", "[budget]\ntotal_requests = 1");
    write_version(&setup, 8, "draft", "[budget]\ntotal_requests = 2");
    process.signal("HUP").await;
    ledger::records(&database, "configuration_reloaded", 1).await;
    assert_eq!(process.client().chat("hi").await.status, 200);
    let listed = run(&setup, &["policies", "list", "--json"]);
    let listed: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let seven = listed.iter().find(|row| row["version"] == 7).unwrap();
    assert_eq!(
        (&seven["status"], &seven["sealed"]),
        (&"draft".into(), &false.into())
    );
    assert_eq!(seven["keys"].as_array().unwrap().len(), 0);

    let output = run(&setup, &["policies", "publish", "k1@7"]);
    assert!(
        printed(&output).contains("in force for: k1"),
        "{}",
        printed(&output)
    );
    process.signal("HUP").await;
    ledger::records(&database, "configuration_reloaded", 2).await;
    assert_eq!(process.client().chat("hi").await.status, 200);
    assert_eq!(process.client().chat("hi").await.status, 402);
    let last = ledger::records(&database, "request_refused", 1).await;
    assert_eq!(last[0]["policy"], "k1@7");

    let again = run(&setup, &["policies", "publish", "k1@7"]);
    assert!(!again.status.success());
    assert!(printed(&again).contains("k1@7 is published, and only a draft version"));

    assert!(
        run(&setup, &["policies", "archive", "k1@7"])
            .status
            .success()
    );
    process.signal("HUP").await;
    let archived = ledger::records(&database, "policy_archived", 1).await;
    assert_eq!(archived[0]["policy"], "k1@7");
    assert_eq!(process.client().chat("hi").await.status, 200);
}

#[tokio::test]
async fn a_pinned_version_stays_and_an_archived_one_is_unavailable() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream);
    let (setup, process) = Process::start(setup).await;
    write_version(
        &setup,
        2,
        "published",
        "[limits]
parallel_requests = 2",
    );
    let main = fs::read_to_string(setup.file()).unwrap();
    fs::write(
        setup.file(),
        main.replace("policy = \"k1\"", "policy = \"k1@1\""),
    )
    .unwrap();
    process.signal("HUP").await;
    ledger::records(&ledger::database(&setup), "configuration_reloaded", 1).await;
    assert_eq!(process.client().chat("hi").await.status, 200);
    assert!(
        run(&setup, &["policies", "archive", "k1@1"])
            .status
            .success()
    );
    process.signal("HUP").await;
    ledger::records(&ledger::database(&setup), "policy_archived", 1).await;
    let refused = process.client().chat("hi").await;
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("policy_unavailable"));
    assert!(refused.text().contains("k1@1 is archived"));
}

#[tokio::test]
async fn versions_are_compared_line_by_line() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream);
    setup.write();
    write_version(&setup, 4, "draft", "[limits]\nparallel_requests = 4");
    write_version(&setup, 5, "published", "[limits]\nparallel_requests = 5");
    let output = run(&setup, &["policies", "diff", "k1@4", "k1@5"]);
    assert_eq!(output.status.code(), Some(1));
    let words = printed(&output);
    assert!(words.contains("-parallel_requests = 4"), "{words}");
    assert!(words.contains("+parallel_requests = 5"), "{words}");
    let same = run(&setup, &["policies", "diff", "k1@4", "k1@4"]);
    assert_eq!(same.status.code(), Some(0));
    let shown = printed(&run(&setup, &["policies", "show", "k1@5"]));
    assert!(shown.contains("parallel_requests = 5"));
    let unknown = run(&setup, &["policies", "show", "k1@9"]);
    assert!(printed(&unknown).contains("there is no policy \"k1@9\"; known:"));
}

#[tokio::test]
async fn what_is_only_warned_about_is_not_published() {
    let upstream = Upstream::start().await;
    let setup = Setup::to(&upstream);
    setup.write();
    write_version(&setup, 6, "draft", "[tools]\nallow = [\"serch:read\"]");
    let output = run(&setup, &["policies", "publish", "k1@6"]);
    assert!(!output.status.success());
    let words = printed(&output);
    assert!(
        words.contains("is the scope of no [tools.…] contract"),
        "{words}"
    );
}
