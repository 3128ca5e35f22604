//! Published policy versions.

use sqlx::{Row as _, SqliteConnection};

use super::Reader;
use crate::{
    engine::policy::{Edition, Status},
    store::StoreError,
};

pub(super) async fn all(connection: &mut SqliteConnection) -> Result<Vec<Edition>, StoreError> {
    let rows = sqlx::query("SELECT id, version, sha256, status FROM seals ORDER BY id, version")
        .fetch_all(connection)
        .await?;
    let mut seals = Vec::with_capacity(rows.len());
    for row in rows {
        let status: String = row.try_get(3)?;
        seals.push(Edition {
            id: row.try_get(0)?,
            version: row.try_get(1)?,
            sha256: row.try_get(2)?,
            status: Status::of(&status)
                .ok_or_else(|| StoreError::Open(format!("a policy has the status {status:?}")))?,
        });
    }
    Ok(seals)
}

pub(super) async fn write(
    tx: &mut SqliteConnection,
    seals: &[Edition],
    now_ms: i64,
) -> Result<(), StoreError> {
    for seal in seals {
        // The digest that is there stays: who writes another one has not looked.
        sqlx::query(
            "INSERT INTO seals (id, version, sha256, status, at) VALUES (?, ?, ?, ?, ?) \
             ON CONFLICT (id, version) DO UPDATE SET status = excluded.status",
        )
        .bind(&seal.id)
        .bind(seal.version)
        .bind(&seal.sha256)
        .bind(seal.status.name())
        .bind(now_ms)
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

impl Reader {
    /// The versions of policies that were ever published.
    pub async fn seals(&mut self) -> Result<Vec<Edition>, StoreError> {
        all(&mut self.connection).await
    }
}
