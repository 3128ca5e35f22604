//! What is used and refused by the hour, added up in the transaction that writes the records.

use std::collections::HashMap;

use sqlx::{Row as _, SqliteConnection};

use super::signed;
use crate::{
    engine::record::{Event, Record},
    store::{
        StoreError,
        reader::{By, HOUR_MS, Hours, Refusals, Usage},
    },
};

/// What a batch adds, so that each row is written once.
#[derive(Default)]
struct Sums<'r> {
    usage: HashMap<(i64, &'r str, &'r str), Used>,
    refusals: HashMap<(i64, &'r str, &'r str, &'r str), u64>,
}

#[derive(Default)]
struct Used {
    requests: u64,
    tokens: u64,
    cost: u64,
}

pub(super) async fn write(tx: &mut SqliteConnection, records: &[Record]) -> Result<(), StoreError> {
    let sums = Sums::of(records);
    for ((hour, key, model), used) in sums.usage {
        sqlx::query(
            "INSERT INTO usage_hours (hour, key, model, requests, tokens, cost) \
             VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (hour, key, model) DO UPDATE SET \
             requests = requests + excluded.requests, tokens = tokens + excluded.tokens, \
             cost = cost + excluded.cost",
        )
        .bind(hour)
        .bind(key)
        .bind(model)
        .bind(signed(used.requests))
        .bind(signed(used.tokens))
        .bind(signed(used.cost))
        .execute(&mut *tx)
        .await?;
    }
    for ((hour, key, code, rule), count) in sums.refusals {
        sqlx::query(
            "INSERT INTO refusal_hours (hour, key, code, rule, count) VALUES (?, ?, ?, ?, ?) \
             ON CONFLICT (hour, key, code, rule) DO UPDATE SET count = count + excluded.count",
        )
        .bind(hour)
        .bind(key)
        .bind(code)
        .bind(rule)
        .bind(signed(count))
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

impl<'r> Sums<'r> {
    fn of(records: &'r [Record]) -> Self {
        let mut sums = Self::default();
        for record in records {
            let hour = record.at.div_euclid(HOUR_MS);
            match &record.event {
                Event::RequestSettled(closing) => {
                    let key = closing.subject.key.as_deref().unwrap_or_default();
                    let place = (hour, key, &*closing.resolved_model);
                    let used = sums.usage.entry(place).or_default();
                    used.requests += 1;
                    used.tokens += closing.input_tokens + closing.output_tokens;
                    used.cost += closing.cost_nano_usd;
                }
                Event::RequestRefused(refused) => {
                    let key = refused.subject.key.as_deref().unwrap_or_default();
                    let rule = refused.rule.as_deref().unwrap_or_default();
                    sums.refuse((hour, key, refused.code, rule), 1);
                }
                Event::RefusalsSummed(summary) => {
                    sums.refuse((hour, "", summary.code, ""), summary.count);
                }
                _ => {}
            }
        }
        sums
    }

    fn refuse(&mut self, place: (i64, &'r str, &'r str, &'r str), count: u64) {
        *self.refusals.entry(place).or_default() += count;
    }
}

pub(super) async fn usage(
    connection: &mut SqliteConnection,
    hours: Hours,
    by: By,
    width: i64,
) -> Result<Vec<Usage>, StoreError> {
    let statement = match by {
        By::Key => {
            "SELECT hour / ?1 * ?1, key, SUM(requests), SUM(tokens), SUM(cost) FROM usage_hours \
             WHERE hour >= ?2 AND hour < ?3 GROUP BY 1, 2 ORDER BY 1"
        }
        By::Model => {
            "SELECT hour / ?1 * ?1, model, SUM(requests), SUM(tokens), SUM(cost) FROM usage_hours \
             WHERE hour >= ?2 AND hour < ?3 GROUP BY 1, 2 ORDER BY 1"
        }
    };
    let rows = sqlx::query(statement)
        .bind(width)
        .bind(hours.from)
        .bind(hours.before)
        .fetch_all(connection)
        .await?;
    rows.into_iter()
        .map(|row| {
            let count = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
            Ok(Usage {
                hour: row.try_get(0)?,
                name: row.try_get(1)?,
                requests: count(2)?,
                tokens: count(3)?,
                cost_nano_usd: count(4)?,
            })
        })
        .collect()
}

pub(super) async fn refusals(
    connection: &mut SqliteConnection,
    hours: Hours,
) -> Result<Vec<Refusals>, StoreError> {
    let rows = sqlx::query(
        "SELECT key, code, rule, SUM(count), MAX(hour) FROM refusal_hours \
         WHERE hour >= ? AND hour < ? GROUP BY key, code, rule ORDER BY 4 DESC, 1, 2, 3",
    )
    .bind(hours.from)
    .bind(hours.before)
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Refusals {
                key: row.try_get(0)?,
                code: row.try_get(1)?,
                rule: row.try_get(2)?,
                count: row.try_get::<i64, _>(3)?.unsigned_abs(),
                last_hour: row.try_get(4)?,
            })
        })
        .collect()
}
