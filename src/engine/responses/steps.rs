//! What each kind of event does to the answer.

use bytes::Bytes;
use serde_json::Value;

use super::{
    Fault,
    answer::Settled,
    event::{Kind, StreamEvent},
    item::{Item, Role},
    object::{self, ResponseObject},
    slots::State,
    stream::{Fate, ResponsesStream, broken},
    writer::Source,
};
use crate::engine::chat::shaped;

impl ResponsesStream {
    pub(super) fn read(
        &mut self,
        source: Source<'_>,
        parsed: &StreamEvent<'_>,
    ) -> Result<Fate, Fault> {
        let kind = parsed.kind();
        if kind == Kind::Unknown {
            self.answer.writer.skip();
            return Ok(Fate::Drop);
        }
        parsed.check(kind)?;
        match kind {
            Kind::Begun => self.started(source, parsed),
            Kind::Ended => self.finished(source, parsed),
            Kind::ItemAdded => self.added(source, parsed),
            Kind::ItemDone => self.done(source, parsed),
            Kind::Piece | Kind::CallPiece => self.piece(source, parsed, kind),
            Kind::Error => Ok(self.told_error(source.data, parsed)),
            Kind::Alive | Kind::Unknown => Ok(self.pass(source, parsed, None)),
        }
    }

    fn pass(&mut self, source: Source<'_>, parsed: &StreamEvent<'_>, index: Option<u64>) -> Fate {
        match self.answer.writer.pass(source, parsed, index) {
            None => Fate::Pass,
            Some(event) => Fate::Send(vec![event]),
        }
    }

    /// Keeps an event back; what is kept is bounded.
    fn withhold(&mut self, data: &[u8]) -> Result<Fate, Fault> {
        self.answer.writer.skip();
        self.withheld += data.len();
        if self.withheld > self.most_withheld {
            return Err(Fault("The calls of the answer are too large to be judged."));
        }
        Ok(Fate::Drop)
    }

    fn started(&mut self, source: Source<'_>, parsed: &StreamEvent<'_>) -> Result<Fate, Fault> {
        let raw = parsed.response.ok_or(NO_RESPONSE)?;
        let object = ResponseObject::read(raw.get())?;
        object.tell(&mut self.tally);
        let items = object.items()?;
        let mut kept = Vec::with_capacity(items.len());
        for item in &items {
            if Item::read(item)?.role != Role::Call {
                kept.push(item.get());
            }
        }
        if self.object.is_none() {
            self.object = Some(raw.get().to_owned());
        }
        if kept.len() == items.len() {
            return Ok(self.pass(source, parsed, None));
        }
        let output = object
            .output
            .map(|raw| (raw, format!("[{}]", kept.join(","))));
        let changes = output.into_iter().collect();
        let writer = &mut self.answer.writer;
        let event = writer.rewritten(source.data, parsed, changes, &Value::Null);
        Ok(Fate::Send(vec![event]))
    }

    fn added(&mut self, source: Source<'_>, parsed: &StreamEvent<'_>) -> Result<Fate, Fault> {
        let item = Item::read(parsed.item.ok_or(NO_ITEM)?)?;
        let index = parsed.index()?.ok_or(NO_INDEX)?;
        if self.answer.slots.at(index).is_some() {
            return Err(Fault("Two output items have one place."));
        }
        let overtakes = item.role == Role::Message || !self.answer.slots.withhold();
        self.answer.begin(index, &item)?;
        let Some(slot) = self.answer.slots.at(index) else {
            return Err(NO_INDEX);
        };
        match &mut slot.state {
            State::Withheld(draft) => draft.add(item),
            State::Waiting(_) if overtakes => {
                let place = self.answer.writer.take_index();
                slot.state = State::Flowing(place);
                return Ok(self.pass(source, parsed, Some(place)));
            }
            State::Waiting(events) => events.push(Bytes::copy_from_slice(source.data)),
            _ => return self.decide_now(index, source.data),
        }
        self.withhold(source.data)
    }

    fn done(&mut self, source: Source<'_>, parsed: &StreamEvent<'_>) -> Result<Fate, Fault> {
        let item = Item::read(parsed.item.ok_or(NO_ITEM)?)?;
        let index = parsed.index()?.ok_or(NO_INDEX)?;
        let Some(slot) = self.answer.slots.at(index) else {
            return self.done_at_once(source, parsed, index, item);
        };
        if slot.kind.is_empty() {
            slot.kind.clone_from(&item.kind);
        }
        let became_call = item.role == Role::Call && slot.role != Role::Call;
        if slot.kind != item.kind || became_call {
            return Err(Fault("An output item changed its type."));
        }
        match slot.take_id(&item) {
            State::Flowing(place) => {
                let place = *place;
                if !std::mem::replace(&mut slot.counted, true) {
                    self.tally.written += item.written();
                }
                return Ok(self.pass(source, parsed, Some(place)));
            }
            State::Withheld(draft) => {
                if !draft.has_pieces() {
                    self.tally.written += item.written();
                }
                draft.finish(item);
                return self.decide_now(index, source.data);
            }
            State::Waiting(events) => events.push(Bytes::copy_from_slice(source.data)),
            State::Released(..) => return Err(Fault("A call ended twice.")),
            State::Blocked(_) | State::Gone => {}
        }
        self.withhold(source.data)
    }

