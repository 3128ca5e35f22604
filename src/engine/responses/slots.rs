//! The items of an answer and how far each has come.

use bytes::Bytes;

use super::{
    Fault,
    draft::{Draft, Proposal},
    item::{Item, Role},
};
use crate::engine::chain::Block;

/// More items than this are no answer.
const MOST_ITEMS: usize = 4096;

/// One item of the answer.
#[derive(Clone)]
pub struct Slot {
    /// Its place as the provider counts.
    pub index: u64,
    /// Its type; empty while only pieces of it have come.
    pub kind: String,
    pub role: Role,
    pub state: State,
    /// The provider's id of it, as last told.
    pub id: Option<String>,
    /// A piece of what the model wrote here was counted.
    pub counted: bool,
}

#[derive(Clone)]
pub enum State {
    /// Passed on, at this place.
    Flowing(u64),
    /// A call that was not judged yet.
    Withheld(Box<Draft>),
    /// No call, but it stands behind one: providers want what a model thought beside what came
    /// of it, so only messages overtake. The data of its events.
    Waiting(Vec<Bytes>),
    /// A call that went on, at this place.
    Released(u64, Box<(Proposal, Draft)>),
    /// It may not go on.
    Blocked(Box<Block>),
    /// Told of, or nothing to tell.
    Gone,
}

#[derive(Clone, Default)]
pub struct Slots(pub Vec<Slot>);

impl Slot {
    /// Notes the id that `item`, a copy of it, has.
    pub fn take_id(&mut self, item: &Item) -> &mut State {
        self.id = item.members.text("id").or(self.id.take());
        &mut self.state
    }
}

impl Slots {
    /// The item at the provider's `index`.
    pub fn at(&mut self, index: u64) -> Option<&mut Slot> {
        self.0.iter_mut().rev().find(|slot| slot.index == index)
    }

    /// # Errors
    /// Too many items.
    pub fn push(&mut self, index: u64, kind: &str, role: Role, state: State) -> Result<(), Fault> {
        if self.0.len() >= MOST_ITEMS {
            return Err(Fault("The answer has too many items."));
        }
        let kind = kind.to_owned();
        self.0.push(Slot {
            index,
            kind,
            role,
            state,
            id: None,
            counted: false,
        });
        Ok(())
    }

    /// Whether an item that is no message has to wait.
    pub fn withhold(&self) -> bool {
        let open = |slot: &Slot| matches!(slot.state, State::Withheld(_) | State::Waiting(_));
        self.0.iter().any(open)
    }

    /// The item that a copy in the response object is of: at the same place, else, for calls,
    /// one with the same id. `taken` are those that have theirs.
    pub fn of_copy(&self, place: u64, item: &Item, taken: &[usize]) -> Option<usize> {
        let free = |at: usize, slot: &Slot| slot.kind == item.kind && !taken.contains(&at);
        let mut all = self.0.iter().enumerate();
        let same_place = all.position(|(at, slot)| slot.index == place && free(at, slot));
        same_place.or_else(|| {
            let id = item.members.text("call_id")?;
            self.0.iter().enumerate().position(|(at, slot)| {
                let known = match &slot.state {
                    State::Withheld(draft) => draft.call_id(),
                    State::Released(_, call) => Some(call.0.call.id.clone()),
                    _ => None,
                };
                free(at, slot) && known.as_ref() == Some(&id)
            })
        })
    }
}
