use sqlx::Executor as _;

use super::*;
use crate::{
    engine::record::{Closing, Event, Outcome, Record, Refused, Subject, Summary},
    store::reader::{self, By, HOUR_MS, Hours, Refusals, Usage},
};

fn batch(spent: i64) -> Batch {
    Batch {
        books: vec![BookEntry {
            account: "a".into(),
            spent: vec![(0, spent)],
            period: 0,
            lease: 0,
            reserved: 0,
        }],
        ..Batch::default()
    }
}

async fn spent(path: &Path) -> u64 {
    let mut reader = Reader::open(path).await.unwrap();
    reader.standing("a", 0, false, 0).await.unwrap().spent
}

/// SQLite ends some failed transactions by itself, which the library's count of them misses:
/// what follows on such a connection fails for ever.
#[tokio::test]
async fn a_commit_after_a_failed_one_is_written_once() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("a.db");
    let mut store = Sqlite::open(&path).await.unwrap();
    store.commit(&batch(3)).await.unwrap();
    let mut other = connect(&path, Open::Existing).await.unwrap();
    other
        .execute("ALTER TABLE spent RENAME TO away")
        .await
        .unwrap();
    store.commit(&batch(4)).await.unwrap_err();
    store.commit(&batch(4)).await.unwrap_err();
    other
        .execute("ALTER TABLE away RENAME TO spent")
        .await
        .unwrap();
    store.commit(&batch(4)).await.unwrap();
    assert_eq!(spent(&path).await, 7);
}

#[tokio::test]
async fn a_database_that_is_gone_is_not_made_anew_behind_our_back() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("a.db");
    let mut store = Sqlite::open(&path).await.unwrap();
    let mut other = connect(&path, Open::Existing).await.unwrap();
    other.execute("DROP TABLE spent").await.unwrap();
    store.commit(&batch(1)).await.unwrap_err();
    std::fs::remove_file(&path).unwrap();
    store.commit(&batch(1)).await.unwrap_err();
    assert!(!path.exists());
}

fn settled(at: i64, key: &str, model: &str, cost: u64) -> Record {
    let closing = Closing {
        subject: Subject {
            key: Some(key.into()),
            ..Subject::default()
        },
        provider: "p".into(),
        resolved_model: model.into(),
        answered_model: None,
        input_tokens: 10,
        cached_tokens: 0,
        output_tokens: 5,
        reasoning_tokens: 0,
        cost_nano_usd: cost,
        estimated: false,
        usage_suspect: false,
        outcome: Outcome::Completed,
        status: 200,
        tool_calls: 0,
        limits: Vec::new(),
        duration_ms: 1,
    };
    Record {
        at,
        request_id: None,
        event: Event::RequestSettled(Box::new(closing)),
    }
}

fn refused(at: i64, rule: Option<&str>) -> Record {
    let refused = Refused {
        subject: Subject::default(),
        code: "insufficient_quota",
        status: 402,
        rule: rule.map(str::to_owned),
        limits: Vec::new(),
        source: None,
        duration_ms: 1,
    };
    Record {
        at,
        request_id: None,
        event: Event::RequestRefused(Box::new(refused)),
    }
}

async fn added_up(path: &Path) -> (Vec<Usage>, Vec<Refusals>) {
    let mut reader = Reader::open(path).await.unwrap();
    let reader: &mut dyn reader::Reader = &mut reader;
    let hours = Hours { from: 0, before: 9 };
    (
        reader.usage(hours, By::Key, 1).await.unwrap(),
        reader.refusals(hours).await.unwrap(),
    )
}

