//! The one thread that talks to the store: it gathers what happened and what is asked for, and
//! commits it in one transaction.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::sync::{Notify, mpsc, oneshot};

use super::{Shared, account::Account, desk, runs::OpenRun};
use crate::{
    engine::{policy::Edition, record::Record},
    store::{Batch, GrantReply, GrantRequest, Owned, Owner, Store, StoreError, approvals::Status},
};

/// Records and settlements are on disk at most this much later.
const COMMIT_EVERY: Duration = Duration::from_millis(40);
/// Idle slices are looked for this often.
const TICK: Duration = Duration::from_millis(200);
/// Quiet runs are forgotten once in so many ticks.
const FORGET_EVERY: u64 = 1_500;
/// A batch takes in no more messages than this.
const LARGEST_BATCH: usize = 20_000;
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// A commit that takes longer: the store counts as down until it is done.
const SLOW: Duration = Duration::from_secs(2);

pub enum Message {
    Record(Box<Record>),
    /// This account has changes.
    Changed(Arc<Account>),
    /// More of this account is needed: now (with someone waiting), or ahead of need.
    Ask {
        account: Arc<Account>,
        needed: u64,
        reply: Option<oneshot::Sender<()>>,
    },
    /// Whose an answer and its items are.
    Own(Vec<Owned>),
    /// Tells whose these are, as of everything before this.
    Owners {
        ids: Vec<String>,
        reply: oneshot::Sender<Vec<Option<Owner>>>,
    },
    /// What a run has done has changed.
    Run(Arc<OpenRun>),
    /// Policy versions that were published or archived.
    Seal(Vec<Edition>),
    /// Something else to do at the store, as of everything before this.
    Errand(Errand),
    /// Look at once what people decided.
    Sweep,
    /// Answer when everything before this is on disk.
    Flush(oneshot::Sender<()>),
    /// Give everything back and end.
    Close(oneshot::Sender<()>),
}

/// Work at the store whose answer somebody waits for.
pub type Errand = Box<dyn for<'a> FnOnce(&'a mut dyn Store) -> Work<'a> + Send>;
pub type Work<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

#[derive(Default)]
struct Pending {
    records: Vec<Record>,
    changed: HashMap<Arc<str>, Arc<Account>>,
    asks: HashMap<Arc<str>, (Arc<Account>, u64)>,
    owned: Vec<Owned>,
    questions: Vec<Question>,
    errands: Vec<Errand>,
    noted: Vec<(String, Status)>,
    sweep: bool,
    runs: Vec<Arc<OpenRun>>,
    seals: Vec<Edition>,
    waiting: Vec<oneshot::Sender<()>>,
    urgent: bool,
    closing: bool,
}

/// Ids whose owners somebody waits for.
type Question = (Vec<String>, oneshot::Sender<Vec<Option<Owner>>>);

pub async fn run(
    mut store: Box<dyn Store>,
    shared: Arc<Shared>,
    mut inbox: mpsc::UnboundedReceiver<Message>,
) {
    // Accounts that hold a slice, to be looked at until they are at rest.
    let mut active: HashMap<Arc<str>, Arc<Account>> = HashMap::new();
    let mut tick = tokio::time::interval(TICK);
    let mut ticks: u64 = 0;
    // What expired while nothing ran, and what was decided.
    let mut found = Pending::default();
    sweep(&mut *store, &shared, &mut found).await;
    loop {
        let mut pending = std::mem::take(&mut found);
        let mut messages = Vec::new();
        tokio::select! {
            received = inbox.recv_many(&mut messages, LARGEST_BATCH) => {
                if received == 0 {
                    return;
                }
            }
            _ = tick.tick() => {
                ticks += 1;
                pending.look_around(ticks, &shared, &mut active);
            }
        }
        pending.add_all(messages);
        if !pending.is_empty() {
            gather(&mut pending, &shared.urgent, &mut inbox).await;
        }
        // After everything was gathered, so that no wish to look is lost; but what was found
        // already is written before it is looked for again.
        let found_already = !pending.noted.is_empty();
        if pending.sweep && !found_already && shared.desk.is_open() {
            sweep(&mut *store, &shared, &mut pending).await;
        }
        if pending.is_empty() {
            forget(&mut *store).await;
            continue;
        }
        let closing = pending.closing;
        if closing {
            pending.give_all_back(&shared);
        }
        let waiting = std::mem::take(&mut pending.waiting);
        let questions = std::mem::take(&mut pending.questions);
        let errands = std::mem::take(&mut pending.errands);
        let decided = !pending.noted.is_empty();
        let recorded = !pending.records.is_empty();
        let written = commit(&mut *store, &shared, pending, &mut active).await;
        if closing || !written {
            if written {
                store.close().await;
            }
            // The database is free for the next process before anybody is told that we ended.
            drop(store);
            tell(waiting);
            return;
        }
        tell(waiting);
        if recorded {
            shared.written.send_modify(|count| *count += 1);
        }
        answer(&mut *store, questions).await;
        for errand in errands {
            errand(&mut *store).await;
        }
        // What was decided is on disk before anything is released by it.
        if decided {
            shared.desk.announce();
        }
        forget(&mut *store).await;
    }
}

