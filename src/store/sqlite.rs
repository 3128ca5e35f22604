//! SQLite: WAL, one writer, full synchronisation. No arithmetic in SQL but sums: the rules are
//! `engine::budget`'s.

#[cfg(test)]
mod tests;

use std::{
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    pin::Pin,
    str::FromStr,
    time::Duration,
};

use fs4::fs_std::FileExt as _;
use sqlx::{
    Connection, Row, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use self::lines::Lines;
use super::{
    Answer, Batch, BookEntry, GrantReply, GrantRequest, LedgerLine, Owner, Standing, Store,
    StoreError,
    approvals::{Approval, ApprovalStore, Parked, Recorded, Verdict},
};
use crate::engine::{
    budget::{grant, live_after},
    policy::Edition,
    record::{CHAIN_START, Digest256},
};

mod approvals;
mod hours;
mod lines;
mod owners;
mod reading;
mod runs;
mod seals;

const MIGRATIONS: &[&str] = &[
    include_str!("migrations/sqlite/001_start.sql"),
    include_str!("migrations/sqlite/002_owners.sql"),
    include_str!("migrations/sqlite/003_approvals.sql"),
    include_str!("migrations/sqlite/004_seals.sql"),
    include_str!("migrations/sqlite/005_runs.sql"),
    include_str!("migrations/sqlite/006_hours.sql"),
    include_str!("migrations/sqlite/007_told.sql"),
];
const BUSY: Duration = Duration::from_secs(5);

/// The serving process's connection. Holds the lock file for as long as it lives.
pub struct Sqlite {
    path: PathBuf,
    connection: SqliteConnection,
    /// The last commit failed: nobody knows in which state it left the connection.
    suspect: bool,
    /// The write-ahead log may hold what approvals no longer do.
    to_forget: bool,
    head: Head,
    _lock: File,
}

/// The end of the chain.
#[derive(Clone, Copy)]
struct Head {
    seq: i64,
    digest: Digest256,
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        Self::Down(error.to_string())
    }
}

impl Sqlite {
    /// Opens (and makes) the database for serving.
    ///
    /// # Errors
    /// `InUse` when another process serves from it.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let (mut connection, lock, _) = prepare(path).await?;
        let last = sqlx::query("SELECT seq, digest FROM ledger ORDER BY seq DESC LIMIT 1")
            .fetch_optional(&mut connection)
            .await?;
        let head = match last {
            Some(row) => Head {
                seq: row.try_get(0)?,
                digest: digest(&row, 1)?,
            },
            None => Head {
                seq: 0,
                digest: CHAIN_START,
            },
        };
        Ok(Self {
            path: path.to_owned(),
            connection,
            suspect: false,
            // An earlier process may have left something.
            to_forget: true,
            head,
            _lock: lock,
        })
    }

    /// A connection that nobody knows the state of is not used again.
    async fn reconnect(&mut self) -> Result<(), StoreError> {
        if self.suspect {
            self.connection = connect(&self.path, Open::Existing).await?;
            self.suspect = false;
        }
        Ok(())
    }

    async fn write(&mut self, batch: &Batch) -> Result<Vec<GrantReply>, StoreError> {
        let lines = Lines::of(self.head, &batch.records)?;
        // Their arguments were deleted when they were decided.
        self.to_forget |= !batch.noted.is_empty();
        let mut tx = self.connection.begin_with("BEGIN IMMEDIATE").await?;
        for entry in &batch.books {
            write_entry(&mut tx, entry, batch.now_ms).await?;
        }
        let mut replies = Vec::with_capacity(batch.grants.len());
        for request in &batch.grants {
            replies.push(write_grant(&mut tx, request, batch.now_ms).await?);
        }
        owners::write(&mut tx, &batch.owned, batch.now_ms).await?;
        approvals::note(&mut tx, &batch.noted).await?;
        runs::write(&mut tx, &batch.runs, batch.now_ms).await?;
        seals::write(&mut tx, &batch.seals, batch.now_ms).await?;
        hours::write(&mut tx, &batch.records).await?;
        lines.insert(&mut tx).await?;
        tx.commit().await?;
        self.head = lines.head;
        Ok(replies)
    }

    async fn recover_leases(&mut self, now_ms: i64) -> Result<Vec<(String, i64, u64)>, StoreError> {
        let mut tx = self.connection.begin_with("BEGIN IMMEDIATE").await?;
        let rows = sqlx::query("SELECT account, period, SUM(amount) FROM leases WHERE amount > 0 GROUP BY account, period")
            .fetch_all(&mut *tx)
            .await?;
        let mut recovered = Vec::with_capacity(rows.len());
        for row in rows {
            let (account, period, amount): (String, i64, i64) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            // A sliding lease may have been used up to this moment, so it counts from now.
            let sliding = account.ends_with("/minute");
            let booked = if sliding { now_ms } else { period };
            add_spent(&mut tx, &account, booked, amount).await?;
            recovered.push((account, booked, amount.unsigned_abs()));
        }
        sqlx::query("DELETE FROM leases").execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(recovered)
    }
}

