//! Approvals and parked answers in SQLite.

use sqlx::{Connection as _, Row as _, SqliteConnection, sqlite::SqliteRow};

use super::Reader;
use crate::store::{
    StoreError,
    approvals::{Approval, Decided, Listing, Parked, Recorded, Status, Verdict},
};

/// Decided approvals stay visible for people this long.
const KEPT_MS: i64 = 30 * 24 * 60 * 60 * 1000;

const COLUMNS: &str = "id, parked, request_id, key, tenant, run, policy, tool, digest, rule, \
     arguments, status, created_at, expires_at, decided_at, decided_by, reason";

pub(super) async fn park(
    connection: &mut SqliteConnection,
    parked: &Parked,
    calls: &[Approval],
) -> Result<(), StoreError> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query(
        "INSERT INTO parked (id, conversation, request_id, provider, model, streamed, answer, \
         expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(&parked.id)
    .bind(&parked.conversation)
    .bind(&parked.request_id)
    .bind(&parked.provider)
    .bind(&parked.model)
    .bind(parked.streamed)
    .bind(&parked.answer)
    .bind(parked.expires_at_ms)
    .execute(&mut *tx)
    .await?;
    for (place, call) in (0_i64..).zip(calls) {
        sqlx::query(
            "INSERT INTO approvals (id, parked, place, request_id, key, tenant, run, policy, \
             tool, digest, rule, arguments, status, created_at, expires_at, noted) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?, 0)",
        )
        .bind(&call.id)
        .bind(&call.parked)
        .bind(place)
        .bind(&call.request_id)
        .bind(&*call.key)
        .bind(&*call.tenant)
        .bind(&call.run)
        .bind(&*call.policy)
        .bind(&call.tool)
        .bind(&call.digest)
        .bind(&call.rule)
        .bind(&call.arguments)
        .bind(call.created_at_ms)
        .bind(call.expires_at_ms)
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    Ok(())
}

pub(super) async fn parked_for(
    connection: &mut SqliteConnection,
    conversation: &str,
    now_ms: i64,
) -> Result<Option<Parked>, StoreError> {
    let row = sqlx::query(
        "SELECT id, conversation, request_id, provider, model, streamed, answer, expires_at \
         FROM parked WHERE conversation = ? AND expires_at > ? ORDER BY rowid DESC LIMIT 1",
    )
    .bind(conversation)
    .bind(now_ms)
    .fetch_optional(connection)
    .await?;
    let read = |row: SqliteRow| {
        Ok(Parked {
            id: row.try_get(0)?,
            conversation: row.try_get(1)?,
            request_id: row.try_get(2)?,
            provider: row.try_get(3)?,
            model: row.try_get(4)?,
            streamed: row.try_get(5)?,
            answer: row.try_get(6)?,
            expires_at_ms: row.try_get(7)?,
        })
    };
    row.map(read).transpose()
}

pub(super) async fn conversations(
    connection: &mut SqliteConnection,
    now_ms: i64,
) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query("SELECT DISTINCT conversation FROM parked WHERE expires_at > ?")
        .bind(now_ms)
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

pub(super) async fn of_parked(
    connection: &mut SqliteConnection,
    parked: &str,
) -> Result<Vec<Approval>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM approvals WHERE parked = ? ORDER BY place");
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(parked)
        .fetch_all(connection)
        .await?;
    rows.iter().map(approval).collect()
}

pub(super) async fn claim(
    connection: &mut SqliteConnection,
    parked: &str,
) -> Result<bool, StoreError> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let taken = sqlx::query("DELETE FROM parked WHERE id = ?")
        .bind(parked)
        .execute(&mut *tx)
        .await?
        .rows_affected();
    sqlx::query(
        "UPDATE approvals SET status = 'used', noted = 0 \
         WHERE parked = ? AND status = 'approved'",
    )
    .bind(parked)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(taken > 0)
}

pub(super) async fn decide(
    connection: &mut SqliteConnection,
    verdict: &Verdict,
) -> Result<Recorded, StoreError> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let done = sqlx::query(
        "UPDATE approvals SET status = ?2, decided_at = ?3, decided_by = ?4, reason = ?5, \
         arguments = NULL, noted = 0 \
         WHERE id = ?1 AND status = 'pending' AND expires_at > ?3",
    )
    .bind(&verdict.approval)
    .bind(verdict.status.name())
    .bind(verdict.now_ms)
    .bind(&verdict.by)
    .bind(&verdict.reason)
    .execute(&mut *tx)
    .await?
    .rows_affected();
    let known = find(&mut tx, &verdict.approval).await?;
    tx.commit().await?;
    Ok(match known {
        None => Recorded::Unknown,
        Some(mut known) if done == 0 => {
            if known.status == Status::Pending {
                known.status = Status::Expired;
            }
            Recorded::Late(Box::new(known))
        }
        Some(known) => Recorded::Done(Box::new(known)),
    })
}

