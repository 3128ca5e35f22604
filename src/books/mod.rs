//! This process's side of the accounts and the ledger: reservations in memory, slices asked
//! for ahead of need, everything written down in batches by one thread of its own.

mod account;
mod desk;
mod growth;
mod keeper;
mod need;
mod owners;
mod purse;
mod reservation;
mod runs;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dashmap::DashMap;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use self::{
    account::{Account, State},
    keeper::Message,
    purse::Parallel,
};
pub use self::{
    desk::{Desk, Outcome},
    growth::STEP,
    need::Need,
    purse::{AtOnce, Purse, RateView},
    reservation::{Actual, Reservation},
    runs::OpenRun,
};
use crate::{
    clock::Clock,
    engine::{
        budget::{LimitNote, LimitSpec, Unit, Window},
        money::Money,
        policy::{Edition, Status},
        record::{Event, Record, Summary},
    },
    metrics::Metrics,
    store::{Store, StoreError},
};

/// More unwritten records than this: the store is behind, and we no longer go on.
const MOST_QUEUED: usize = if cfg!(test) { 500 } else { 200_000 };
/// A request waits this long for the store at most.
const PATIENCE: Duration = Duration::from_secs(5);

/// A handle; cheap to clone, usable from every runtime.
#[derive(Clone)]
pub struct Books(Arc<Shared>);

pub struct Shared {
    pub clock: Clock,
    to_keeper: mpsc::UnboundedSender<Message>,
    /// Somebody waits for the writing thread.
    urgent: Notify,
    accounts: DashMap<Arc<str>, Arc<Account>>,
    parallel: DashMap<Arc<str>, Arc<Parallel>>,
    /// Records on their way to the store.
    queued: AtomicUsize,
    /// Refusals that were not recorded one by one, because the store was behind.
    unrecorded: AtomicU64,
    /// Counts up whenever records came to be on disk.
    written: watch::Sender<u64>,
    /// Told to everybody who waits for the store.
    down: watch::Sender<bool>,
    /// The end has come: a store that does not answer is given up.
    closing: AtomicBool,
    failure: Mutex<Option<String>>,
    metrics: Metrics,
    /// `on_down = "local"`: go on with what is leased, and with limits by the minute on our own
    /// count.
    go_on_when_down: bool,
    desk: Desk,
    runs: runs::OpenRuns,
}

/// Why a reservation was not made.
#[derive(Debug)]
pub enum Refusal {
    Short(Box<Shortfall>),
    /// The store does not answer.
    Unavailable,
}

/// The limit that said no, in figures.
#[derive(Debug, Clone)]
pub struct Shortfall {
    /// As in the configuration.
    pub name: &'static str,
    /// Empty: it is counted in no account.
    pub account: Arc<str>,
    pub subject: Arc<str>,
    pub unit: Unit,
    pub window: Window,
    pub limit: u64,
    pub used: u64,
    pub reserved: u64,
    pub needed: u64,
    pub resets_at_ms: Option<i64>,
    /// Limits by the minute: how long until this need fits.
    pub retry_after: Option<Duration>,
    pub zone: jiff::tz::TimeZone,
}

impl Default for Shortfall {
    fn default() -> Self {
        Self {
            name: "",
            account: "".into(),
            subject: "".into(),
            unit: Unit::Requests,
            window: Window::Total,
            limit: 0,
            used: 0,
            reserved: 0,
            needed: 0,
            resets_at_ms: None,
            retry_after: None,
            zone: jiff::tz::TimeZone::UTC,
        }
    }
}

impl Shortfall {
    /// What a request that it refuses is told.
    pub fn code(&self) -> &'static str {
        if self.is_rate() {
            "rate_limit_exceeded"
        } else {
            "insufficient_quota"
        }
    }

    /// How the limit stands; nothing was taken from it.
    pub fn note(&self) -> LimitNote {
        LimitNote {
            name: self.name,
            account: Arc::clone(&self.account),
            unit: self.unit.name(),
            limit: self.limit,
            used: self.used,
            reserved: self.reserved,
            used_after: self.used,
            reserved_after: self.reserved,
            needed: Some(self.needed),
        }
    }

    /// By the minute or parallel: frees up by waiting a little.
    pub fn is_rate(&self) -> bool {
        self.window == Window::Minute
    }

    /// An amount of this limit's unit, for people.
    pub fn amount(&self, amount: u64) -> String {
        match self.unit {
            Unit::Cost => Money::from_nanos(amount).to_string(),
            Unit::Tokens => format!("{amount} tokens"),
            Unit::Requests => format!("{amount} requests"),
        }
    }

    /// The instant it begins anew, in the policy's time zone, with its offset.
    pub fn resets_at_text(&self) -> Option<String> {
        let at = jiff::Timestamp::from_millisecond(self.resets_at_ms?).ok()?;
        Some(
            at.to_zoned_datetime(self.zone.clone())
                .strftime("%Y-%m-%dT%H:%M:%S%:z")
                .to_string(),
        )
    }
}