/// Takes in what became of approvals, here or by another process. It writes, so it finds out that
/// the store is down, or back, where nobody asks for anything.
async fn sweep(store: &mut dyn Store, shared: &Shared, pending: &mut Pending) {
    let now_ms = shared.clock.now_ms();
    match store.unnoted(now_ms).await {
        Ok(changed) if changed.is_empty() => {
            let waiting = store.conversations(now_ms).await;
            shared.desk.keep_only(waiting.unwrap_or_default());
        }
        Ok(changed) => {
            for approval in changed {
                pending.noted.push((approval.id.clone(), approval.status));
                pending.records.push(desk::record(approval, now_ms));
            }
            shared
                .queued
                .fetch_add(pending.noted.len(), Ordering::AcqRel);
        }
        Err(error) => return shared.fail(&error),
    }
    shared.recovered();
}

/// What could not be forgotten now is tried again at a later tick.
async fn forget(store: &mut dyn Store) {
    if let Err(error) = store.forget().await {
        tracing::warn!(%error, "the database's log could not be cleared");
    }
}

/// Who gets no answer takes the store for down.
async fn answer(store: &mut dyn Store, questions: Vec<Question>) {
    for (ids, reply) in questions {
        match store.owners(&ids).await {
            Ok(owners) => {
                let _ = reply.send(owners);
            }
            Err(error) => tracing::warn!(%error, "whose an answer is could not be read"),
        }
    }
}

fn tell(waiting: Vec<oneshot::Sender<()>>) {
    for waiting in waiting {
        // Who no longer waits needs no answer.
        let _ = waiting.send(());
    }
}

/// Waits a moment for more, unless somebody waits for us. Messages that come meanwhile wake
/// nobody: they are taken out together at the end.
async fn gather(
    pending: &mut Pending,
    urgent: &Notify,
    inbox: &mut mpsc::UnboundedReceiver<Message>,
) {
    if !pending.urgent {
        tokio::select! {
            () = urgent.notified() => {}
            () = tokio::time::sleep(COMMIT_EVERY) => {}
        }
    }
    while let Ok(message) = inbox.try_recv() {
        pending.add(message);
        if pending.records.len() >= LARGEST_BATCH {
            break;
        }
    }
}

impl Pending {
    fn add_all(&mut self, messages: Vec<Message>) {
        messages.into_iter().for_each(|message| self.add(message));
    }

    /// What is to be done now and then, whatever comes in.
    fn look_around(
        &mut self,
        ticks: u64,
        shared: &Shared,
        active: &mut HashMap<Arc<str>, Arc<Account>>,
    ) {
        if ticks.is_multiple_of(FORGET_EVERY) {
            shared.forget_quiet_runs(shared.clock.now_ms());
        }
        self.changed.extend(active.drain());
        self.sweep = true;
    }

    fn give_all_back(&mut self, shared: &Shared) {
        self.changed.extend(shared.all_accounts());
        // A slice that is granted now would be given back by nobody.
        self.asks.clear();
    }