impl Store for Sqlite {
    fn commit<'a>(&'a mut self, batch: &'a Batch) -> Answer<'a, Vec<GrantReply>> {
        Box::pin(async {
            self.reconnect().await?;
            let done = self.write(batch).await;
            self.suspect = done.is_err();
            done
        })
    }

    fn recover(&mut self, now_ms: i64) -> Answer<'_, Vec<(String, i64, u64)>> {
        Box::pin(self.recover_leases(now_ms))
    }

    fn run<'a>(&'a mut self, key: &'a str, id: &'a str) -> Answer<'a, Option<String>> {
        Box::pin(runs::find(&mut self.connection, key, id))
    }

    fn seals(&mut self) -> Answer<'_, Vec<Edition>> {
        Box::pin(seals::all(&mut self.connection))
    }

    fn owners<'a>(&'a mut self, ids: &'a [String]) -> Answer<'a, Vec<Option<Owner>>> {
        Box::pin(owners::find(&mut self.connection, ids))
    }

    fn forget(&mut self) -> Answer<'_, ()> {
        Box::pin(async {
            if !self.to_forget {
                return Ok(());
            }
            self.reconnect().await?;
            let done = truncate_log(&mut self.connection).await;
            self.suspect = done.is_err();
            self.to_forget = !done?;
            Ok(())
        })
    }

    fn close(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let done = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut self.connection);
            if let Err(error) = done.await {
                tracing::warn!(%error, "the write-ahead log could not be folded in");
            }
        })
    }
}

/// Without waiting for who reads, since requests wait for this connection. `false`: somebody
/// reads.
async fn truncate_log(connection: &mut SqliteConnection) -> Result<bool, StoreError> {
    wait_at_most(connection, Duration::ZERO).await?;
    let done = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
        .fetch_one(&mut *connection)
        .await;
    // Whatever came of it: all that follows on this connection has to wait for others.
    wait_at_most(connection, BUSY).await?;
    Ok(done?.try_get::<i64, _>(0)? == 0)
}

async fn wait_at_most(connection: &mut SqliteConnection, wait: Duration) -> Result<(), StoreError> {
    let set = format!("PRAGMA busy_timeout = {}", wait.as_millis());
    sqlx::raw_sql(sqlx::AssertSqlSafe(set))
        .execute(connection)
        .await?;
    Ok(())
}

/// Runs one of the approvals' transactions on a connection in a known state.
macro_rules! on_connection {
    ($store:ident, $connection:ident => $work:expr) => {
        Box::pin(async move {
            $store.reconnect().await?;
            let $connection = &mut $store.connection;
            let done = $work.await;
            $store.suspect = done.is_err();
            done
        })
    };
}