impl Books {
    /// Recovers what an earlier process left, then starts the writing thread.
    ///
    /// # Errors
    /// When the store cannot be read at start: without it nothing could be promised.
    pub async fn open(
        mut store: Box<dyn Store>,
        clock: Clock,
        go_on_when_down: bool,
    ) -> Result<Self, StoreError> {
        let recovered = store.recover(clock.now_ms()).await?;
        let waiting = store.conversations(clock.now_ms()).await?;
        let (to_keeper, inbox) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            clock,
            to_keeper,
            urgent: Notify::new(),
            accounts: DashMap::new(),
            parallel: DashMap::new(),
            queued: AtomicUsize::new(0),
            unrecorded: AtomicU64::new(0),
            written: watch::Sender::new(0),
            down: watch::Sender::new(false),
            closing: AtomicBool::new(false),
            failure: Mutex::new(None),
            metrics: Metrics::default(),
            go_on_when_down,
            desk: Desk::new(waiting),
            runs: Default::default(),
        });
        let books = Self(Arc::clone(&shared));
        books.record_recovered(recovered);
        std::thread::Builder::new()
            .name("books".to_owned())
            .spawn(move || keep(store, shared, inbox))
            .map_err(|error| StoreError::Open(error.to_string()))?;
        Ok(books)
    }

    fn record_recovered(&self, recovered: Vec<(String, i64, u64)>) {
        for (account, period, amount) in recovered {
            tracing::warn!(
                account,
                amount,
                "a slice of an earlier process counts as spent"
            );
            let event = Event::LeaseRecovered {
                account,
                period,
                amount,
            };
            self.record(None, event);
        }
    }

    /// The accounts behind `limits`; the same account for the process's whole life.
    pub fn purse(&self, key: &Arc<str>, limits: &[LimitSpec], parallel: AtOnce) -> Arc<Purse> {
        let accounts = limits
            .iter()
            .map(|spec| {
                let account = self
                    .0
                    .accounts
                    .entry(Arc::clone(&spec.account))
                    .or_insert_with(|| Arc::new(Account::new(spec.clone())));
                account.lock().update(spec.clone());
                Arc::clone(&account)
            })
            .collect();
        let open = Arc::clone(&self.0.parallel.entry(Arc::clone(key)).or_default());
        Arc::new(Purse::new(accounts, open, parallel))
    }

    /// Puts a record on its way to the ledger. Never waits. Of refusals only the number is kept
    /// while the store is behind, since a client can cause them without end.
    pub fn record(&self, request_id: Option<Arc<str>>, event: Event) {
        self.0.metrics.observe(&event);
        if self.0.is_behind() && matches!(event, Event::RequestRefused(_)) {
            self.0.unrecorded.fetch_add(1, Ordering::AcqRel);
            return;
        }
        self.0.queued.fetch_add(1, Ordering::AcqRel);
        let record = Record {
            at: self.0.clock.now_ms(),
            request_id,
            event,
        };
        let _ = self.0.to_keeper.send(Message::Record(Box::new(record)));
    }

    /// Remembers what published versions of policies say, with a record of each.
    pub fn seal(&self, editions: Vec<Edition>) {
        for edition in &editions {
            let (policy, sha256) = (edition.label(), edition.sha256.clone());
            self.record(
                None,
                match edition.status {
                    Status::Archived => Event::PolicyArchived { policy, sha256 },
                    _ => Event::PolicyPublished { policy, sha256 },
                },
            );
        }
        let _ = self.0.to_keeper.send(Message::Seal(editions));
    }

    /// Waits until everything recorded so far is on disk.
    ///
    /// # Errors
    /// `Unavailable` while the store does not answer, unless we are to go on then.
    pub async fn flushed(&self) -> Result<(), Refusal> {
        let (done, wait) = oneshot::channel();
        if self.0.to_keeper.send(Message::Flush(done)).is_err() {
            return Err(Refusal::Unavailable);
        }
        self.0.urgent.notify_one();
        self.answered(wait).await
    }

    /// Writes everything, gives all slices back, ends the writing thread. A store that does not
    /// answer is given up: slices that were not given back count as spent at the next start.
    pub async fn close(&self) {
        self.0.closing.store(true, Ordering::Release);
        let (done, wait) = oneshot::channel();
        if self.0.to_keeper.send(Message::Close(done)).is_ok() {
            self.0.urgent.notify_one();
            if tokio::time::timeout(PATIENCE, wait).await.is_err() {
                tracing::error!("the store did not answer; what was not written is lost");
            }
        }
    }

    /// Counts up whenever records came to be on disk.
    pub fn written(&self) -> watch::Receiver<u64> {
        self.0.written.subscribe()
    }

    /// What has been counted; everything that is recorded counts.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Records on their way to the store.
    pub fn queued(&self) -> usize {
        self.0.queued.load(Ordering::Acquire)
    }

    /// What is wrong with the store, if anything.
    pub fn failure(&self) -> Option<String> {
        self.0
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Why requests are refused right now, if they are.
    pub fn refuses(&self) -> Option<String> {
        if self.may_go_on() {
            return None;
        }
        let behind = || "more records wait to be written than may".to_owned();
        Some(self.failure().unwrap_or_else(behind))
    }

    fn may_go_on(&self) -> bool {
        !self.0.is_behind() && (self.0.go_on_when_down || !self.is_alone())
    }

    /// The store does not answer.
    fn is_alone(&self) -> bool {
        *self.0.down.borrow()
    }

    /// Waits for the writing thread, but not for a store that is known to be down.
    async fn answered(&self, wait: oneshot::Receiver<()>) -> Result<(), Refusal> {
        let mut down = self.0.down.subscribe();
        let alone = tokio::select! {
            biased;
            answer = wait => return answer.map_err(|_| Refusal::Unavailable),
            down = down.wait_for(|down| *down) => down.is_ok(),
            () = tokio::time::sleep(PATIENCE) => false,
        };
        if alone && self.0.go_on_when_down {
            Ok(())
        } else {
            Err(Refusal::Unavailable)
        }
    }

    /// Asks the store for what is missing and waits for its answer.
    async fn ask(&self, short: Vec<(Arc<Account>, u64)>) -> Result<(), Refusal> {
        let mut replies = Vec::with_capacity(short.len());
        for (account, needed) in short {
            let (reply, wait) = oneshot::channel();
            let ask = Message::Ask {
                account,
                needed,
                reply: Some(reply),
            };
            if self.0.to_keeper.send(ask).is_err() {
                return Err(Refusal::Unavailable);
            }
            replies.push(wait);
        }
        self.0.urgent.notify_one();
        for wait in replies {
            self.answered(wait).await?;
        }
        Ok(())
    }

    /// Nobody waits for the answer.
    fn ask_ahead(&self, account: &Arc<Account>, needed: u64) {
        let ask = Message::Ask {
            account: Arc::clone(account),
            needed,
            reply: None,
        };
        let _ = self.0.to_keeper.send(ask);
    }

    /// Takes `amount`, which must fit, and sees to what follows from that. Returns what a
    /// settlement must name.
    fn take(&self, account: &Arc<Account>, state: &mut State, amount: u64, now_ms: i64) -> i64 {
        let booked = state.reserve(amount, now_ms);
        if state.wants_ahead(now_ms) {
            self.ask_ahead(account, 0);
        }
        self.note(account, state);
        booked
    }

    /// Tells the writing thread once that an account has changes.
    fn note(&self, account: &Arc<Account>, state: &mut State) {
        if !std::mem::replace(&mut state.dirty, true) {
            let _ = self.0.to_keeper.send(Message::Changed(Arc::clone(account)));
        }
    }
}

