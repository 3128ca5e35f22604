//! The reading connection behind the trait, and the search for records.

use sqlx::{QueryBuilder, Row as _, Sqlite as Database};

use super::{Reader, hours};
use crate::store::{
    Answer, LedgerLine, Standing, StoreError,
    approvals::{Approval, Listing},
    reader::{self, By, Found, Hours, Refusals, Stretch, Usage, Wanted},
};

impl reader::Reader for Reader {
    fn standing<'a>(
        &'a mut self,
        account: &'a str,
        period: i64,
        sliding: bool,
        now_ms: i64,
    ) -> Answer<'a, Standing> {
        Box::pin(Self::standing(self, account, period, sliding, now_ms))
    }

    fn lines_after(&mut self, seq: i64, most: i64) -> Answer<'_, Vec<LedgerLine>> {
        Box::pin(Self::lines_after(self, seq, most))
    }

    fn last_seq(&mut self) -> Answer<'_, i64> {
        Box::pin(Self::last_seq(self))
    }

    fn find<'a>(
        &'a mut self,
        wanted: &'a Wanted,
        within: Stretch,
        most: i64,
    ) -> Answer<'a, Vec<Found>> {
        Box::pin(find(self, wanted, within, most))
    }

    fn time_at(&mut self, seq: i64) -> Answer<'_, Option<i64>> {
        Box::pin(async move {
            let row =
                sqlx::query("SELECT body ->> 'at' FROM ledger WHERE seq >= ? ORDER BY seq LIMIT 1")
                    .bind(seq)
                    .fetch_optional(&mut self.connection)
                    .await?;
            row.map(|row| Ok(row.try_get(0)?)).transpose()
        })
    }

    fn approvals(&mut self, listing: Listing) -> Answer<'_, Vec<Approval>> {
        Box::pin(Self::approvals(self, listing))
    }

    fn approval<'a>(&'a mut self, id: &'a str) -> Answer<'a, Option<Approval>> {
        Box::pin(Self::approval(self, id))
    }

    fn waiting(&mut self, now_ms: i64) -> Answer<'_, u64> {
        Box::pin(async move {
            let row = sqlx::query(
                "SELECT COUNT(*) FROM approvals WHERE status = 'pending' AND expires_at > ?",
            )
            .bind(now_ms)
            .fetch_one(&mut self.connection)
            .await?;
            Ok(row.try_get::<i64, _>(0)?.unsigned_abs())
        })
    }

    fn usage(&mut self, hours: Hours, by: By, width: i64) -> Answer<'_, Vec<Usage>> {
        Box::pin(hours::usage(&mut self.connection, hours, by, width))
    }

    fn refusals(&mut self, hours: Hours) -> Answer<'_, Vec<Refusals>> {
        Box::pin(hours::refusals(&mut self.connection, hours))
    }
}

async fn find(
    reader: &mut Reader,
    wanted: &Wanted,
    within: Stretch,
    most: i64,
) -> Result<Vec<Found>, StoreError> {
    let rows = query(wanted, within, most)
        .build()
        .fetch_all(&mut reader.connection)
        .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Found {
                seq: row.try_get(0)?,
                body: row.try_get(1)?,
            })
        })
        .collect()
}

/// What is asked for goes in as values, never as text of the statement.
fn query(wanted: &Wanted, within: Stretch, most: i64) -> QueryBuilder<Database> {
    let mut query = QueryBuilder::new("SELECT seq, body FROM ledger WHERE seq > ");
    query.push_bind(within.after);
    query.push(" AND seq <= ").push_bind(within.up_to);
    if let Some(id) = &wanted.request_id {
        // Looking for the text first spares reading the JSON of all others.
        query.push(" AND instr(body, ").push_bind(id.clone());
        query
            .push(") AND body ->> 'request_id' = ")
            .push_bind(id.clone());
    }
    if !wanted.kinds.is_empty() {
        query.push(" AND body ->> 'kind' IN (");
        let mut kinds = query.separated(", ");
        for kind in &wanted.kinds {
            kinds.push_bind(kind.clone());
        }
        query.push(")");
    }
    let named = [
        ("key", &wanted.key),
        ("tenant", &wanted.tenant),
        ("run", &wanted.run),
    ];
    for (path, value) in named {
        if let Some(value) = value {
            query.push(format!(" AND body ->> '{path}' = "));
            query.push_bind(value.clone());
        }
    }
    if wanted.in_a_run {
        query.push(" AND instr(body, '\"run\":') AND body ->> 'run' IS NOT NULL");
    }
    if let Some(model) = &wanted.model {
        query
            .push(" AND (body ->> 'requested_model' = ")
            .push_bind(model.clone());
        query
            .push(" OR body ->> 'resolved_model' = ")
            .push_bind(model.clone());
        query.push(")");
    }
    if let Some(code) = &wanted.code {
        query
            .push(" AND (body ->> 'code' = ")
            .push_bind(code.clone());
        query
            .push(" OR body ->> 'blocked' = ")
            .push_bind(code.clone());
        query.push(
            " OR EXISTS (SELECT 1 FROM json_each(body, '$.results') \
             WHERE value ->> 'outcome' <> 'passed' AND value ->> 'code' = ",
        );
        query.push_bind(code.clone()).push("))");
    }
    for (sign, instant) in [(">=", wanted.from_ms), ("<", wanted.to_ms)] {
        if let Some(instant) = instant {
            query.push(format!(" AND body ->> 'at' {sign} "));
            query.push_bind(instant);
        }
    }
    query.push(" ORDER BY seq DESC LIMIT ").push_bind(most);
    query
}
