//! Where answers wait for people: parked in the store, decided by whoever may, taken out once.

use dashmap::DashSet;
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use super::{
    Books, PATIENCE, Refusal,
    keeper::{Errand, Message, Work},
};
use crate::{
    engine::{
        chain::{Ruled, Ruling},
        names::clean_name,
        record::{ApprovalNote, Event, Record},
    },
    store::{
        Store, StoreError,
        approvals::{Approval, Parked, Recorded, Status, Verdict},
    },
};

/// What this process knows of waiting answers without asking the store.
pub struct Desk {
    /// Conversations for which an answer waits.
    waiting: DashSet<String>,
    /// Counts up whenever something was decided.
    decided: watch::Sender<u64>,
}

/// How the wait for people ended.
#[derive(Debug)]
pub enum Outcome {
    /// All calls are decided, and this delivery is the one.
    Ruled(Vec<Ruling>),
    /// Some are not decided, or another delivery was first: nothing passes.
    Held(Vec<Ruling>),
}

impl Outcome {
    pub fn rulings(self) -> Vec<Ruling> {
        match self {
            Self::Ruled(rulings) | Self::Held(rulings) => rulings,
        }
    }
}

impl Desk {
    pub fn new(waiting: Vec<String>) -> Self {
        Self {
            waiting: waiting.into_iter().collect(),
            decided: watch::Sender::new(0),
        }
    }

    /// Whether anything waits.
    pub fn is_open(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Wakes everybody who waits for a decision.
    pub fn announce(&self) {
        self.decided.send_modify(|count| *count += 1);
    }

    /// Forgets conversations that no answer waits for any more.
    pub fn keep_only(&self, waiting: Vec<String>) {
        let waiting: std::collections::HashSet<String> = waiting.into_iter().collect();
        self.waiting.retain(|known| waiting.contains(known));
    }
}

impl Books {
    /// Keeps an answer until people have decided about its calls.
    ///
    /// # Errors
    /// `Unavailable` when the store does not answer: then nothing may wait, and nothing passes.
    pub async fn park(&self, parked: Parked, calls: Vec<Approval>) -> Result<(), Refusal> {
        let books = self.clone();
        // Known by the thread that also forgets, and not before the store knows.
        let work = async move |store: &mut dyn Store| {
            store.park(&parked, &calls).await?;
            books.0.desk.waiting.insert(parked.conversation);
            Ok(())
        };
        self.ask_store(move |store| Box::pin(work(store))).await?;
        let _ = self.0.to_keeper.send(Message::Sweep);
        Ok(())
    }

    /// The answer that waits for this conversation.
    ///
    /// # Errors
    /// `Unavailable` when the store does not answer.
    pub async fn parked_for(&self, conversation: &str) -> Result<Option<Parked>, Refusal> {
        if !self.0.desk.waiting.contains(conversation) {
            return Ok(None);
        }
        let conversation = conversation.to_owned();
        let now_ms = self.0.clock.now_ms();
        self.ask_store(move |store| {
            Box::pin(async move { store.parked_for(&conversation, now_ms).await })
        })
        .await
    }

    /// Whether answers wait at all: without any, no conversation needs to be looked up.
    pub fn has_parked(&self) -> bool {
        self.0.desk.is_open()
    }

    /// Waits until all calls of a parked answer are decided, at most until `until`, and takes
    /// the answer out. `place` says where people decide.
    ///
    /// # Errors
    /// `Unavailable` when the store does not answer.
    pub async fn rulings(
        &self,
        parked: &str,
        until: Instant,
        place: &str,
    ) -> Result<Outcome, Refusal> {
        let mut decided = self.0.desk.decided.subscribe();
        loop {
            decided.borrow_and_update();
            let calls = self.approvals_of(parked).await?;
            let open = |call: &Approval| call.status == Status::Pending;
            if !calls.iter().any(open) {
                let claimed = self.claim(parked).await?;
                let rule = |call| ruling(call, claimed, place);
                let rulings = calls.into_iter().map(rule).collect();
                return Ok(match claimed {
                    true => Outcome::Ruled(rulings),
                    false => Outcome::Held(rulings),
                });
            }
            let more = tokio::time::timeout_at(until, decided.changed()).await;
            if more.is_err() {
                let wait = |call: Approval| Ruling {
                    outcome: Ruled::Wait {
                        place: place.to_owned(),
                    },
                    ..ruling(call, true, place)
                };
                return Ok(Outcome::Held(calls.into_iter().map(wait).collect()));
            }
        }
    }

