//! Takes a streamed answer in piece by piece and lets out what may leave.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    Fault,
    answer::{Answer, OwnIds},
    event::StreamEvent,
    object::{ResponseObject, failed},
    writer::Source,
};
use crate::engine::{
    chain::{Block, Paused, Ruling},
    chat::{Judge, Judged, StreamRules, Tally},
    sse::{self, Event},
};

/// Reads a streamed answer.
pub struct ResponsesStream {
    pub(super) answer: Answer,
    pub(super) tally: Tally,
    largest_event: usize,
    pub(super) most_withheld: usize,
    /// The beginning of an event whose end has not come.
    rest: sse::Unfinished,
    over: bool,
    sent: bool,
    owned: bool,
    /// Something that a model wrote was passed on.
    pub(super) said: bool,
    /// Blocked calls will be told as an error: what says nothing yet waits, so that the error can
    /// still be a status.
    prelude: Vec<Bytes>,
    /// The response object as it began.
    pub(super) object: Option<String>,
    /// Bytes of withheld events.
    pub(super) withheld: usize,
    /// Calls that wait for a person, and the event that ends the answer.
    paused: Option<(Vec<Paused>, Bytes)>,
}

/// What becomes of an event.
pub(super) enum Fate {
    Pass,
    Drop,
    Send(Vec<Bytes>),
    End(Vec<Bytes>),
    /// A person has to decide first; then this event is read again.
    Pause(Vec<Paused>, Bytes),
}

impl ResponsesStream {
    pub fn new(rules: StreamRules) -> Self {
        let StreamRules {
            largest_event,
            most_withheld,
            calls,
            ..
        } = rules;
        Self {
            largest_event,
            most_withheld,
            answer: Answer::new(calls),
            tally: Tally::default(),
            rest: sse::Unfinished::default(),
            over: false,
            sent: false,
            owned: false,
            said: false,
            prelude: Vec::new(),
            object: None,
            withheld: 0,
            paused: None,
        }
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The calls judged since this was asked last.
    pub fn take_judged(&mut self) -> Vec<Judged> {
        std::mem::take(&mut self.answer.court.judged)
    }

    /// The calls that are blocked, if that is told as an error.
    pub fn refused(&self) -> &[Block] {
        match self.answer.court.refuses() {
            true => &self.answer.court.blocks,
            false => &[],
        }
    }

    /// The calls that wait for a person: everything else has left or waits with them.
    pub fn paused(&self) -> &[Paused] {
        self.paused.as_ref().map_or(&[], |(paused, _)| paused)
    }

    /// Goes on with what people decided. `judge` is asked again, as rules may have changed.
    pub fn rule(&mut self, judge: Arc<dyn Judge>, rulings: Arc<[Ruling]>, out: &mut Vec<Bytes>) {
        if let Some((_, ending)) = self.paused.take() {
            self.answer.court.take_rulings(judge, rulings);
            self.feed(ending, out);
        }
    }

    /// Whether something waits for its verdict.
    pub fn is_withholding(&self) -> bool {
        !self.over && self.answer.slots.withhold()
    }

    /// Lets out what waits for the first text: the status is settled.
    pub fn speak(&mut self, out: &mut Vec<Bytes>) {
        self.said = true;
        self.sent |= !self.prelude.is_empty();
        out.append(&mut self.prelude);
    }

    /// Something harmless for a client that has to wait for a verdict.
    pub fn keep_alive(&mut self, out: &mut Vec<Bytes>) {
        if self.sent || !self.waits() {
            out.push(Bytes::from_static(b": waiting\n\n"));
        }
    }

    /// What the client may refer to, once: of an answer that ended well, its id, and the ids of
    /// the items that have left.
    pub fn take_own_ids(&mut self) -> OwnIds {
        if !self.over || std::mem::replace(&mut self.owned, true) {
            return OwnIds::default();
        }
        let begun = self.object.as_deref();
        let object = begun.and_then(|text| ResponseObject::read(text).ok());
        let id = object.and_then(|object| object.id);
        let id = id.filter(|_| self.tally.finished).map(Cow::into_owned);
        self.answer.own_ids(id)
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
        if self.over || self.paused.is_some() {
            return;
        }
        let Some(bytes) = self.rest.join(piece) else {
            return self.bound(out);
        };
        let mut at = 0;
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
            if self.over || self.paused.is_some() {
                return;
            }
        }
        self.push(bytes.slice(passed), out);
        self.rest.keep(bytes.get(at..).unwrap_or_default());
        self.bound(out);
    }