    /// An item that ends without having begun.
    fn done_at_once(
        &mut self,
        source: Source<'_>,
        parsed: &StreamEvent<'_>,
        index: u64,
        item: Item,
    ) -> Result<Fate, Fault> {
        self.tally.written += item.written();
        let fate = self.added(source, parsed)?;
        let slot = self.answer.slots.at(index);
        match slot.map(|slot| &mut slot.state) {
            Some(State::Withheld(draft)) => {
                draft.finish(item);
                self.decide_now(index, &[])
            }
            _ => Ok(fate),
        }
    }

    /// A call is whole, or cannot be allowed any more.
    fn decide_now(&mut self, index: u64, data: &[u8]) -> Result<Fate, Fault> {
        let fate = self.withhold(data)?;
        if !self.answer.court.rules.delivery.each {
            return Ok(fate);
        }
        let slots = &self.answer.slots.0;
        let Some(at) = slots.iter().position(|slot| slot.index == index) else {
            return Ok(fate);
        };
        let events = self.answer.settle_one(at);
        if self.answer.court.refuses() {
            return Ok(self.refuse());
        }
        Ok(Fate::Send(events))
    }

    fn piece(
        &mut self,
        source: Source<'_>,
        parsed: &StreamEvent<'_>,
        kind: Kind,
    ) -> Result<Fate, Fault> {
        let Some(index) = parsed.index()? else {
            self.tally.written += parsed.written();
            return match kind {
                Kind::Piece => Ok(self.pass(source, parsed, None)),
                _ => Err(NO_INDEX),
            };
        };
        if self.answer.slots.at(index).is_none() && kind == Kind::Piece {
            let place = State::Flowing(self.answer.writer.take_index());
            self.answer.slots.push(index, "", Role::Message, place)?;
        }
        let slot = self.answer.slots.at(index);
        let slot = slot.ok_or(Fault("A piece of a call came before the call."))?;
        self.tally.written += parsed.written();
        slot.counted |= parsed.written() > 0;
        match &mut slot.state {
            State::Flowing(_) if kind == Kind::CallPiece && slot.role != Role::Hosted => {
                return Err(Fault("A piece of a call came where there is none."));
            }
            State::Flowing(place) => {
                let place = *place;
                self.said |= parsed.written() > 0;
                return Ok(self.pass(source, parsed, Some(place)));
            }
            State::Waiting(events) => events.push(Bytes::copy_from_slice(source.data)),
            State::Withheld(draft) if kind == Kind::CallPiece => {
                let at = parsed.command_index()?.unwrap_or(0);
                match parsed.call_text() {
                    Some((text, true)) => draft.whole(at, text, parsed.name()),
                    Some((text, false)) => draft.piece(at, &text),
                    None => {}
                }
            }
            State::Released(..) => return Err(Fault("A piece of a call came after its end.")),
            State::Withheld(_) | State::Blocked(_) | State::Gone => {}
        }
        self.withhold(source.data)
    }

    fn finished(&mut self, source: Source<'_>, parsed: &StreamEvent<'_>) -> Result<Fate, Fault> {
        let raw = parsed.response.ok_or(NO_RESPONSE)?;
        let mut object = ResponseObject::read(raw.get())?;
        if self.object.is_none() {
            self.object = Some(raw.get().to_owned());
        }
        // The name of the event says how it ended, whatever the object says.
        let ended = parsed.kind.strip_prefix("response.");
        object.status = ended.map(|status| status.to_owned().into());
        object.tell(&mut self.tally);
        let failed = matches!(ended, Some("failed" | "cancelled"));
        let error = object.error.map(|error| shaped(error.get()));
        let mut out = Vec::new();
        let settled = self.answer.settle(&object, &mut self.tally, &mut out)?;
        self.count_calls();
        let output = match settled {
            Settled::Done(output) => output,
            Settled::Refused => return Ok(self.refuse()),
            Settled::Paused(paused) => {
                let event = source.bytes.get(source.event.bytes.clone());
                let event = Bytes::copy_from_slice(event.unwrap_or_default());
                return Ok(Fate::Pause(paused, event));
            }
        };
        self.tally.finished = !failed;
        if failed {
            self.tally.error = error
                .clone()
                .or_else(|| Some(broken("upstream_error", FAILED)));
        }
        let guard = self.answer.court.guard();
        let error = error.map(|error| object::in_object(&error));
        let changes = [object.output.zip(output), object.error.zip(error)];
        let changes: Vec<_> = changes.into_iter().flatten().collect();
        let writer = &mut self.answer.writer;
        out.push(if changes.is_empty() && guard.is_null() {
            let as_it_came = || source.bytes.get(source.event.bytes.clone());
            writer
                .pass(source, parsed, None)
                .unwrap_or_else(|| Bytes::copy_from_slice(as_it_came().unwrap_or_default()))
        } else {
            writer.rewritten(source.data, parsed, changes, &guard)
        });
        Ok(Fate::End(out))
    }

    /// An error of the provider, in the form that SDKs raise.
    fn told_error(&mut self, data: &[u8], parsed: &StreamEvent<'_>) -> Fate {
        let flat = std::str::from_utf8(data).unwrap_or_default();
        let mut error = shaped(parsed.error.map_or(flat, |raw| raw.get()));
        if let Some(kind) = error.get_mut("type").filter(|kind| **kind == "error") {
            *kind = "server_error".into();
        }
        self.fail_with(error)
    }
}

const FAILED: &str = "The provider could not finish the answer.";
const NO_RESPONSE: Fault = Fault("An event of the answer holds no response.");
const NO_ITEM: Fault = Fault("An event of the answer holds no item.");
const NO_INDEX: Fault = Fault("An event of the answer has no usable index.");