impl ApprovalStore for Sqlite {
    fn park<'a>(&'a mut self, parked: &'a Parked, calls: &'a [Approval]) -> Answer<'a, ()> {
        on_connection!(self, connection => approvals::park(connection, parked, calls))
    }

    fn parked_for<'a>(
        &'a mut self,
        conversation: &'a str,
        now_ms: i64,
    ) -> Answer<'a, Option<Parked>> {
        on_connection!(self, connection => approvals::parked_for(connection, conversation, now_ms))
    }

    fn conversations(&mut self, now_ms: i64) -> Answer<'_, Vec<String>> {
        on_connection!(self, connection => approvals::conversations(connection, now_ms))
    }

    fn approvals_of<'a>(&'a mut self, parked: &'a str) -> Answer<'a, Vec<Approval>> {
        on_connection!(self, connection => approvals::of_parked(connection, parked))
    }

    fn claim<'a>(&'a mut self, parked: &'a str) -> Answer<'a, bool> {
        self.to_forget = true;
        on_connection!(self, connection => approvals::claim(connection, parked))
    }

    fn decide<'a>(&'a mut self, verdict: &'a Verdict) -> Answer<'a, Recorded> {
        on_connection!(self, connection => approvals::decide(connection, verdict))
    }

    fn unnoted(&mut self, now_ms: i64) -> Answer<'_, Vec<Approval>> {
        Box::pin(async move {
            self.reconnect().await?;
            let done = match approvals::expire(&mut self.connection, now_ms).await {
                Ok(deleted) => {
                    self.to_forget |= deleted;
                    approvals::unnoted(&mut self.connection).await
                }
                Err(error) => Err(error),
            };
            self.suspect = done.is_err();
            self.to_forget |= done.is_err();
            done
        })
    }

    fn untold(&mut self, now_ms: i64) -> Answer<'_, Vec<Approval>> {
        on_connection!(self, connection => approvals::untold(connection, now_ms))
    }

    fn tell<'a>(&'a mut self, approval: &'a str) -> Answer<'a, ()> {
        on_connection!(self, connection => approvals::tell(connection, approval))
    }
}

async fn write_entry(
    tx: &mut SqliteConnection,
    entry: &BookEntry,
    now_ms: i64,
) -> Result<(), StoreError> {
    for (period, change) in &entry.spent {
        add_spent(tx, &entry.account, *period, *change).await?;
    }
    if entry.account.ends_with("/minute") {
        sqlx::query("DELETE FROM spent WHERE account = ? AND period <= ?")
            .bind(&*entry.account)
            .bind(live_after(now_ms))
            .execute(&mut *tx)
            .await?;
    }
    let statement = if entry.lease == 0 && entry.reserved == 0 {
        "DELETE FROM leases WHERE holder = 'self' AND account = ? AND period = ?"
    } else {
        "INSERT INTO leases (holder, account, period, amount, reserved) VALUES ('self', ?1, ?2, ?3, ?4)
         ON CONFLICT (account, period, holder) DO UPDATE SET amount = ?3, reserved = ?4"
    };
    let mut query = sqlx::query(statement)
        .bind(&*entry.account)
        .bind(entry.period);
    if entry.lease != 0 || entry.reserved != 0 {
        query = query.bind(signed(entry.lease)).bind(signed(entry.reserved));
    }
    query.execute(&mut *tx).await?;
    Ok(())
}

async fn add_spent(
    tx: &mut SqliteConnection,
    account: &str,
    period: i64,
    change: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO spent (account, period, amount) VALUES (?1, ?2, MAX(0, ?3))
         ON CONFLICT (account, period) DO UPDATE SET amount = MAX(0, amount + ?3)",
    )
    .bind(account)
    .bind(period)
    .bind(change)
    .execute(tx)
    .await?;
    Ok(())
}

async fn write_grant(
    tx: &mut SqliteConnection,
    request: &GrantRequest,
    now_ms: i64,
) -> Result<GrantReply, StoreError> {
    let spent = spent_sum(tx, request, now_ms).await?;
    let leased: i64 =
        sqlx::query("SELECT COALESCE(SUM(amount), 0) FROM leases WHERE account = ? AND period = ?")
            .bind(&*request.account)
            .bind(request.period)
            .fetch_one(&mut *tx)
            .await?
            .try_get(0)?;
    let leased = leased.unsigned_abs();
    let granted = grant(request.limit, spent, leased, request.needed, request.ahead);
    if granted > 0 {
        sqlx::query(
            "INSERT INTO leases (holder, account, period, amount, reserved) VALUES ('self', ?1, ?2, ?3, 0)
             ON CONFLICT (account, period, holder) DO UPDATE SET amount = amount + ?3",
        )
        .bind(&*request.account)
        .bind(request.period)
        .bind(signed(granted))
        .execute(&mut *tx)
        .await?;
    }
    let short = granted == 0 || granted < request.needed;
    let live = if request.sliding && (request.rows || short) {
        spent_rows(tx, request, now_ms).await?
    } else {
        Vec::new()
    };
    Ok(GrantReply {
        granted,
        spent,
        leased,
        live,
    })
}

