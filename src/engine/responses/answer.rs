//! One answer, streamed or whole, between its first item and the verdict on its calls.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    Fault,
    court::Court,
    draft::{Draft, Proposal},
    event::StreamEvent,
    item::{Item, Role},
    object::ResponseObject,
    slots::{Slots, State},
    writer::{Source, Writer, message_item},
};
use crate::engine::{
    chain::{Block, Paused},
    chat::{CallRules, Tally},
    sse::Event,
};

pub struct Answer {
    pub court: Court,
    pub writer: Writer,
    pub slots: Slots,
    /// Messages of ours: place, item, id.
    notices: Vec<(u64, String, String)>,
    unanswered: Vec<Unanswered>,
}

/// What a client may refer to later, by the provider's ids: nothing that was withheld.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct OwnIds {
    pub response: Option<String>,
    pub items: Vec<String>,
    /// Messages of ours, which no provider knows.
    pub notices: Vec<String>,
    /// Withheld calls: the provider will want their results before it goes on with this answer.
    pub unanswered: Vec<Unanswered>,
}

/// A call that the client never saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// The type of the item that answers it.
    pub kind: String,
    pub call_id: String,
}

/// What came of a whole answer.
pub enum Settled {
    /// The output anew, if it is not as it came.
    Done(Option<String>),
    /// Calls are blocked, and the answer for that is an error.
    Refused,
    /// A person has to decide on these; settle again then.
    Paused(Vec<Paused>),
}

type Heard = BTreeMap<usize, Result<Proposal, Block>>;

impl Answer {
    pub fn new(rules: CallRules) -> Self {
        Self {
            court: Court::new(rules),
            writer: Writer::default(),
            slots: Slots::default(),
            notices: Vec::new(),
            unanswered: Vec::new(),
        }
    }

    /// With `batch = "each"` a call is judged as soon as it is whole.
    pub fn settle_one(&mut self, at: usize) -> Vec<Bytes> {
        let Some(slot) = self.slots.0.get_mut(at) else {
            return Vec::new();
        };
        let (mut heard, mark) = (Heard::new(), self.court.mark());
        match std::mem::replace(&mut slot.state, State::Gone) {
            State::Withheld(draft) => {
                heard.insert(at, self.court.hear(&draft));
                slot.state = State::Withheld(draft);
            }
            state => slot.state = state,
        }
        if self.court.pauses() {
            // People are asked about the whole answer, at its end.
            self.court.adjourn(&mark);
            return Vec::new();
        }
        if self.court.refuses() {
            return Vec::new();
        }
        let mut out = Vec::new();
        self.tell(at, &mut heard, &mut out);
        let open = |state: &State| matches!(state, State::Withheld(_));
        for at in 0..self.slots.0.len() {
            let state = self.slots.0.get(at).map(|slot| &slot.state);
            match state {
                Some(state) if open(state) => break,
                Some(State::Waiting(_)) => self.tell(at, &mut heard, &mut out),
                _ => {}
            }
        }
        out
    }

    /// The answer is there as a whole: takes the copies of its items in, judges what is open,
    /// and writes it.
    ///
    /// # Errors
    /// What cannot be read, or contradicts what was passed on.
    pub fn settle(
        &mut self,
        object: &ResponseObject<'_>,
        tally: &mut Tally,
        out: &mut Vec<Bytes>,
    ) -> Result<Settled, Fault> {
        let releases = matches!(
            object.status.as_deref(),
            None | Some("completed" | "incomplete")
        );
        // Whoever waits for people settles twice, each time from here.
        let saved = self.court.may_pause().then(|| self.slots.clone());
        let (written, mark) = (tally.written, self.court.mark());
        let mut copies: Vec<(&RawValue, usize)> = Vec::new();
        for (place, raw) in object.items()?.into_iter().enumerate() {
            let taken: Vec<usize> = copies.iter().map(|(_, at)| *at).collect();
            let at = self.copy(place as u64, Item::read(raw)?, &taken, tally)?;
            copies.push((raw, at));
        }
        let mut heard = Heard::new();
        for (at, slot) in self.slots.0.iter().enumerate() {
            match &slot.state {
                State::Withheld(draft) if releases => {
                    heard.insert(at, self.court.hear(draft));
                }
                _ => {}
            }
        }
        if self.court.refuses() {
            return Ok(Settled::Refused);
        }
        if self.court.pauses() {
            self.slots = saved.unwrap_or_default();
            tally.written = written;
            return Ok(Settled::Paused(self.court.adjourn(&mark)));
        }
        for at in 0..self.slots.0.len() {
            if releases {
                self.tell(at, &mut heard, out);
            } else {
                self.forget(at, out);
            }
        }
        Ok(Settled::Done(self.output(&copies)))
    }

    /// Takes in an item of the response object; gives which of the answer's items it is.
    fn copy(
        &mut self,
        place: u64,
        item: Item,
        taken: &[usize],
        tally: &mut Tally,
    ) -> Result<usize, Fault> {
        let known = self.slots.of_copy(place, &item, taken);
        let Some(at) = known else {
            tally.written += item.written();
            self.begin(place, &item)?;
            let at = self.slots.0.len() - 1;
            if let Some(State::Withheld(draft)) = self.slots.0.last_mut().map(|s| &mut s.state) {
                draft.copy(item);
            }
            return Ok(at);
        };
        let slot = self.slots.0.get_mut(at);
        match slot.map(|slot| slot.take_id(&item)) {
            Some(State::Withheld(draft)) => draft.copy(item),
            Some(State::Released(_, call)) => {
                call.1.copy(item);
                if call.1.clone().close().call.fault.is_some() {
                    return Err(Fault("A call differs from its copy at the end."));
                }
            }
            Some(State::Flowing(_) | State::Waiting(_)) if item.role == Role::Call => {
                return Err(Fault("An output item became a call."));
            }
            _ => {}
        }
        Ok(at)
    }

