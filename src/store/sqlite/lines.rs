//! A batch's records as ledger lines: chained, and written with few statements.

use std::ops::Range;

use sqlx::{AssertSqlSafe, SqliteConnection};

use super::Head;
use crate::{
    engine::record::{Digest256, Record, link},
    store::StoreError,
};

/// Rows in one statement, largest first. Few sizes, so that every text stays prepared.
const SIZES: &[usize] = &[64, 8, 1];
/// What a body usually needs. Bytes.
const USUAL_BODY: usize = 768;

pub(super) struct Lines {
    /// All bodies, one after the other.
    text: String,
    rows: Vec<Row>,
    /// The chain's end once these are written.
    pub head: Head,
}

struct Row {
    seq: i64,
    digest: Digest256,
    body: Range<usize>,
}

impl Lines {
    /// Continues the chain after `head`.
    ///
    /// # Errors
    /// Never in practice: every record can be written as JSON.
    pub fn of(mut head: Head, records: &[Record]) -> Result<Self, StoreError> {
        let mut text = Vec::with_capacity(records.len() * USUAL_BODY);
        let mut bodies = Vec::with_capacity(records.len());
        for record in records {
            let start = text.len();
            serde_json::to_writer(&mut text, record).map_err(unwritable)?;
            bodies.push(start..text.len());
        }
        let text = String::from_utf8(text).map_err(unwritable)?;
        let rows = bodies
            .into_iter()
            .map(|body| {
                let written = text.get(body.clone()).unwrap_or_default();
                head.seq += 1;
                head.digest = link(&head.digest, head.seq, written);
                Row {
                    seq: head.seq,
                    digest: head.digest,
                    body,
                }
            })
            .collect();
        Ok(Self { text, rows, head })
    }

    pub async fn insert(&self, tx: &mut SqliteConnection) -> Result<(), StoreError> {
        let mut rest = self.rows.as_slice();
        for &size in SIZES {
            while let Some((some, others)) = rest.split_at_checked(size) {
                self.insert_some(tx, some).await?;
                rest = others;
            }
        }
        Ok(())
    }

    async fn insert_some(&self, tx: &mut SqliteConnection, rows: &[Row]) -> Result<(), StoreError> {
        let mut sql = String::from("INSERT INTO ledger (seq, digest, body) VALUES (?,?,?)");
        sql.push_str(&",(?,?,?)".repeat(rows.len() - 1));
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for row in rows {
            let body = self.text.get(row.body.clone()).unwrap_or_default();
            query = query.bind(row.seq).bind(&row.digest[..]).bind(body);
        }
        query.execute(tx).await?;
        Ok(())
    }
}

fn unwritable(error: impl std::fmt::Display) -> StoreError {
    StoreError::Down(format!("a record cannot be written: {error}"))
}