async fn spent_sum(
    tx: &mut SqliteConnection,
    request: &GrantRequest,
    now_ms: i64,
) -> Result<u64, StoreError> {
    let (sql, from) = if request.sliding {
        (
            "SELECT COALESCE(SUM(amount), 0) FROM spent WHERE account = ? AND period > ?",
            live_after(now_ms),
        )
    } else {
        (
            "SELECT COALESCE(SUM(amount), 0) FROM spent WHERE account = ? AND period = ?",
            request.period,
        )
    };
    let row = sqlx::query(sql)
        .bind(&*request.account)
        .bind(from)
        .fetch_one(tx)
        .await?;
    Ok(row.try_get::<i64, _>(0)?.unsigned_abs())
}

async fn spent_rows(
    tx: &mut SqliteConnection,
    request: &GrantRequest,
    now_ms: i64,
) -> Result<Vec<(i64, u64)>, StoreError> {
    let rows = sqlx::query(
        "SELECT period, amount FROM spent WHERE account = ? AND period > ? ORDER BY period",
    )
    .bind(&*request.account)
    .bind(live_after(now_ms))
    .fetch_all(tx)
    .await?;
    rows.into_iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get::<i64, _>(1)?.unsigned_abs())))
        .collect()
}

/// Decides about approvals beside a serving process.
pub struct Decider {
    connection: SqliteConnection,
}

impl Decider {
    /// # Errors
    /// `Open` when there is no such database.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let connection = connect(path, Open::Existing)
            .await
            .map_err(|error| StoreError::Open(format!("{}: {error}", path.display())))?;
        Ok(Self { connection })
    }

    /// # Errors
    /// The database does not answer: nothing is decided.
    pub async fn decide(&mut self, verdict: &Verdict) -> Result<Recorded, StoreError> {
        approvals::decide(&mut self.connection, verdict).await
    }
}

/// Reads beside a serving process; changes nothing.
pub struct Reader {
    connection: SqliteConnection,
}

impl Reader {
    /// # Errors
    /// `Open` when there is no such database.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let connection = connect(path, Open::ToRead)
            .await
            .map_err(|error| StoreError::Open(format!("{}: {error}", path.display())))?;
        Ok(Self { connection })
    }

    /// How an account stands in the period (or, sliding, in the last 60 seconds).
    pub async fn standing(
        &mut self,
        account: &str,
        period: i64,
        sliding: bool,
        now_ms: i64,
    ) -> Result<Standing, StoreError> {
        let request = GrantRequest {
            account: account.into(),
            period,
            sliding,
            rows: false,
            limit: 0,
            needed: 0,
            ahead: 0,
        };
        let spent = spent_sum(&mut self.connection, &request, now_ms).await?;
        let reserved: i64 = sqlx::query(
            "SELECT COALESCE(SUM(amount), 0) FROM leases WHERE account = ? AND period = ?",
        )
        .bind(account)
        .bind(period)
        .fetch_one(&mut self.connection)
        .await?
        .try_get(0)?;
        Ok(Standing {
            spent,
            leased: reserved.unsigned_abs(),
        })
    }

    /// The ledger's lines after `seq`, oldest first, at most `most`.
    pub async fn lines_after(
        &mut self,
        seq: i64,
        most: i64,
    ) -> Result<Vec<LedgerLine>, StoreError> {
        let mut prev =
            sqlx::query("SELECT digest FROM ledger WHERE seq <= ? ORDER BY seq DESC LIMIT 1")
                .bind(seq)
                .fetch_optional(&mut self.connection)
                .await?
                .map_or(Ok(CHAIN_START), |row| digest(&row, 0))?;
        let rows =
            sqlx::query("SELECT seq, digest, body FROM ledger WHERE seq > ? ORDER BY seq LIMIT ?")
                .bind(seq)
                .bind(most)
                .fetch_all(&mut self.connection)
                .await?;
        rows.into_iter()
            .map(|row| {
                let digest = digest(&row, 1)?;
                Ok(LedgerLine {
                    seq: row.try_get(0)?,
                    prev: std::mem::replace(&mut prev, digest),
                    digest,
                    body: row.try_get(2)?,
                })
            })
            .collect()
    }

    pub async fn last_seq(&mut self) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT COALESCE(MAX(seq), 0) FROM ledger")
            .fetch_one(&mut self.connection)
            .await?;
        Ok(row.try_get(0)?)
    }
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    OrMake,
    /// An empty database in the place of one that is gone would have forgotten what was used.
    Existing,
    ToRead,
}