/// The writing thread's whole life.
fn keep(store: Box<dyn Store>, shared: Arc<Shared>, inbox: mpsc::UnboundedReceiver<Message>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(keeper::run(store, shared, inbox)),
        Err(error) => tracing::error!(%error, "the writing thread could not start"),
    }
}

impl Shared {
    fn all_accounts(&self) -> Vec<(Arc<str>, Arc<Account>)> {
        self.accounts
            .iter()
            .map(|entry| (Arc::clone(entry.key()), Arc::clone(entry.value())))
            .collect()
    }

    fn is_behind(&self) -> bool {
        self.queued.load(Ordering::Acquire) > MOST_QUEUED
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// The refusals that were only counted, as one record.
    fn counted_refusals(&self) -> Option<Record> {
        let count = self.unrecorded.swap(0, Ordering::AcqRel);
        let summary = Summary {
            code: "store_behind",
            source: None,
            count,
        };
        (count > 0).then(|| Record {
            at: self.clock.now_ms(),
            request_id: None,
            event: Event::RefusalsSummed(summary),
        })
    }

    fn fail(&self, error: &StoreError) {
        let why = error.to_string();
        let known = self
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(why);
        if known.is_none() {
            tracing::error!(%error, "the store does not answer; trying again");
        }
        // Told last: who hears it finds the reason.
        self.down.send_replace(true);
    }

    fn recovered(&self) {
        self.down
            .send_if_modified(|down| std::mem::replace(down, false));
        let failure = self
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if failure.is_some() {
            tracing::info!("the store answers again");
        }
    }
}