/// Lets the time run out for what is due. Whether an answer was deleted by it.
pub(super) async fn expire(
    connection: &mut SqliteConnection,
    now_ms: i64,
) -> Result<bool, StoreError> {
    sqlx::query(
        "UPDATE approvals SET status = 'expired', arguments = NULL, noted = 0 \
         WHERE status = 'pending' AND expires_at <= ?",
    )
    .bind(now_ms)
    .execute(&mut *connection)
    .await?;
    let deleted = sqlx::query("DELETE FROM parked WHERE expires_at <= ?")
        .bind(now_ms)
        .execute(&mut *connection)
        .await?
        .rows_affected();
    sqlx::query("DELETE FROM approvals WHERE expires_at <= ? AND noted = 1")
        .bind(now_ms - KEPT_MS)
        .execute(&mut *connection)
        .await?;
    Ok(deleted > 0)
}

pub(super) async fn unnoted(
    connection: &mut SqliteConnection,
) -> Result<Vec<Approval>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM approvals WHERE noted = 0 ORDER BY rowid LIMIT 500");
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .fetch_all(connection)
        .await?;
    rows.iter().map(approval).collect()
}

pub(super) async fn untold(
    connection: &mut SqliteConnection,
    now_ms: i64,
) -> Result<Vec<Approval>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM approvals WHERE status = 'pending' AND told = 0 \
         AND expires_at > ? ORDER BY created_at, rowid LIMIT 500"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(now_ms)
        .fetch_all(connection)
        .await?;
    rows.iter().map(approval).collect()
}

pub(super) async fn tell(connection: &mut SqliteConnection, id: &str) -> Result<(), StoreError> {
    sqlx::query("UPDATE approvals SET told = 1 WHERE id = ?")
        .bind(id)
        .execute(connection)
        .await?;
    Ok(())
}

/// In the transaction that writes their records.
pub(super) async fn note(
    tx: &mut SqliteConnection,
    noted: &[(String, Status)],
) -> Result<(), StoreError> {
    for (id, status) in noted {
        sqlx::query("UPDATE approvals SET noted = 1 WHERE id = ? AND status = ?")
            .bind(id)
            .bind(status.name())
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

async fn find(connection: &mut SqliteConnection, id: &str) -> Result<Option<Approval>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM approvals WHERE id = ?");
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(id)
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(approval).transpose()
}

fn approval(row: &SqliteRow) -> Result<Approval, StoreError> {
    let text = |column: usize| -> Result<std::sync::Arc<str>, sqlx::Error> {
        Ok(row.try_get::<String, _>(column)?.into())
    };
    let status: String = row.try_get(11)?;
    let decided_at: Option<i64> = row.try_get(14)?;
    let by: Option<String> = row.try_get(15)?;
    let reason: Option<String> = row.try_get(16)?;
    Ok(Approval {
        id: row.try_get(0)?,
        parked: row.try_get(1)?,
        request_id: row.try_get(2)?,
        key: text(3)?,
        tenant: text(4)?,
        run: row.try_get(5)?,
        policy: text(6)?,
        tool: row.try_get(7)?,
        digest: row.try_get(8)?,
        rule: row.try_get(9)?,
        arguments: row.try_get(10)?,
        status: Status::of(&status)
            .ok_or_else(|| StoreError::Open(format!("an approval has the status {status:?}")))?,
        created_at_ms: row.try_get(12)?,
        expires_at_ms: row.try_get(13)?,
        decision: decided_at.map(|at_ms| Decided {
            at_ms,
            by: by.unwrap_or_default(),
            reason: reason.unwrap_or_default(),
        }),
    })
}

impl Reader {
    /// Newest first.
    pub async fn approvals(&mut self, listing: Listing) -> Result<Vec<Approval>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM approvals WHERE ?1 IS NULL OR status = ?1 \
             ORDER BY created_at DESC, rowid DESC LIMIT ?2"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(listing.status.map(Status::name))
            .bind(listing.most)
            .fetch_all(&mut self.connection)
            .await?;
        rows.iter().map(approval).collect()
    }

    pub async fn approval(&mut self, id: &str) -> Result<Option<Approval>, StoreError> {
        find(&mut self.connection, id).await
    }
}
