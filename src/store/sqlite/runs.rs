//! Runs, kept for a while after they were last heard of.

use sqlx::{Row as _, SqliteConnection, sqlite::SqliteRow};

use super::Reader;
use crate::store::{RunRow, StoreError};

/// A run that was quiet for so long is over, and its accounts with it.
const KEPT_MS: i64 = 30 * 24 * 60 * 60 * 1000;
/// So many old ones go with one batch.
const FORGOTTEN: i64 = 50;

pub(super) async fn find(
    connection: &mut SqliteConnection,
    key: &str,
    id: &str,
) -> Result<Option<String>, StoreError> {
    let row = sqlx::query("SELECT state FROM runs WHERE key = ? AND id = ?")
        .bind(key)
        .bind(id)
        .fetch_optional(connection)
        .await?;
    row.map(|row| Ok(row.try_get(0)?)).transpose()
}

pub(super) async fn write(
    tx: &mut SqliteConnection,
    runs: &[RunRow],
    now_ms: i64,
) -> Result<(), StoreError> {
    for run in runs {
        sqlx::query(
            "INSERT INTO runs (key, id, seen_at, state) VALUES (?, ?, ?, ?) \
             ON CONFLICT (key, id) DO UPDATE SET seen_at = excluded.seen_at, \
             state = excluded.state",
        )
        .bind(&*run.key)
        .bind(&*run.id)
        .bind(now_ms)
        .bind(&run.state)
        .execute(&mut *tx)
        .await?;
    }
    if !runs.is_empty() {
        forget(tx, now_ms - KEPT_MS).await?;
    }
    Ok(())
}

async fn forget(tx: &mut SqliteConnection, before_ms: i64) -> Result<(), StoreError> {
    let old = sqlx::query("SELECT key, id FROM runs WHERE seen_at < ? LIMIT ?")
        .bind(before_ms)
        .bind(FORGOTTEN)
        .fetch_all(&mut *tx)
        .await?;
    for row in old {
        let (key, id): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let accounts = ["requests", "tokens", "usd"].map(|unit| format!("run/{key}/{id}/{unit}"));
        for account in accounts {
            sqlx::query("DELETE FROM spent WHERE account = ?")
                .bind(account)
                .execute(&mut *tx)
                .await?;
        }
        sqlx::query("DELETE FROM runs WHERE key = ? AND id = ?")
            .bind(key)
            .bind(id)
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

fn row(row: &SqliteRow) -> Result<(RunRow, i64), StoreError> {
    let (key, id): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let run = RunRow {
        key: key.into(),
        id: id.into(),
        state: row.try_get(2)?,
    };
    Ok((run, row.try_get(3)?))
}

impl Reader {
    /// Runs and when they were last heard of, newest first.
    pub async fn runs(&mut self, most: u32) -> Result<Vec<(RunRow, i64)>, StoreError> {
        let rows =
            sqlx::query("SELECT key, id, state, seen_at FROM runs ORDER BY seen_at DESC LIMIT ?")
                .bind(most)
                .fetch_all(&mut self.connection)
                .await?;
        rows.iter().map(row).collect()
    }

    /// The runs of this name, one for each key that has one.
    pub async fn runs_named(&mut self, id: &str) -> Result<Vec<(RunRow, i64)>, StoreError> {
        let rows = sqlx::query("SELECT key, id, state, seen_at FROM runs WHERE id = ?")
            .bind(id)
            .fetch_all(&mut self.connection)
            .await?;
        rows.iter().map(row).collect()
    }
}