    /// Writes down what a person decided.
    ///
    /// # Errors
    /// `Unavailable` when the store does not answer: nothing is decided then.
    pub async fn decide(&self, verdict: Verdict) -> Result<Recorded, Refusal> {
        let recorded = self
            .ask_store(move |store| Box::pin(async move { store.decide(&verdict).await }))
            .await?;
        let _ = self.0.to_keeper.send(Message::Sweep);
        Ok(recorded)
    }

    /// Counts up whenever a call came to wait, or something was decided.
    pub fn decisions(&self) -> watch::Receiver<u64> {
        self.0.desk.decided.subscribe()
    }

    /// Calls that wait and of which the webhook has not taken word.
    ///
    /// # Errors
    /// `Unavailable` when the store does not answer.
    pub async fn untold(&self) -> Result<Vec<Approval>, Refusal> {
        let now_ms = self.0.clock.now_ms();
        self.ask_store(move |store| Box::pin(async move { store.untold(now_ms).await }))
            .await
    }

    /// The webhook has taken word of this one.
    ///
    /// # Errors
    /// `Unavailable` when the store does not answer: it will be told twice.
    pub async fn tell(&self, approval: String) -> Result<(), Refusal> {
        self.ask_store(move |store| Box::pin(async move { store.tell(&approval).await }))
            .await
    }

    /// Takes the answer out; `false`: another delivery did.
    ///
    /// # Errors
    /// `Unavailable` when the store does not answer.
    pub async fn claim(&self, parked: &str) -> Result<bool, Refusal> {
        // What was decided, maybe by another process, is in the ledger before it is used: the
        // delivery changes the status, and with it the record that would be written.
        let _ = self.0.to_keeper.send(Message::Sweep);
        let parked = parked.to_owned();
        let claimed = self
            .ask_store(move |store| Box::pin(async move { store.claim(&parked).await }))
            .await?;
        let _ = self.0.to_keeper.send(Message::Sweep);
        Ok(claimed)
    }

    async fn approvals_of(&self, parked: &str) -> Result<Vec<Approval>, Refusal> {
        let parked = parked.to_owned();
        self.ask_store(move |store| Box::pin(async move { store.approvals_of(&parked).await }))
            .await
    }

    /// Has something done by the one thread that talks to the store.
    pub(super) async fn ask_store<T: Send + 'static>(
        &self,
        work: impl for<'a> FnOnce(&'a mut dyn Store) -> StoreWork<'a, T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (reply, wait) = oneshot::channel();
        let errand: Errand = Box::new(move |store| -> Work<'_> {
            Box::pin(async move {
                match work(store).await {
                    Ok(answer) => drop(reply.send(answer)),
                    // Who gets no answer takes the store for down.
                    Err(error) => tracing::warn!(%error, "the store did not do what was asked"),
                }
            })
        });
        if self.0.to_keeper.send(Message::Errand(errand)).is_err() {
            return Err(Refusal::Unavailable);
        }
        self.0.urgent.notify_one();
        let mut down = self.0.down.subscribe();
        tokio::select! {
            biased;
            answer = wait => answer.map_err(|_| Refusal::Unavailable),
            _ = down.wait_for(|down| *down) => Err(Refusal::Unavailable),
            () = tokio::time::sleep(PATIENCE) => Err(Refusal::Unavailable),
        }
    }
}

type StoreWork<'a, T> = std::pin::Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// `claimed`: this delivery took the answer out.
fn ruling(call: Approval, claimed: bool, place: &str) -> Ruling {
    let reason = |call: &Approval| call.decision.as_ref().map(|d| d.reason.clone());
    let outcome = match call.status {
        Status::Approved if claimed => Ruled::Approve,
        Status::Approved | Status::Used => Ruled::Spent,
        Status::Rejected | Status::Void => Ruled::Reject {
            reason: reason(&call).unwrap_or_default(),
        },
        Status::Expired => Ruled::Expire,
        Status::Pending => Ruled::Wait {
            place: place.to_owned(),
        },
    };
    Ruling {
        approval: call.id,
        tool: call.tool,
        digest: call.digest,
        outcome,
    }
}

/// The ledger's record of how an approval stands now.
pub fn record(approval: Approval, now_ms: i64) -> Record {
    let status = approval.status;
    let note = Box::new(ApprovalNote {
        approval: approval.id,
        key: approval.key,
        tenant: approval.tenant,
        run: approval.run,
        policy: approval.policy,
        tool: clean_name(&approval.tool),
        arguments_sha256: approval.digest,
        rule: approval.rule,
        status: status.name(),
        by: approval.decision.map(|decision| decision.by),
    });
    Record {
        at: now_ms,
        request_id: Some(approval.request_id.into()),
        event: match status {
            Status::Pending => Event::ApprovalOpened(note),
            Status::Used => Event::ApprovalUsed(note),
            _ => Event::ApprovalDecided(note),
        },
    }
}
