use sqlx::Executor as _;

use super::*;

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