/// What is added up as it is written is what a database of an earlier version is given when it is
/// brought to this one.
#[tokio::test]
async fn what_was_used_is_added_up_by_the_hour_for_the_past_as_for_the_present() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("a.db");
    let mut store = Sqlite::open(&path).await.unwrap();
    let summary = Summary {
        code: "invalid_api_key",
        source: None,
        count: 7,
    };
    let records = [
        settled(0, "a", "m", 1),
        settled(HOUR_MS - 1, "a", "n", 2),
        settled(HOUR_MS, "a", "m", 4),
        settled(HOUR_MS, "b", "m", 8),
        refused(HOUR_MS, Some("total_requests")),
        refused(2 * HOUR_MS, Some("total_requests")),
        refused(0, None),
        Record {
            at: 0,
            request_id: None,
            event: Event::RefusalsSummed(summary),
        },
    ];
    for some in records.chunks(3) {
        let batch = Batch {
            records: some.to_vec(),
            ..Batch::default()
        };
        store.commit(&batch).await.unwrap();
    }
    let (usage, refusals) = added_up(&path).await;
    let told: Vec<_> = usage
        .iter()
        .map(|used| {
            (
                used.hour,
                &*used.name,
                used.requests,
                used.tokens,
                used.cost_nano_usd,
            )
        })
        .collect();
    assert_eq!(
        told,
        [(0, "a", 2, 30, 3), (1, "a", 1, 15, 4), (1, "b", 1, 15, 8)]
    );
    let counts: Vec<_> = refusals
        .iter()
        .map(|refused| {
            (
                &*refused.code,
                &*refused.rule,
                refused.count,
                refused.last_hour,
            )
        })
        .collect();
    assert_eq!(
        counts,
        [
            ("invalid_api_key", "", 7, 0),
            ("insufficient_quota", "total_requests", 2, 2),
            ("insufficient_quota", "", 1, 0),
        ]
    );
    drop(store);
    let mut earlier = connect(&path, Open::Existing).await.unwrap();
    let back = "DROP TABLE usage_hours; DROP TABLE refusal_hours; DROP INDEX approvals_to_tell; \
         ALTER TABLE approvals DROP COLUMN told; PRAGMA user_version = 5";
    sqlx::raw_sql(back).execute(&mut earlier).await.unwrap();
    drop(earlier);
    drop(Sqlite::open(&path).await.unwrap());
    assert_eq!(added_up(&path).await, (usage, refusals));
}

async fn with_parked(path: &Path) -> Sqlite {
    let mut store = Sqlite::open(path).await.unwrap();
    let parked = Parked {
        id: "par_1".to_owned(),
        conversation: "c".to_owned(),
        request_id: "r".to_owned(),
        provider: "p".to_owned(),
        model: "m".to_owned(),
        streamed: false,
        // Longer than a page, so that it has pages of its own.
        answer: b"planted ".repeat(2_000),
        expires_at_ms: 1_000,
    };
    store.park(&parked, &[]).await.unwrap();
    store.forget().await.unwrap();
    store
}

fn holds_planted(path: &Path) -> bool {
    let files = [path.to_owned(), path.with_extension("db-wal")];
    let bytes = files.map(|file| std::fs::read(file).unwrap_or_default());
    String::from_utf8_lossy(&bytes.concat()).contains("planted")
}

#[tokio::test]
async fn an_expired_answer_leaves_the_files_once_nobody_reads() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("a.db");
    let mut store = with_parked(&path).await;
    let mut reader = connect(&path, Open::ToRead).await.unwrap();
    let mut reads = reader.begin().await.unwrap();
    let seen = sqlx::query("SELECT id FROM parked").fetch_all(&mut *reads);
    assert_eq!(seen.await.unwrap().len(), 1);
    store.unnoted(999).await.unwrap();
    store.forget().await.unwrap();
    assert!(holds_planted(&path), "it has not expired");
    store.unnoted(1_000).await.unwrap();
    store.forget().await.unwrap();
    assert!(holds_planted(&path), "somebody reads it");
    drop(reads);
    reader.close().await.unwrap();
    store.forget().await.unwrap();
    assert!(!holds_planted(&path));
}

#[tokio::test]
async fn a_log_that_cannot_be_cleared_is_tried_again_and_others_are_waited_for() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("a.db");
    let mut store = with_parked(&path).await;
    store.claim("par_1").await.unwrap();
    // Within a transaction the log cannot be cleared: an error, not a refusal.
    store.connection.execute("BEGIN IMMEDIATE").await.unwrap();
    store
        .connection
        .execute("DELETE FROM usage_hours")
        .await
        .unwrap();
    truncate_log(&mut store.connection).await.unwrap_err();
    let wait = sqlx::query("PRAGMA busy_timeout").fetch_one(&mut store.connection);
    let wait: i64 = wait.await.unwrap().get(0);
    assert_eq!(u128::try_from(wait).unwrap(), BUSY.as_millis());
    store.forget().await.unwrap_err();
    // The connection given up takes its transaction back in its own time.
    while store.to_forget {
        store.forget().await.unwrap();
    }
    assert!(!holds_planted(&path));
}