    /// An event that does not end is not gathered for ever.
    fn bound(&mut self, out: &mut Vec<Bytes>) {
        if self.rest.size() > self.largest_event {
            let end = self.fail("malformed_output", TOO_LARGE);
            self.apply(end, Bytes::new(), out);
        }
    }

    /// The body ended: properly (`cut` false) or not.
    pub fn end(&mut self, _cut: bool, out: &mut Vec<Bytes>) {
        if self.paused.is_some() {
            return;
        }
        self.stop("upstream_broken", "The provider's answer broke off.", out);
    }

    /// Ends the stream in the middle, with words for the client.
    pub fn stop(&mut self, code: &str, message: &str, out: &mut Vec<Bytes>) {
        if !self.over {
            let end = self.fail(code, message);
            self.apply(end, Bytes::new(), out);
        }
    }

    /// Ends the stream at one of our limits: `told` is the error, as a whole JSON object.
    pub fn cut(&mut self, told: &[u8], out: &mut Vec<Bytes>) {
        let told: Value = serde_json::from_slice(told).unwrap_or_default();
        let error = told.get("error").cloned().unwrap_or_default();
        let guard = told.get("guard").cloned().unwrap_or_default();
        let response = failed(self.object.as_deref(), &error);
        self.over = true;
        self.prelude.clear();
        self.answer.abandon();
        self.count_calls();
        out.push(self.answer.writer.failure(&error, &response, &guard));
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
            Fate::Pause(paused, ending) => {
                self.paused = Some((paused, ending));
                return;
            }
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
            self.said = self.withheld > self.most_withheld;
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
        if matches!(data, b"" | b"\"\"" | b"null") || data.starts_with(b"[DONE]") {
            return Fate::Drop;
        }
        if data.len() > self.largest_event {
            return self.fail("malformed_output", TOO_LARGE);
        }
        let source = Source { bytes, event, data };
        let read = StreamEvent::read(data).and_then(|parsed| self.read(source, &parsed));
        read.unwrap_or_else(|Fault(why)| self.fail("malformed_output", why))
    }

    /// Blocked calls told as an error; while nothing was sent, whoever asks for `refused` does.
    pub(super) fn refuse(&mut self) -> Fate {
        let error = self.answer.court.error();
        let told = self.told(&error);
        self.count_calls();
        Fate::End(if self.sent { vec![told] } else { Vec::new() })
    }

    pub(super) fn count_calls(&mut self) {
        self.tally.tool_calls = self.answer.court.heard;
    }

    pub(super) fn fail(&mut self, code: &str, message: &str) -> Fate {
        self.fail_with(broken(code, message))
    }

    pub(super) fn fail_with(&mut self, error: Value) -> Fate {
        let told = self.told(&error);
        self.answer.abandon();
        self.count_calls();
        self.tally.error = Some(error);
        Fate::End(vec![told])
    }

    fn told(&mut self, error: &Value) -> Bytes {
        let response = failed(self.object.as_deref(), error);
        let guard = self.answer.court.guard();
        self.answer.writer.failure(error, &response, &guard)
    }
}

pub(super) fn broken(code: &str, message: &str) -> Value {
    json!({ "type": "server_error", "code": code, "message": message, "param": null })
}

const TOO_LARGE: &str = "An event of the answer is too large.";
