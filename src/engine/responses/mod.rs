//! What of a Responses answer goes on to the client, and what it amounted to.
//!
//! Events about text leave at once, as the bytes they came in. A call is on the wire up to four
//! times; all of its events and copies are withheld until it is whole and judged, and then sent
//! in one form. A blocked call is replaced by a message that says why, in the events and in the
//! response object alike. Items are joined by `output_index`, since ids may change on the way;
//! what leaves is numbered anew as soon as something was withheld.
//!
//! While calls are withheld only messages overtake them. What cannot be read, or contradicts
//! what was passed on, ends the answer with an error; withheld calls stay withheld.

mod answer;
mod body;
mod court;
mod draft;
mod event;
mod item;
mod members;
mod object;
mod slots;
#[cfg(test)]
mod tests;
mod writer;

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};

use self::{
    answer::Answer,
    event::{Kind, StreamEvent},
    item::{Item, Role},
    object::{ResponseObject, failed},
    slots::State,
    writer::Source,
};
pub use self::{
    body::{WholeAnswer, judge_whole},
    court::{BLOCKED, Judge, Judged, Rules},
};
use super::{
    chat::{Tally, shaped},
    sse::{self, Event},
};

/// Why an answer cannot be read; for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault(pub &'static str);

/// Reads a streamed answer.
pub struct ResponsesStream {
    answer: Answer,
    tally: Tally,
    /// The beginning of an event whose end has not come.
    rest: BytesMut,
    begun: bool,
    over: bool,
    sent: bool,
    /// Something that a model wrote was passed on.
    said: bool,
    /// Blocked calls will be told as an error: what says nothing yet waits, so that the error can
    /// still be a status.
    prelude: Vec<Bytes>,
    /// The response object as it began.
    object: Option<String>,
    /// Bytes of withheld events.
    withheld: usize,
}

enum Fate {
    Pass,
    Drop,
    Send(Vec<Bytes>),
    End(Vec<Bytes>),
}