async fn connect(path: &Path, open: Open) -> Result<SqliteConnection, sqlx::Error> {
    let options = SqliteConnectOptions::from_str("sqlite::memory:")?
        .filename(path)
        .in_memory(false)
        .shared_cache(false)
        .create_if_missing(open == Open::OrMake)
        .read_only(open == Open::ToRead)
        .busy_timeout(BUSY);
    let options = if open == Open::ToRead {
        options
    } else {
        options
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            // Parked answers hold what was said: deleted ones must not stay in free pages.
            .pragma("secure_delete", "ON")
    };
    SqliteConnection::connect_with(&options).await
}

/// Brings the database to this version's form, and says from which version to which.
///
/// # Errors
/// `InUse` when a process serves from it: that one has done it already.
pub async fn migrate(path: &Path) -> Result<(i64, i64), StoreError> {
    let (connection, _lock, versions) = prepare(path).await?;
    connection.close().await?;
    Ok(versions)
}

/// Makes the database if it is not there, takes it for this process, and migrates it.
async fn prepare(path: &Path) -> Result<(SqliteConnection, File, (i64, i64)), StoreError> {
    let open =
        |error: &dyn std::fmt::Display| StoreError::Open(format!("{}: {error}", path.display()));
    if let Some(parent) = path.parent() {
        make_private(parent).map_err(|error| open(&error))?;
    }
    let lock = lock(path)?;
    let mut connection = connect(path, Open::OrMake)
        .await
        .map_err(|error| open(&error))?;
    let versions = run_migrations(&mut connection)
        .await
        .map_err(|error| open(&error))?;
    let (from, newest) = versions;
    if from > newest {
        return Err(open(&format!(
            "it is of version {from}, and this Tallygate knows {newest} at most"
        )));
    }
    Ok((connection, lock, versions))
}

async fn run_migrations(connection: &mut SqliteConnection) -> Result<(i64, i64), sqlx::Error> {
    let version: i64 = sqlx::query("PRAGMA user_version")
        .fetch_one(&mut *connection)
        .await?
        .try_get(0)?;
    for (number, sql) in (1_i64..)
        .zip(MIGRATIONS)
        .filter(|(number, _)| *number > version)
    {
        let mut tx = connection.begin().await?;
        sqlx::raw_sql(*sql).execute(&mut *tx).await?;
        let mark = sqlx::AssertSqlSafe(format!("PRAGMA user_version = {number}"));
        sqlx::raw_sql(mark).execute(&mut *tx).await?;
        tx.commit().await?;
    }
    Ok((version, i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)))
}

fn lock(path: &Path) -> Result<File, StoreError> {
    let name = path.with_extension("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&name)
        .map_err(|error| StoreError::Open(format!("{}: {error}", name.display())))?;
    match file.try_lock_exclusive() {
        Ok(true) => Ok(file),
        _ => Err(StoreError::InUse(path.display().to_string())),
    }
}

#[cfg(unix)]
fn make_private(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if directory.as_os_str().is_empty() || directory.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

fn digest(row: &sqlx::sqlite::SqliteRow, column: usize) -> Result<Digest256, StoreError> {
    let bytes: &[u8] = row.try_get(column)?;
    bytes
        .try_into()
        .map_err(|_| StoreError::Open("a digest in the ledger is not 32 bytes long".to_owned()))
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
