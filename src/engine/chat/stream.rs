//! A streamed answer: pieces of bytes in, what may leave out.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use memchr::memmem;
use serde_json::{Value, json};

use super::{
    chunk::Chunk,
    repeat::Repeat,
    rules::{CallRules, Judge, Judged},
    shape::shaped,
    strict::Members,
    tally::Tally,
    withheld::{Release, Withheld},
};
use crate::engine::{
    chain::{Block, Paused, Ruling, guard_object, notice},
    sse::{self, Event},
};

/// What has to be known of the request to read its answer.
#[derive(Debug, Clone)]
pub struct StreamRules {
    /// The client did not ask for usage: what the provider tells of it stays here.
    pub hide_usage: bool,
    /// An event larger than this ends the stream. Bytes.
    pub largest_event: usize,
    /// Calls and what waits with them may not be larger together. Bytes.
    pub most_withheld: usize,
    pub calls: CallRules,
}

/// Reads a streamed answer.
pub struct ChatStream {
    rules: StreamRules,
    /// The beginning of an event whose end has not come.
    rest: sse::Unfinished,
    tally: Tally,
    withheld: Withheld,
    repeat: Repeat,
    judged: Vec<Judged>,
    refused: Vec<Block>,
    /// Calls that wait for a person; nothing more is read then.
    paused: Vec<Paused>,
    /// A line feed that comes next belongs to the end of an event that stays here.
    drop_feed: bool,
    /// Nothing after `[DONE]` or an error is for anybody.
    over: bool,
    sent: bool,
    /// `false` as long as the answer may still become an error status.
    speaks: bool,
    /// What came before the first text, if it waits for that.
    prelude: Vec<Bytes>,
}

enum Fate {
    Pass,
    Drop,
    /// Pass without these bytes.
    PassWithout(Range<usize>),
    Replace(Bytes),
    /// The provider says that this was all.
    Done,
    /// The stream ends with this error.
    Fail(Value),
}

