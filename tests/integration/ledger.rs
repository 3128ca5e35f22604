//! The ledger as an auditor meets it: exported, verified, tampered with.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;
use sqlx::{Connection as _, Executor as _, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::support::{Setup, TestProxy, Upstream, ledger};

fn run(setup: &Setup, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tallygate"))
        .args(arguments)
        .arg("--config")
        .arg(setup.file())
        .output()
        .unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A ledger at rest, written by requests in parallel: the start, three policies, two records for
/// each of 50 requests.
async fn written() -> Setup {
    let upstream = Upstream::start().await;
    let proxy = TestProxy::to(&upstream).await;
    let requests = (0..50).map(|_| {
        let client = proxy.k1();
        tokio::spawn(async move { client.chat("hi").await.status })
    });
    for request in requests.collect::<Vec<_>>() {
        assert_eq!(request.await.unwrap(), 200);
    }
    proxy.settled(50).await;
    proxy.end().await
}

const RECORDS: i64 = 104;

async fn tamper(database: &Path, statement: &'static str) {
    let options = SqliteConnectOptions::new().filename(database);
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    connection.execute(statement).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn verify_names_the_first_record_that_was_tampered_with() {
    let setup = written().await;
    let verified = run(&setup, &["ledger", "verify"]);
    let words = told(&verified);
    assert!(verified.status.success(), "{words}");
    assert!(words.starts_with("104 records, the chain holds; head "));

    let database = ledger::database(&setup);
    let whole = fs::read(&database).unwrap();
    let cases = [
        (
            "UPDATE ledger SET body = replace(body, '\"kind\"', ' \"kind\"') WHERE seq = 40",
            "record 40 does not follow",
        ),
        ("DELETE FROM ledger WHERE seq = 41", "record 41 is missing"),
        ("DELETE FROM ledger WHERE seq <= 2", "record 1 is missing"),
        (
            "UPDATE ledger SET seq = -1 WHERE seq = 42; UPDATE ledger SET seq = 42 WHERE seq = 43;
             UPDATE ledger SET seq = 43 WHERE seq = -1",
            "record 42 does not follow",
        ),
        (
            "INSERT INTO ledger (seq, digest, body) SELECT 105, digest, body FROM ledger WHERE seq = 104",
            "record 105 does not follow",
        ),
    ];
    for (statement, wanted) in cases {
        fs::write(&database, &whole).unwrap();
        tamper(&database, statement).await;
        let verified = run(&setup, &["ledger", "verify"]);
        let words = told(&verified);
        assert_eq!(verified.status.code(), Some(1), "{statement}: {words}");
        assert!(words.starts_with(wanted), "{statement}: {words}");
    }
}

#[tokio::test]
async fn the_command_line_exports_what_was_asked_for() {
    let setup = written().await;
    let export = |arguments: &[&str]| run(&setup, &[&["ledger", "export"], arguments].concat());
    let lines = |arguments: &[&str]| -> Vec<Value> {
        let text = told(&export(arguments));
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    };
    let all = lines(&[]);
    assert_eq!(all.len(), usize::try_from(RECORDS).unwrap());
    for pair in all.windows(2) {
        assert_eq!(pair[1]["prev"], pair[0]["digest"]);
    }
    let settled = lines(&["--kind", "request_settled", "--key", "k1"]);
    assert_eq!(settled.len(), 50);
    assert!(settled.iter().all(|record| record["key"] == "k1"));
    assert_eq!(lines(&["--key", "k2"]).len(), 0);
    // The proxy's clock stands at noon of 30 November 2026.
    assert_eq!(lines(&["--since", "2026-11-30"]).len(), all.len());
    assert_eq!(lines(&["--since", "2026-12-01"]).len(), 0);
    assert_eq!(lines(&["--until", "2026-11-30T12:00:00Z"]).len(), 0);

    let csv = told(&export(&["--format", "csv", "--kind", "request_started"]));
    assert_eq!(csv.split("\r\n").count(), 52, "a head, 50 rows, an end");
    let none = told(&export(&["--format", "csv", "--key", "k2"]));
    assert!(none.starts_with("seq,at,kind,") && none.ends_with(",record\r\n"));

    let wrong = export(&["--since", "yesterday"]);
    let words = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(words.contains("\"yesterday\" is no instant"), "{words}");
    assert_eq!(export(&["--kind", "nothing"]).status.code(), Some(2));
}

#[tokio::test]
async fn a_cut_tail_an_older_file_and_a_ledger_written_anew_show_against_a_signed_head() {
    let setup = written().await;
    let file = |name: &str| setup.dir().join(name).display().to_string();
    let (key, public, kept) = (file("ledger.key"), file("ledger.key.pub"), file("heads"));
    assert!(run(&setup, &["ledger", "keygen", &key]).status.success());
    let again = run(&setup, &["ledger", "keygen", &key]);
    assert!(!again.status.success(), "a key is never written over");
    let secret = fs::read_to_string(&key).unwrap();
    let head = run(&setup, &["ledger", "head", "--signing-key", &key]);
    fs::write(&kept, &head.stdout).unwrap();
    assert!(!told(&head).contains(secret.lines().nth(1).unwrap()));

    let with_head = ["ledger", "verify", "--head", &kept, "--public-key", &public];
    let verified = run(&setup, &with_head);
    assert!(verified.status.success(), "{verified:?}");
    let database = ledger::database(&setup);
    let whole = fs::read(&database).unwrap();
    tamper(&database, "DELETE FROM ledger WHERE seq > 94").await;
    let alone = run(&setup, &["ledger", "verify"]);
    assert!(alone.status.success(), "without a head nothing tells");
    let words = told(&run(&setup, &with_head));
    let cut = "the ledger ends at record 94, and a head knows 104: 10 records were cut off";
    assert!(words.starts_with(cut), "{words}");

    // An older file that went on by itself has as many records, and other ones.
    let proxy = TestProxy::start(setup).await;
    for _ in 0..10 {
        let broken = proxy.k1().post("/v1/chat/completions", "{");
        assert_eq!(broken.answer().await.status, 400);
    }
    proxy.records("request_refused", 10).await;
    let setup = proxy.end().await;
    let words = told(&run(&setup, &with_head));
    assert!(words.starts_with("record 104 is not the one"), "{words}");

    fs::write(&database, &whole).unwrap();
    let forged = told(&head).replace("\"seq\":104", "\"seq\":94");
    fs::write(&kept, forged).unwrap();
    let refused = run(&setup, &with_head);
    let words = String::from_utf8(refused.stderr.clone()).unwrap();
    assert!(!refused.status.success());
    assert!(words.contains("is not by this key"), "{words}");
}