    /// Makes place for a new item: withheld, waiting, or blocked; never flowing yet.
    pub fn begin(&mut self, index: u64, item: &Item) -> Result<(), Fault> {
        let state = match item.role {
            Role::Call => State::Withheld(Box::new(Draft::new(&item.kind))),
            Role::Hosted => match self.court.hear_hosted(item) {
                Ok(()) => State::Waiting(Vec::new()),
                Err(block) => State::Blocked(Box::new(block)),
            },
            Role::Message | Role::Quiet => State::Waiting(Vec::new()),
        };
        self.slots.push(index, &item.kind, item.role, state)?;
        if let Some(slot) = self.slots.0.last_mut() {
            slot.take_id(item);
        }
        Ok(())
    }

    /// Writes what may leave of one item and notes what became of it.
    pub fn tell(&mut self, at: usize, heard: &mut Heard, out: &mut Vec<Bytes>) {
        let Some(slot) = self.slots.0.get_mut(at) else {
            return;
        };
        let state = std::mem::replace(&mut slot.state, State::Gone);
        slot.state = match (state, heard.remove(&at)) {
            (State::Withheld(draft), Some(verdict)) => match verdict {
                Ok(proposal) if self.court.lets_siblings_go() => {
                    let index = self.writer.call(&proposal, out);
                    self.court.deliver(proposal.judged);
                    State::Released(index, Box::new((proposal, *draft)))
                }
                Ok(_) => return self.withhold_for_good(&draft, None, out),
                Err(block) => return self.withhold_for_good(&draft, Some(block), out),
            },
            (State::Blocked(block), _) => return self.words(Some(*block), out),
            (State::Waiting(events), _) => {
                let index = self.writer.take_index();
                out.extend(
                    events
                        .iter()
                        .filter_map(|data| self.writer.replay(data, index)),
                );
                State::Flowing(index)
            }
            (state, _) => state,
        };
    }

    /// The answer broke off: what was withheld is nobody's.
    pub fn abandon(&mut self) {
        for slot in &mut self.slots.0 {
            if let State::Withheld(draft) = &slot.state {
                self.court.abandon(draft);
                slot.state = State::Gone;
            }
        }
    }

    /// The same for an answer that failed: its calls are nobody's.
    fn forget(&mut self, at: usize, out: &mut Vec<Bytes>) {
        if let Some(slot) = self.slots.0.get_mut(at)
            && matches!(slot.state, State::Withheld(_) | State::Blocked(_))
        {
            if let State::Withheld(draft) = &slot.state {
                self.court.abandon(draft);
            }
            slot.state = State::Gone;
        }
        self.tell(at, &mut Heard::new(), out);
    }

    fn withhold_for_good(&mut self, draft: &Draft, block: Option<Block>, out: &mut Vec<Bytes>) {
        self.unanswered.extend(draft.unanswered());
        self.words(block, out);
    }

    /// A message in place of a blocked call: each says its own reason, or the first says all.
    fn words(&mut self, block: Option<Block>, out: &mut Vec<Bytes>) {
        let each = self.court.rules.delivery.each;
        if !each && !self.notices.is_empty() {
            return;
        }
        let blocks: Vec<Block> = match block {
            Some(block) if each => vec![block],
            _ => self.court.blocks.clone(),
        };
        let (id, text) = self.court.words(&blocks);
        let guard = self.court.guard();
        let index = self.writer.message(&id, &text, &guard, out);
        self.notices.push((index, message_item(&id, &text), id));
    }

    /// What the client may refer to, in an answer with this id.
    pub fn own_ids(&self, response: Option<String>) -> OwnIds {
        let items = self.slots.0.iter().filter_map(|slot| match &slot.state {
            State::Flowing(_) => slot.id.clone(),
            State::Released(_, call) => call.0.item.text("id"),
            _ => None,
        });
        OwnIds {
            response,
            items: items.filter(|id| !id.is_empty()).collect(),
            notices: self.notices.iter().map(|(.., id)| id.clone()).collect(),
            unanswered: self.unanswered.clone(),
        }
    }

    /// The output as the client knows it; `None` if that is how it came.
    fn output(&self, copies: &[(&RawValue, usize)]) -> Option<String> {
        let mut changed = !self.notices.is_empty();
        let mut items: Vec<(u64, std::borrow::Cow<'_, str>)> = Vec::new();
        for (raw, at) in copies {
            match self.slots.0.get(*at).map(|slot| &slot.state) {
                Some(State::Flowing(index)) => items.push((*index, raw.get().into())),
                Some(State::Released(index, call)) => {
                    changed = true;
                    items.push((*index, call.0.item.to_json().into()));
                }
                _ => changed = true,
            }
        }
        changed |= !items.is_sorted_by_key(|(index, _)| *index);
        let notices = self.notices.iter();
        items.extend(notices.map(|(index, item, _)| (*index, item.as_str().into())));
        items.sort_by_key(|(index, _)| *index);
        let items: Vec<&str> = items.iter().map(|(_, item)| &**item).collect();
        changed.then(|| format!("[{}]", items.join(",")))
    }
}

impl Writer {
    /// An event that waited, as it leaves.
    fn replay(&mut self, data: &Bytes, index: u64) -> Option<Bytes> {
        let parsed = StreamEvent::read(data).ok()?;
        let nowhere = Event::default();
        let source = Source {
            bytes: &[],
            event: &nowhere,
            data,
        };
        self.pass(source, &parsed, Some(index))
    }
}
