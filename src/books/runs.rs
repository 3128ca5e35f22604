//! Runs that this process has to do with: in memory while they are active, in the store behind.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use dashmap::{DashMap, Entry};

use super::{Books, Refusal, Shared, keeper::Message};
use crate::{engine::run::Run, store::RunRow};

/// Runs that were quiet for so long are read again when they are heard of.
const QUIET: Duration = Duration::from_hours(1);

/// Key and run.
type Name = (Arc<str>, Arc<str>);

#[derive(Default)]
pub struct OpenRuns(DashMap<Name, Arc<OpenRun>>);

/// A run of one key.
#[derive(Debug)]
pub struct OpenRun {
    pub key: Arc<str>,
    pub id: Arc<str>,
    pub state: Arc<Mutex<Run>>,
    seen_ms: AtomicI64,
    /// On its way to the store.
    noted: AtomicBool,
}

impl Books {
    /// The run of this name, begun now if nobody has heard of it.
    ///
    /// # Errors
    /// The store does not answer: nobody knows what the run has done.
    pub async fn run(
        &self,
        (key, id): (&Arc<str>, &Arc<str>),
        policy: &str,
    ) -> Result<Arc<OpenRun>, Refusal> {
        let now_ms = self.0.clock.now_ms();
        Ok(match self.known_run((key, id)).await? {
            Some(known) => known,
            None => self.keep(Run::begin(now_ms, policy), (key, id)),
        })
    }

    /// The run of this name, if it ever began.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn known_run(
        &self,
        (key, id): (&Arc<str>, &Arc<str>),
    ) -> Result<Option<Arc<OpenRun>>, Refusal> {
        let name = (Arc::clone(key), Arc::clone(id));
        if let Some(known) = self.0.runs.0.get(&name) {
            known
                .seen_ms
                .store(self.0.clock.now_ms(), Ordering::Relaxed);
            return Ok(Some(Arc::clone(&known)));
        }
        let kept = self
            .ask_store(move |store| Box::pin(async move { store.run(&name.0, &name.1).await }))
            .await?;
        // What cannot be read must not be taken for a run that has done nothing.
        let read = |text: String| serde_json::from_str(&text).map_err(|_| Refusal::Unavailable);
        let state = kept.map(read).transpose()?;
        Ok(state.map(|state| self.keep(state, (key, id))))
    }

    /// Another request of the run may have been faster: its run is the one that is kept.
    fn keep(&self, state: Run, (key, id): (&Arc<str>, &Arc<str>)) -> Arc<OpenRun> {
        let fresh = || {
            Arc::new(OpenRun {
                key: Arc::clone(key),
                id: Arc::clone(id),
                state: Arc::new(Mutex::new(state)),
                seen_ms: AtomicI64::new(self.0.clock.now_ms()),
                noted: AtomicBool::new(false),
            })
        };
        match self.0.runs.0.entry((Arc::clone(key), Arc::clone(id))) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(place) => Arc::clone(&place.insert(fresh())),
        }
    }

    /// The run has changed: it is on disk within the time of a batch.
    pub fn note_run(&self, run: &Arc<OpenRun>) {
        if !run.noted.swap(true, Ordering::AcqRel) {
            let _ = self.0.to_keeper.send(Message::Run(Arc::clone(run)));
        }
    }
}

impl OpenRun {
    /// As it is written down now. What changes after this is noted again.
    pub fn row(&self) -> Option<RunRow> {
        self.noted.store(false, Ordering::Release);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Some(RunRow {
            key: Arc::clone(&self.key),
            id: Arc::clone(&self.id),
            state: serde_json::to_string(&*state).ok()?,
        })
    }
}

impl Shared {
    /// Lets go of runs that are quiet, and of their accounts: both can be had from the store.
    pub fn forget_quiet_runs(&self, now_ms: i64) {
        let quiet = i64::try_from(QUIET.as_millis()).unwrap_or(i64::MAX);
        self.runs.0.retain(|_, run| {
            let quiet = now_ms - run.seen_ms.load(Ordering::Relaxed) > quiet;
            let idle = Arc::strong_count(run) == 1 && !run.noted.load(Ordering::Acquire);
            !(quiet && idle)
        });
        // Nobody else holds it: a request would have to come through this map first.
        self.accounts.retain(|id, account| {
            let of_run = id.starts_with("run/") && Arc::strong_count(account) == 1;
            !(of_run && account.lock().at_rest())
        });
        self.parallel
            .retain(|id, open| !(id.starts_with("run/") && Arc::strong_count(open) == 1));
    }
}