    fn add(&mut self, message: Message) {
        match message {
            Message::Record(record) => self.records.push(*record),
            Message::Changed(account) => {
                self.changed.insert(Arc::clone(&account.id), account);
            }
            Message::Ask {
                account,
                needed,
                reply,
            } => {
                self.urgent |= reply.is_some();
                self.waiting.extend(reply);
                let entry = self
                    .asks
                    .entry(Arc::clone(&account.id))
                    .or_insert_with(|| (Arc::clone(&account), 0));
                entry.1 = entry.1.saturating_add(needed);
                self.changed.insert(Arc::clone(&account.id), account);
            }
            Message::Own(owned) => self.owned.extend(owned),
            Message::Owners { ids, reply } => {
                self.urgent = true;
                self.questions.push((ids, reply));
            }
            Message::Run(run) => self.runs.push(run),
            Message::Seal(seals) => self.seals.extend(seals),
            Message::Errand(errand) => {
                self.urgent = true;
                self.errands.push(errand);
            }
            Message::Sweep => {
                self.urgent = true;
                self.sweep = true;
            }
            Message::Flush(done) => {
                self.urgent = true;
                self.waiting.push(done);
            }
            Message::Close(done) => {
                self.urgent = true;
                self.closing = true;
                self.waiting.push(done);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.changed.is_empty()
            && self.asks.is_empty()
            && self.owned.is_empty()
            && self.questions.is_empty()
            && self.errands.is_empty()
            && self.noted.is_empty()
            && self.seals.is_empty()
            && self.runs.is_empty()
            && self.waiting.is_empty()
    }
}

/// `false`: we are to end, and the store never answered.
async fn commit(
    store: &mut dyn Store,
    shared: &Shared,
    pending: Pending,
    active: &mut HashMap<Arc<str>, Arc<Account>>,
) -> bool {
    let now_ms = shared.clock.now_ms();
    let recorded = pending.records.len();
    let mut batch = Batch {
        records: pending.records,
        owned: pending.owned,
        noted: pending.noted,
        seals: pending.seals,
        runs: pending.runs.iter().filter_map(|run| run.row()).collect(),
        now_ms,
        ..Batch::default()
    };
    batch.records.extend(shared.counted_refusals());
    let asked = put_questions(pending.asks, &mut batch);
    for account in pending.changed.values() {
        let mut state = account.lock();
        if pending.closing {
            state.rest_now();
        }
        state.take_changes(now_ms, &mut batch.books);
    }
    let Some(replies) = persist(store, shared, &batch).await else {
        tracing::error!(
            records = recorded,
            "ended without the store: these are lost"
        );
        return false;
    };
    shared.recovered();
    shared.queued.fetch_sub(recorded, Ordering::AcqRel);
    settle_grants(&asked, &batch.grants, replies, now_ms);
    for (id, account) in pending.changed {
        if !account.lock().at_rest() {
            active.insert(id, account);
        }
    }
    true
}

/// The accounts in the order of their questions.
fn put_questions(
    asks: HashMap<Arc<str>, (Arc<Account>, u64)>,
    batch: &mut Batch,
) -> Vec<Arc<Account>> {
    let mut asked = Vec::with_capacity(asks.len());
    for (account, needed) in asks.into_values() {
        let mut state = account.lock();
        state.asked = true;
        batch.grants.push(state.question(needed, batch.now_ms));
        drop(state);
        asked.push(account);
    }
    asked
}

/// Tries until it is written: the same batch, so that nothing is lost or written twice. `None`
/// when we are to end meanwhile.
async fn persist(store: &mut dyn Store, shared: &Shared, batch: &Batch) -> Option<Vec<GrantReply>> {
    loop {
        match attempt(store, shared, batch).await {
            Ok(replies) => return Some(replies),
            Err(error) => shared.fail(&error),
        }
        if shared.is_closing() {
            return None;
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// One commit. It is never broken off, since nobody could know then whether it was written.
async fn attempt(
    store: &mut dyn Store,
    shared: &Shared,
    batch: &Batch,
) -> Result<Vec<GrantReply>, StoreError> {
    let mut answer = store.commit(batch);
    match tokio::time::timeout(SLOW, &mut answer).await {
        Ok(answer) => answer,
        Err(_) => {
            shared.fail(&StoreError::Slow(SLOW));
            answer.await
        }
    }
}

fn settle_grants(
    asked: &[Arc<Account>],
    requests: &[GrantRequest],
    replies: Vec<GrantReply>,
    now_ms: i64,
) {
    for ((account, request), reply) in asked.iter().zip(requests).zip(replies) {
        account.lock().answer(request, reply, now_ms);
    }
}
