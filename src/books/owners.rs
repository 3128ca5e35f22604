//! Whose the answers are that providers keep: noted when an answer ends, asked for when a
//! request builds on one.

use tokio::sync::oneshot;

use super::{Books, PATIENCE, Refusal, keeper::Message};
use crate::store::{Owned, Owner};

impl Books {
    /// Puts down whose an answer and its items are. Whoever asks after this is told so.
    pub fn own(&self, owned: Vec<Owned>) {
        if !owned.is_empty() {
            let _ = self.0.to_keeper.send(Message::Own(owned));
        }
    }

    /// Whose these ids are, in their order; `None`: nobody's that we know of.
    ///
    /// # Errors
    /// `Unavailable` when the store does not answer: without it nothing is anybody's.
    pub async fn owners(&self, ids: Vec<String>) -> Result<Vec<Option<Owner>>, Refusal> {
        let (reply, wait) = oneshot::channel();
        if self
            .0
            .to_keeper
            .send(Message::Owners { ids, reply })
            .is_err()
        {
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
