//! Reads the ledger beside the running product, as its own command line does.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use serde_json::Value;
use sqlx::{Connection, Executor as _, Row, sqlite::SqliteConnectOptions};

use super::{Setup, within};

pub fn database(setup: &Setup) -> PathBuf {
    setup.dir().join("var/tallygate.db")
}

/// Fails the test unless `tallygate ledger verify` finds that the chain holds.
pub fn holds(setup: &Setup) {
    let verify = run(setup, "verify");
    assert!(verify.status.success(), "{verify:?}");
}

/// All that `tallygate ledger export` writes.
pub fn exported(setup: &Setup) -> String {
    String::from_utf8(run(setup, "export").stdout).unwrap()
}

fn run(setup: &Setup, command: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tallygate"))
        .args(["ledger", command, "--config"])
        .arg(setup.file())
        .output()
        .unwrap()
}

/// All records of `kind` in their order, once at least `count` are on disk. Records are written
/// in batches behind the answers, and the file tells nobody when: hence the polling.
pub async fn records(database: &Path, kind: &str, count: usize) -> Vec<Value> {
    within(&format!("{count} records {kind}"), async {
        loop {
            let found = read(database, kind).await.unwrap_or_default();
            if found.len() >= count {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

async fn read(database: &Path, kind: &str) -> sqlx::Result<Vec<Value>> {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .read_only(true);
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await?;
    let query =
        sqlx::query("SELECT body FROM ledger WHERE body ->> 'kind' = ? ORDER BY seq").bind(kind);
    let rows = query.fetch_all(&mut connection).await?;
    connection.close().await?;
    Ok(rows
        .iter()
        .map(|row| serde_json::from_str(row.get("body")).unwrap())
        .collect())
}

/// What the store counts as used and as held of an account over all its periods.
pub async fn spent_and_reserved(database: &Path, account: &str) -> (usize, usize) {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .read_only(true);
    let mut connection = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    let row = sqlx::query(
        "SELECT (SELECT COALESCE(SUM(amount), 0) FROM spent WHERE account = ?1) AS used,
                (SELECT COALESCE(SUM(amount), 0) FROM leases WHERE account = ?1) AS held",
    )
    .bind(account)
    .fetch_one(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();
    ["used", "held"]
        .map(|name| usize::try_from(row.get::<i64, _>(name)).unwrap())
        .into()
}

/// Changes the text of one record behind the product's back.
pub async fn forge(setup: &Setup, seq: i64) {
    let options = SqliteConnectOptions::new().filename(database(setup));
    let mut connection = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    let query =
        sqlx::query("UPDATE ledger SET body = replace(body, '200', '201') || ' ' WHERE seq = ?");
    let done = query.bind(seq).execute(&mut connection).await.unwrap();
    assert_eq!(done.rows_affected(), 1);
    connection.close().await.unwrap();
}

/// Holds the database so that nobody else can write.
pub struct Lock(sqlx::SqliteConnection);

impl Lock {
    pub async fn on(setup: &Setup) -> Self {
        let file = database(setup);
        let options = SqliteConnectOptions::new().filename(file);
        let mut connection = sqlx::SqliteConnection::connect_with(&options)
            .await
            .unwrap();
        connection.execute("BEGIN IMMEDIATE").await.unwrap();
        Self(connection)
    }

    pub async fn release(self) {
        self.0.close().await.unwrap();
    }
}