impl ResponsesStream {
    pub fn new(rules: Rules) -> Self {
        Self {
            answer: Answer::new(rules),
            tally: Tally::default(),
            rest: BytesMut::new(),
            begun: false,
            over: false,
            sent: false,
            said: false,
            prelude: Vec::new(),
            object: None,
            withheld: 0,
        }
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What was said of each call so far.
    pub fn judged(&self) -> &[Judged] {
        &self.answer.court.judged
    }

    /// The id that the provider gave the answer.
    pub fn response_id(&self) -> Option<String> {
        let object = ResponseObject::read(self.object.as_deref()?).ok()?;
        object.id.map(std::borrow::Cow::into_owned)
    }

    /// `true` once nothing more can come out.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether anything has left for the client.
    pub fn has_sent(&self) -> bool {
        self.sent
    }

    /// Takes a piece in; pushes what may leave.
    pub fn feed(&mut self, piece: Bytes, out: &mut Vec<Bytes>) {
        if self.over {
            return;
        }
        let bytes = self.whole(piece);
        let mut at = self.skip_mark(&bytes);
        let mut passed = at..at;
        while let Some(event) = sse::next_event(&bytes, at) {
            at = event.bytes.end;
            match self.judge(&bytes, &event) {
                Fate::Pass if !self.waits() => {
                    passed.end = at;
                    continue;
                }
                fate => {
                    self.push(bytes.slice(passed.clone()), out);
                    passed = at..at;
                    self.apply(fate, bytes.slice(event.bytes), out);
                }
            }
            if self.over {
                return;
            }
        }
        self.push(bytes.slice(passed), out);
        let left = bytes.slice(at..);
        if left.len() > self.largest() {
            let end = self.fail("malformed_output", TOO_LARGE);
            self.apply(end, Bytes::new(), out);
            return;
        }
        self.rest.extend_from_slice(&left);
    }

    /// The body ended: properly (`cut` false) or not.
    pub fn end(&mut self, _cut: bool, out: &mut Vec<Bytes>) {
        self.stop("upstream_broken", "The provider's answer broke off.", out);
    }

    /// Ends the stream in the middle, with words for the client.
    pub fn stop(&mut self, code: &str, message: &str, out: &mut Vec<Bytes>) {
        if !self.over {
            let end = self.fail(code, message);
            self.apply(end, Bytes::new(), out);
        }
    }

    fn largest(&self) -> usize {
        self.answer.court.rules.largest_event
    }

    fn whole(&mut self, piece: Bytes) -> Bytes {
        if self.rest.is_empty() {
            return piece;
        }
        self.rest.extend_from_slice(&piece);
        self.rest.split().freeze()
    }

    /// A byte order mark makes one SDK lose the first event.
    fn skip_mark(&mut self, bytes: &Bytes) -> usize {
        let marked = !self.begun && bytes.starts_with(b"\xef\xbb\xbf");
        self.begun |= !bytes.is_empty();
        if marked { 3 } else { 0 }
    }

    /// Whether nothing was said yet that an error could not still replace.
    fn waits(&self) -> bool {
        self.answer.court.rules.delivery.as_error && !self.sent && !self.said
    }

    fn push(&mut self, bytes: Bytes, out: &mut Vec<Bytes>) {
        if !bytes.is_empty() {
            self.sent = true;
            out.append(&mut self.prelude);
            out.push(bytes);
        }
    }

    /// `event` is the event itself, as it came.
    fn apply(&mut self, fate: Fate, event: Bytes, out: &mut Vec<Bytes>) {
        let pieces = match fate {
            Fate::Pass => vec![event],
            Fate::Drop => return,
            Fate::Send(pieces) => pieces,
            Fate::End(pieces) => {
                self.over = true;
                // An error before anything was sent is answered with a status instead.
                if self.tally.error.is_some() && !self.sent {
                    return;
                }
                return pieces.into_iter().for_each(|piece| self.push(piece, out));
            }
        };
        if self.waits() {
            self.withheld += pieces.iter().map(Bytes::len).sum::<usize>();
            self.said = self.withheld > self.largest();
            self.prelude.extend(pieces);
        } else {
            pieces.into_iter().for_each(|piece| self.push(piece, out));
        }
    }

    fn judge(&mut self, bytes: &Bytes, event: &Event) -> Fate {
        if event.data.is_empty() {
            // Comments keep connections alive; other lines without data break SDKs.
            return if event.other_lines {
                Fate::Drop
            } else {
                Fate::Pass
            };
        }
        let data = event.data(bytes);
        let data = data.trim_ascii();
        if data.is_empty() || data.starts_with(b"[DONE]") {
            return Fate::Drop;
        }
        if data.len() > self.largest() {
            return self.fail("malformed_output", TOO_LARGE);
        }
        let source = Source { bytes, event, data };
        let read = StreamEvent::read(data).and_then(|parsed| self.read(source, &parsed));
        read.unwrap_or_else(|Fault(why)| self.fail("malformed_output", why))
    }

    fn read(&mut self, source: Source<'_>, parsed: &StreamEvent<'_>) -> Result<Fate, Fault> {
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
        if self.withheld > self.largest() {
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
        match &mut slot.state {
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
        // The name of the event says how it ended, whatever the object says.
        let ended = parsed.kind.strip_prefix("response.");
        object.status = ended.map(|status| status.to_owned().into());
        object.tell(&mut self.tally);
        let failed = matches!(ended, Some("failed" | "cancelled"));
        let error = object.error.map(|error| shaped(error.get()));
        let mut out = Vec::new();
        let output = self.answer.settle(&object, &mut self.tally, &mut out)?;
        self.tally.tool_calls = self.judged().len() as u64;
        if self.answer.court.refuses() {
            return Ok(self.refuse());
        }
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
        if parsed.error.is_none() && error.get("type") == Some(&"error".into()) {
            error["type"] = "server_error".into();
        }
        self.fail_with(error)
    }

    /// Blocked calls told as an error.
    fn refuse(&mut self) -> Fate {
        let error = self.answer.court.error();
        self.fail_with(error)
    }

    fn fail(&mut self, code: &str, message: &str) -> Fate {
        self.fail_with(broken(code, message))
    }

    fn fail_with(&mut self, error: Value) -> Fate {
        let response = failed(self.object.as_deref(), &error);
        let guard = self.answer.court.guard();
        let told = self.answer.writer.failure(&error, &response, &guard);
        self.tally.tool_calls = self.judged().len() as u64;
        self.tally.error = Some(error);
        Fate::End(vec![told])
    }
}

fn broken(code: &str, message: &str) -> Value {
    json!({ "type": "server_error", "code": code, "message": message, "param": null })
}

const TOO_LARGE: &str = "An event of the answer is too large.";
const FAILED: &str = "The provider could not finish the answer.";
const NO_RESPONSE: Fault = Fault("An event of the answer holds no response.");
const NO_ITEM: Fault = Fault("An event of the answer holds no item.");
const NO_INDEX: Fault = Fault("An event of the answer has no usable index.");
