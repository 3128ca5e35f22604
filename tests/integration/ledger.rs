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