impl ChatStream {
    pub fn new(rules: StreamRules) -> Self {
        Self {
            speaks: !rules.calls.delivery.as_error,
            prelude: Vec::new(),
            rules,
            rest: sse::Unfinished::default(),
            tally: Tally::default(),
            withheld: Withheld::default(),
            repeat: Repeat::default(),
            judged: Vec::new(),
            refused: Vec::new(),
            paused: Vec::new(),
            drop_feed: false,
            over: false,
            sent: false,
        }
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The calls judged since this was asked last.
    pub fn take_judged(&mut self) -> Vec<Judged> {
        std::mem::take(&mut self.judged)
    }

    /// The blocked calls for which the whole answer is an error.
    pub fn refused(&self) -> &[Block] {
        &self.refused
    }

    /// The calls that wait for a person: everything else has left or waits with them.
    pub fn paused(&self) -> &[Paused] {
        &self.paused
    }

    /// Goes on with what people decided. `judge` is asked again, as rules may have changed.
    pub fn rule(&mut self, judge: Arc<dyn Judge>, rulings: Arc<[Ruling]>, out: &mut Vec<Bytes>) {
        if !std::mem::take(&mut self.paused).is_empty() {
            self.rules.calls.judge = judge;
            self.rules.calls.rulings = Some(rulings);
            self.finish(out);
        }
    }

    /// `true` once nothing more can come out.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether anything has left for the client.
    pub fn has_sent(&self) -> bool {
        self.sent
    }

    /// Whether something waits for its verdict.
    pub fn is_withholding(&self) -> bool {
        !self.over && self.withheld.holds()
    }

    /// Takes a piece in; pushes what may leave.
    pub fn feed(&mut self, piece: Bytes, out: &mut Vec<Bytes>) {
        if self.over || piece.is_empty() || !self.paused.is_empty() {
            return;
        }
        let Some(bytes) = self.rest.join(piece) else {
            return self.bound(out);
        };
        let mut at = self.skip_feed(&bytes);
        let mut passed = at..at;
        while let Some((end, fate)) = self.next(&bytes, at) {
            at = end;
            match fate {
                Fate::Pass => passed.end = at,
                Fate::PassWithout(gap) => {
                    self.push(bytes.slice(passed.start..gap.start), out);
                    passed = gap.end..at;
                }
                fate => {
                    self.push(bytes.slice(passed), out);
                    passed = at..at;
                    self.apply(fate, out);
                    if self.over || !self.paused.is_empty() {
                        return;
                    }
                }
            }
        }
        self.drop_feed = passed.is_empty() && at > 0 && bytes.ends_with(b"\r");
        self.push(bytes.slice(passed), out);
        self.rest.keep(bytes.get(at..).unwrap_or_default());
        self.bound(out);
    }

    /// An event that does not end is not gathered for ever.
    fn bound(&mut self, out: &mut Vec<Bytes>) {
        if self.rest.size() > self.rules.largest_event {
            self.fail(malformed(TOO_LARGE), out);
        }
    }

    /// The body ended: properly (`cut` false) or not.
    pub fn end(&mut self, cut: bool, out: &mut Vec<Bytes>) {
        if self.over || !self.paused.is_empty() {
            return;
        }
        if !cut && self.tally.finished && self.withheld.is_finished() {
            self.finish(out);
        } else {
            let error = server_error("upstream_broken", "The provider's answer broke off.");
            self.fail(error, out);
        }
    }

    /// Ends the stream in the middle, with words for the client.
    pub fn stop(&mut self, code: &str, message: &str, out: &mut Vec<Bytes>) {
        if !self.over {
            self.fail(server_error(code, message), out);
        }
    }

    /// Ends the stream at one of our limits: `told` is the error, as a whole JSON object.
    pub fn cut(&mut self, told: &[u8], out: &mut Vec<Bytes>) {
        self.over = true;
        self.prelude.clear();
        self.withheld.abandon(&self.rules.calls, &mut self.judged);
        out.push(data_line(told));
        out.push(Bytes::from_static(DONE));
    }

    /// From here on an error can only be told inside the stream.
    pub fn speak(&mut self, out: &mut Vec<Bytes>) {
        self.speaks = true;
        self.push(Bytes::new(), out);
    }

    /// Something harmless for a client that has to wait for a verdict.
    pub fn keep_alive(&mut self, out: &mut Vec<Bytes>) {
        if let Some(event) = self.withheld.keep_alive().filter(|_| self.speaks) {
            self.push(data_line(event.as_bytes()), out);
        }
    }

    /// How many bytes at the beginning are for nobody: the second half of the line end of an
    /// event that stays here.
    fn skip_feed(&mut self, bytes: &Bytes) -> usize {
        let half = std::mem::take(&mut self.drop_feed) && bytes.starts_with(b"\n");
        usize::from(half)
    }

    fn push(&mut self, bytes: Bytes, out: &mut Vec<Bytes>) {
        if !bytes.is_empty() {
            self.prelude.push(bytes);
        }
        if self.speaks {
            self.sent |= !self.prelude.is_empty();
            out.append(&mut self.prelude);
        }
    }

    fn apply(&mut self, fate: Fate, out: &mut Vec<Bytes>) {
        match fate {
            Fate::Pass | Fate::PassWithout(_) | Fate::Drop => {}
            Fate::Replace(bytes) => self.push(bytes, out),
            Fate::Done => self.finish(out),
            Fate::Fail(error) => self.fail(error, out),
        }
    }

    /// The answer is complete: the verdict on what waits, then the end.
    fn finish(&mut self, out: &mut Vec<Bytes>) {
        self.over = true;
        match self.withheld.release(&self.rules.calls, &mut self.judged) {
            Release::Events(events) => {
                self.speak(out);
                for event in events {
                    self.push(data_line(event.as_bytes()), out);
                }
            }
            Release::Refused(blocks) => self.refuse(blocks, out),
            Release::Paused(paused) => {
                self.over = false;
                self.paused = paused;
                return;
            }
        }
        if self.sent {
            self.push(Bytes::from_static(DONE), out);
        }
    }

    /// Tells blocked calls as an error; while nothing was sent, whoever asks for `refused` does.
    fn refuse(&mut self, blocks: Vec<Block>, out: &mut Vec<Bytes>) {
        self.prelude.clear();
        if self.sent {
            let CallRules {
                policy, decision, ..
            } = &self.rules.calls;
            let error = json!({
                "message": notice(&blocks, decision),
                "type": "permission_error",
                "param": null,
                "code": "tool_call_blocked",
            });
            let guard = guard_object(&blocks, policy, decision);
            let event = json!({ "error": error, "guard": guard });
            self.push(data_line(event.to_string().as_bytes()), out);
        }
        self.refused = blocks;
    }

    fn fail(&mut self, error: Value, out: &mut Vec<Bytes>) {
        self.over = true;
        self.prelude.clear();
        self.withheld.abandon(&self.rules.calls, &mut self.judged);
        // An error before anything was sent is answered with a status instead.
        if self.sent {
            let event = json!({ "error": error }).to_string();
            self.push(data_line(event.as_bytes()), out);
        }
        self.tally.error = Some(error);
    }

    /// Reads the event that begins at `from`, if it is whole; also says where it ends.
    fn next(&mut self, bytes: &Bytes, from: usize) -> Option<(usize, Fate)> {
        if let Some(again) = self.repeat.again(bytes, from) {
            self.tally.written += again.written;
            return Some((again.end, again.gap.map_or(Fate::Pass, Fate::PassWithout)));
        }
        let event = sse::next_event(bytes, from)?;
        self.repeat.forget();
        Some((event.bytes.end, self.read(bytes, &event)))
    }

    fn read(&mut self, bytes: &Bytes, event: &Event) -> Fate {
        if event.data.is_empty() {
            // Comments keep connections alive; other lines without data break SDKs.
            return if event.other_lines {
                Fate::Drop
            } else {
                Fate::Pass
            };
        }
        let data = event.data(bytes);
        let text = data.trim_ascii();
        if matches!(text, b"" | b"\"\"" | b"null") {
            return Fate::Drop;
        }
        if text.starts_with(b"[DONE]") {
            return Fate::Done;
        }
        if text.len() > self.rules.largest_event {
            return Fate::Fail(malformed(TOO_LARGE));
        }
        match Chunk::read(text) {
            Ok(chunk) => self.judge(bytes, event, text, &chunk),
            Err(_) => Fate::Fail(malformed(UNREADABLE)),
        }
    }

    fn judge(&mut self, bytes: &[u8], event: &Event, text: &[u8], chunk: &Chunk<'_>) -> Fate {
        self.tally.add(chunk);
        if let Some(error) = chunk.error() {
            let error = shaped(error.get());
            let message = error.get("message").and_then(Value::as_str);
            if self.withheld.is_told_in(message.unwrap_or_default()) {
                return Fate::Fail(shaped("{}"));
            }
            return Fate::Fail(error);
        }
        if chunk.choices().is_empty() && chunk.usage().is_some() && self.rules.hide_usage {
            return Fate::Drop;
        }
        let Ok(passes) = self.withheld.passes(chunk) else {
            return Fate::Fail(malformed(UNREADABLE));
        };
        self.speaks |= chunk.says();
        let usage = chunk.usage.filter(|_| self.rules.hide_usage);
        let mut gone: Vec<&str> = Vec::new();
        gone.extend(usage.map(|_| "usage"));
        gone.extend(chunk.error.map(|_| "error"));
        if !passes {
            return self.sift(text, chunk, &gone);
        }
        if gone.is_empty() && !event.other_lines && chunk.choices.is_some() {
            self.repeat.learn(bytes, event, chunk, None);
            return Fate::Pass;
        }
        let plain = !event.other_lines && chunk.choices.is_some() && chunk.error.is_none();
        if plain && usage.is_some_and(|usage| usage.get() == "null") {
            // A quote inside a JSON string is escaped, so this can only match a member.
            let whole = bytes.get(event.bytes.clone()).unwrap_or_default();
            if let Some(at) = memmem::find(whole, NULL_USAGE) {
                let start = event.bytes.start + at;
                let gap = start..start + NULL_USAGE.len();
                self.repeat.learn(bytes, event, chunk, Some(gap.clone()));
                return Fate::PassWithout(gap);
            }
        }
        rewritten(text, &gone, chunk.choices.is_none())
    }

    fn sift(&mut self, text: &[u8], chunk: &Chunk<'_>, gone: &[&str]) -> Fate {
        let most = self.rules.most_withheld;
        let text = str::from_utf8(text).unwrap_or_default();
        let sifted = self.withheld.sift(text, chunk, gone, most);
        self.tally.tool_calls = self.withheld.calls() as u64;
        match sifted {
            Ok(Some(event)) => Fate::Replace(data_line(event.as_bytes())),
            Ok(None) => Fate::Drop,
            Err(_) => Fate::Fail(malformed(UNREADABLE)),
        }
    }
}

const NULL_USAGE: &[u8] = b",\"usage\":null";
const DONE: &[u8] = b"data: [DONE]\n\n";
const TOO_LARGE: &str = "An event of the answer is too large.";
const UNREADABLE: &str = "An event of the answer cannot be read.";

/// The event again, without members that clients trip over, lines that do not belong on a chat
/// stream, and with the `choices` that every client expects.
fn rewritten(text: &[u8], gone: &[&str], no_choices: bool) -> Fate {
    let text = str::from_utf8(text).unwrap_or_default();
    let Ok(mut event) = Members::read(text) else {
        return Fate::Fail(malformed(UNREADABLE));
    };
    event.retain(|name, _| !gone.contains(&name));
    if no_choices {
        event.set("choices", "[]");
    }
    Fate::Replace(data_line(event.to_json().as_bytes()))
}

fn data_line(data: &[u8]) -> Bytes {
    // A line feed inside JSON is only ever white space.
    let space = |byte: &u8| {
        if matches!(byte, b'\n' | b'\r') {
            b' '
        } else {
            *byte
        }
    };
    let mut line = Vec::with_capacity(data.len() + 8);
    line.extend_from_slice(b"data: ");
    line.extend(data.iter().map(space));
    line.extend_from_slice(b"\n\n");
    line.into()
}

fn malformed(message: &str) -> Value {
    server_error("malformed_output", message)
}

fn server_error(code: &str, message: &str) -> Value {
    json!({ "message": message, "type": "server_error", "param": null, "code": code })
}
