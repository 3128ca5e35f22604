//! Whose the answers are that providers keep.

use sqlx::{Row as _, SqliteConnection};

use crate::store::{Owned, Owner, StoreError};

/// Providers keep answers for a month; nobody can refer to one that is older than this.
const KEPT_MS: i64 = 45 * 24 * 60 * 60 * 1000;

pub(super) async fn write(
    tx: &mut SqliteConnection,
    owned: &[Owned],
    now_ms: i64,
) -> Result<(), StoreError> {
    for Owned { id, owner } in owned {
        // An id that two keys were given tells nothing: it is nobody's from then on.
        sqlx::query(
            "INSERT INTO owners (id, key, provider, tokens, at) VALUES (?, ?, ?, ?, ?) \
             ON CONFLICT (id) DO UPDATE SET \
             key = CASE WHEN key = excluded.key AND provider = excluded.provider \
             THEN key ELSE '' END, tokens = excluded.tokens, at = excluded.at",
        )
        .bind(id)
        .bind(&*owner.key)
        .bind(&*owner.provider)
        .bind(owner.tokens.and_then(|tokens| i64::try_from(tokens).ok()))
        .bind(now_ms)
        .execute(&mut *tx)
        .await?;
    }
    if !owned.is_empty() {
        sqlx::query("DELETE FROM owners WHERE at < ?")
            .bind(now_ms - KEPT_MS)
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

pub(super) async fn find(
    connection: &mut SqliteConnection,
    ids: &[String],
) -> Result<Vec<Option<Owner>>, StoreError> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let row = sqlx::query("SELECT key, provider, tokens FROM owners WHERE id = ?")
            .bind(id)
            .fetch_optional(&mut *connection)
            .await?;
        let owner = row.map(|row| {
            let (key, provider): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let tokens: Option<i64> = row.try_get(2)?;
            Ok::<_, sqlx::Error>(Owner {
                key: key.into(),
                provider: provider.into(),
                tokens: tokens.map(i64::unsigned_abs),
            })
        });
        found.push(owner.transpose()?);
    }
    Ok(found)
}
