//! What of a stream has to wait, and what becomes of it at the end.
//!
//! Calls wait until the stream ends: pieces come after a finish reason, and JSON that can be
//! parsed is no sign that nothing follows. With them wait the finish of their choice and the
//! events without choices that come later (usage, moderation), since clients stop there. A
//! finish that leaves before its choice has any call stays; a call that comes after it is
//! blocked, because clients disagree whether it counts.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{
    assemble::{Assembly, Form, Whole},
    chunk::{Choice, Chunk, Delta, TOKEN_MEMBERS},
    rules::{CallRules, Judged},
    strict::{Members, Unreadable, list, quoted},
    suspect,
    verdict::Verdict,
};
use crate::engine::chain::{Block, CallKind, Paused, guard_object};

/// No provider gives more answers to one request, and no client reads more calls.
const MOST_CHOICES: u64 = 128;
const MOST_CALLS: usize = 128;

/// Members of an event that every chunk of a stream repeats.
const ENVELOPE: [&str; 5] = [
    "id",
    "created",
    "model",
    "system_fingerprint",
    "service_tier",
];

#[derive(Debug, Default)]
pub struct Withheld {
    choices: Vec<State>,
    envelope: Members<'static>,
    finishes: Vec<Finish>,
    /// Events without choices that came after calls. JSON.
    later: Vec<String>,
    bytes: usize,
}

/// One choice, and what the client has got of it.
#[derive(Debug, Default)]
struct State {
    index: u64,
    role_sent: bool,
    text_sent: bool,
    finish_sent: bool,
    /// Calls came after the finish had been sent.
    late: bool,
    finish: Option<String>,
    calls: Assembly,
    /// The calls, once they are known to be whole and wait for a person.
    wholes: Option<Vec<Whole>>,
}

/// An event that ends choices, without what it said besides.
#[derive(Debug)]
struct Finish {
    event: Members<'static>,
    choices: Vec<(u64, Members<'static>)>,
}

/// What leaves at the end, as JSON, or the blocks for which the answer is an error.
pub enum Release {
    Events(Vec<String>),
    Refused(Vec<Block>),
    /// Nothing yet: a person has to decide on these.
    Paused(Vec<Paused>),
}

/// An event's members that wait, and those that do not.
#[derive(Default)]
struct Sifted {
    now: Vec<String>,
    finishing: Vec<(u64, Members<'static>)>,
}

#[derive(Deserialize)]
struct RawChoices<'a> {
    #[serde(borrow)]
    choices: Vec<&'a RawValue>,
}

impl Withheld {
    /// Notes what an event says. `true`: it may leave as it is.
    ///
    /// # Errors
    /// The index of a choice is none.
    pub fn passes(&mut self, chunk: &Chunk<'_>) -> Result<bool, Unreadable> {
        let holds = self.holds();
        let mut passes = !(chunk.marks.any() || chunk.choices().is_empty() && holds);
        for (at, choice) in chunk.choices().iter().enumerate() {
            let state = self.state(choice, at)?;
            passes &= !choice.needs_a_look()
                && !(choice.tells_tokens && (state.holds() || !choice.says()))
                && !choice.finish().is_some_and(|why| state.keeps(why));
        }
        if passes {
            for (at, choice) in chunk.choices().iter().enumerate() {
                self.state(choice, at)?.sent(choice);
            }
        }
        Ok(passes)
    }

    /// Takes out of an event what has to wait; gives back what may leave, as JSON. Members of
    /// the event named in `gone` are left out.
    ///
    /// # Errors
    /// It holds what cannot be told from a call, or more than can be held.
    pub fn sift(
        &mut self,
        text: &str,
        chunk: &Chunk<'_>,
        gone: &[&str],
        most_bytes: usize,
    ) -> Result<Option<String>, Unreadable> {
        if chunk.marks.call {
            return Err(Unreadable);
        }
        let mut event = Members::read(text)?;
        event.retain(|name, value| !gone.contains(&name) && !suspect::look(name, value).leak);
        if chunk.choices().is_empty() {
            event.set("choices", "[]");
            return self.keep_later(event.to_json(), most_bytes);
        }
        let raw: RawChoices<'_> = serde_json::from_str(text).map_err(|_| Unreadable)?;
        let mut sifted = Sifted::default();
        for (at, (choice, raw)) in chunk.choices().iter().zip(&raw.choices).enumerate() {
            self.sift_choice((choice, at), raw.get(), &mut sifted)?;
        }
        if self.holds() && self.envelope.get("id").is_none() {
            self.envelope = event.clone().into_owned();
            self.envelope.retain(|name, _| ENVELOPE.contains(&name));
        }
        event.take("choices");
        if !sifted.finishing.is_empty() {
            self.bytes += event.to_json().len();
            self.finishes.push(Finish {
                event: event.clone().into_owned(),
                choices: sifted.finishing,
            });
            // Some clients add up what they are told twice.
            event.take("usage");
        }
        if self.bytes > most_bytes || self.calls() > MOST_CALLS {
            return Err(Unreadable);
        }
        if sifted.now.is_empty() {
            return Ok(None);
        }
        event.set("choices", list(sifted.now.iter().map(String::as_str)));
        Ok(Some(event.to_json()))
    }

    /// Whether calls wait, or a finish that announced some.
    pub fn holds(&self) -> bool {
        !self.finishes.is_empty() || self.choices.iter().any(State::holds)
    }

    /// Whether `text` names a call that waits.
    pub fn is_told_in(&self, text: &str) -> bool {
        self.choices
            .iter()
            .any(|state| state.calls.is_told_in(text))
    }

    /// How many calls have begun.
    pub fn calls(&self) -> usize {
        self.choices.iter().map(|state| state.calls.len()).sum()
    }

    /// Whether every choice with calls has come to its end.
    pub fn is_finished(&self) -> bool {
        self.choices
            .iter()
            .all(|state| !state.holds() || state.finish.is_some() || state.finish_sent)
    }

    /// An event that says nothing, for a client that would take silence for a broken connection.
    pub fn keep_alive(&self) -> Option<String> {
        let waiting = self.choices.iter().find(|state| state.holds())?;
        Some(self.event(&choice(waiting.index, "{}", None), None))
    }

    /// The stream has ended well: all calls are whole.
    pub fn release(&mut self, rules: &CallRules, judged: &mut Vec<Judged>) -> Release {
        let (mut verdicts, mut docket) = (Vec::new(), rules.docket());
        let first = judged.len();
        self.choices.sort_by_key(|state| state.index);
        for state in &mut self.choices {
            if state.holds() {
                let wholes = state.take_calls(rules);
                let how = (rules, &mut docket);
                let verdict = Verdict::of(wholes, state.index, how, judged);
                verdicts.push((state.index, verdict));
            }
        }
        let blocked = verdicts.iter().flat_map(|(_, verdict)| &verdict.blocks);
        let blocks: Vec<Block> = blocked.cloned().collect();
        if rules.delivery.as_error && !blocks.is_empty() {
            judged.iter_mut().for_each(|one| one.delivered = false);
            return Release::Refused(blocks);
        }
        let paused: Vec<Paused> = verdicts
            .iter_mut()
            .flat_map(|(_, verdict)| std::mem::take(&mut verdict.paused))
            .collect();
        if !paused.is_empty() {
            let heard = judged.drain(first..);
            heard.for_each(|one| rules.judge.give_back(&one.judgement));
            return Release::Paused(paused);
        }
        let mut events = Vec::new();
        for (index, verdict) in &verdicts {
            self.write_verdict(*index, verdict, rules, &mut events);
        }
        self.write_finishes(&verdicts, &mut events);
        events.append(&mut self.later);
        Release::Events(events)
    }

    /// The stream broke off: what waits is blocked, whatever it says.
    pub fn abandon(&mut self, rules: &CallRules, judged: &mut Vec<Judged>) {
        for state in &mut self.choices {
            let calls = std::mem::take(&mut state.calls);
            let wholes = state.wholes.take().unwrap_or_default();
            let broken = calls.into_calls(&*rules.judge, Some(BROKEN_OFF));
            for whole in wholes.into_iter().chain(broken) {
                judged.push(Judged {
                    judgement: rules.judge.judge(&whole.call),
                    call: whole.call,
                    delivered: false,
                });
            }
        }
        self.finishes.clear();
        self.later.clear();
    }

    fn keep_later(&mut self, event: String, most: usize) -> Result<Option<String>, Unreadable> {
        if !self.holds() {
            return Ok(Some(event));
        }
        self.bytes += event.len();
        self.later.push(event);
        if self.bytes > most {
            return Err(Unreadable);
        }
        Ok(None)
    }

    fn sift_choice(
        &mut self,
        (choice, at): (&Choice<'_>, usize),
        raw: &str,
        sifted: &mut Sifted,
    ) -> Result<(), Unreadable> {
        let (state, bytes) = (self.state(choice, at)?, raw.len());
        let had_calls = state.take_pieces(choice)?;
        let keeps_finish = choice.finish().is_some_and(|why| state.keeps(why));
        let holds = state.holds();
        let mut members = Members::read(raw)?;
        members.retain(|name, value| {
            let kept = matches!(name, "delta" | "message" | "index" | "finish_reason")
                || !suspect::look(name, value).any();
            kept && !(TOKEN_MEMBERS.contains(&name) && (holds || !choice.says()))
        });
        let mut now = members.clone();
        for name in ["delta", "message"] {
            if let Some(part) = now.take(name) {
                now.set(name, without_calls(&part)?);
            }
        }
        if keeps_finish {
            now.set("finish_reason", "null");
            state.finish = choice.finish().map(str::to_owned);
            members.retain(|name, _| !matches!(name, "delta" | "message" | "index"));
            sifted.finishing.push((state.index, members.into_owned()));
        }
        let role = !state.role_sent && has_role(choice);
        if choice.says() || role || !(had_calls || keeps_finish) {
            state.sent(choice);
            sifted.now.push(now.to_json());
        }
        if had_calls {
            self.bytes += bytes;
        }
        Ok(())
    }

    fn state(&mut self, choice: &Choice<'_>, at: usize) -> Result<&mut State, Unreadable> {
        let index = match choice.index.map_or("null", RawValue::get) {
            "null" => at as u64,
            // Clients read `"0"`, `0.0` and `true` each in their own way.
            text => text.parse().map_err(|_| Unreadable)?,
        };
        if index >= MOST_CHOICES {
            return Err(Unreadable);
        }
        let known = self.choices.iter().position(|state| state.index == index);
        let at = known.unwrap_or_else(|| {
            self.choices.push(State {
                index,
                ..State::default()
            });
            self.choices.len() - 1
        });
        self.choices.get_mut(at).ok_or(Unreadable)
    }

    fn write_verdict(
        &self,
        index: u64,
        verdict: &Verdict,
        rules: &CallRules,
        events: &mut Vec<String>,
    ) {
        let state = self.choices.iter().find(|state| state.index == index);
        let (role_sent, text_sent) =
            state.map_or((false, false), |state| (state.role_sent, state.text_sent));
        let mut role = (!role_sent).then_some("\"assistant\"");
        let mut write = |name: &'static str, value: String, guard: Option<&Value>| {
            let mut delta = Members::default();
            if let Some(role) = role.take() {
                delta.set("role", role);
            }
            delta.set(name, value);
            events.push(self.event(&choice(index, &delta.to_json(), None), guard));
        };
        if let Some(notice) = verdict.notice(rules) {
            let gap = if text_sent {
                "

"
            } else {
                ""
            };
            let guard = guard_object(&verdict.blocks, &rules.policy, &rules.decision);
            write("content", quoted(format!("{gap}{notice}")), Some(&guard));
        }
        for (at, call) in verdict.calls.iter().enumerate() {
            let mut numbered = Members::default();
            numbered.set("index", at.to_string());
            call.iter()
                .for_each(|(name, value)| numbered.push(name, value));
            write("tool_calls", list([numbered.to_json().as_str()]), None);
        }
        if let Some(call) = &verdict.function_call {
            write("function_call", call.clone(), None);
        }
    }

    fn write_finishes(&mut self, verdicts: &[(u64, Verdict)], events: &mut Vec<String>) {
        let of = |index: u64| verdicts.iter().find(|(known, _)| *known == index);
        let mut told: Vec<u64> = Vec::new();
        for Finish { mut event, choices } in std::mem::take(&mut self.finishes) {
            let mut written = Vec::new();
            for (index, mut members) in choices {
                if let Some((_, verdict)) = of(index) {
                    let finish = unquoted(members.get("finish_reason"));
                    let finish = quoted(verdict.finish(finish.as_deref()));
                    members.retain(|name, _| {
                        verdict.blocks.is_empty() || name == "content_filter_results"
                    });
                    members.set("finish_reason", finish);
                }
                let mut whole = Members::default();
                whole.set("index", index.to_string());
                whole.set("delta", "{}");
                members
                    .iter()
                    .for_each(|(name, value)| whole.push(name, value));
                written.push(whole.to_json());
                told.push(index);
            }
            event.set("choices", list(written.iter().map(String::as_str)));
            events.push(event.to_json());
        }
        for (index, verdict) in verdicts {
            if !told.contains(index) {
                let finish = verdict.finish(None);
                events.push(self.event(&choice(*index, "{}", Some(finish)), None));
            }
        }
    }

    /// A chunk of this stream with one choice, as JSON.
    fn event(&self, choice: &str, guard: Option<&Value>) -> String {
        let mut event = self.envelope.clone();
        event.set("object", "\"chat.completion.chunk\"");
        event.set("choices", list([choice]));
        if let Some(guard) = guard {
            event.set("guard", guard.to_string());
        }
        event.to_json()
    }
}

const BROKEN_OFF: &str = "The answer broke off before the call was known to be whole.";
const AFTER_FINISH: &str = "The call came after the end of its choice had been told.";
const ENDED_IN_ERROR: &str = "The provider ended the choice with an error.";
const CUT_OFF: &str = "The output limit cut the call off.";
const ODD_PLACE: &str = "A call stands in a place where this API has none.";

impl State {
    fn holds(&self) -> bool {
        !self.calls.is_empty() || self.finish.is_some() || self.wholes.is_some()
    }

    /// Whether a finish with this reason has to wait.
    fn keeps(&self, reason: &str) -> bool {
        self.holds() || matches!(reason, "tool_calls" | "function_call")
    }

    /// Notes what leaves of `choice`.
    fn sent(&mut self, choice: &Choice<'_>) {
        self.role_sent |= has_role(choice);
        let mut parts = choice.delta.iter().chain(&choice.message);
        self.text_sent |= parts.any(Delta::has_content);
        self.finish_sent |= choice.finish().is_some() && self.finish.is_none();
    }

    /// Takes the pieces of calls; `true` if there were any.
    fn take_pieces(&mut self, choice: &Choice<'_>) -> Result<bool, Unreadable> {
        let before = self.calls.len();
        let mut pieces = false;
        if let Some(delta) = &choice.delta {
            pieces = delta.holds_call();
            if let Some(raw) = delta.tool_calls.filter(|raw| raw.get() != "null") {
                self.calls.tool_calls(raw, Form::Pieces)?;
            }
            if let Some(raw) = delta.function_call {
                self.calls.function_call(raw)?;
            }
        }
        let message = choice.message.as_ref();
        let odd = choice.marks.call
            || choice.delta.as_ref().is_some_and(|part| part.marks.call)
            || message.is_some_and(|part| part.marks.call || part.proposes());
        if odd {
            self.calls.blame(ODD_PLACE);
        }
        self.late |= self.finish_sent && self.calls.len() > before;
        Ok(pieces || odd)
    }

    /// The calls, as often as it is asked: who waits for a person asks again.
    fn take_calls(&mut self, rules: &CallRules) -> Vec<Whole> {
        if let Some(wholes) = &self.wholes {
            return wholes.clone();
        }
        let end = match self.finish.as_deref() {
            _ if self.late => Some(AFTER_FINISH),
            Some("error") => Some(ENDED_IN_ERROR),
            _ => None,
        };
        let calls = std::mem::take(&mut self.calls);
        let mut wholes = calls.into_calls(&*rules.judge, end);
        if self.finish.as_deref() == Some("length") {
            wholes.iter_mut().for_each(Whole::blame_if_cut);
        }
        if rules.rulings.is_none() {
            self.wholes = Some(wholes.clone());
        }
        wholes
    }
}

impl Whole {
    /// The answer ended at its output limit: what is not visibly whole is not whole.
    pub fn blame_if_cut(&mut self) {
        let whole = self.call.kind == CallKind::Function
            && serde_json::from_str::<serde::de::IgnoredAny>(&self.call.arguments).is_ok();
        if !whole {
            self.call.fault = self.call.fault.or(Some(CUT_OFF));
        }
    }
}

fn has_role(choice: &Choice<'_>) -> bool {
    let parts = choice.delta.iter().chain(&choice.message);
    parts
        .filter_map(|part| part.role)
        .any(|role| role.get() != "null")
}

/// A delta or message without its calls and without what looks like some.
pub fn without_calls(part: &str) -> Result<String, Unreadable> {
    if part == "null" {
        return Ok("{}".to_owned());
    }
    let mut members = Members::read(part)?;
    members.retain(|name, value| {
        !matches!(name, "tool_calls" | "function_call") && !suspect::look(name, value).any()
    });
    Ok(members.to_json())
}

fn choice(index: u64, delta: &str, finish: Option<&str>) -> String {
    let finish = finish.map_or_else(|| "null".to_owned(), quoted);
    format!("{{\"index\":{index},\"delta\":{delta},\"finish_reason\":{finish}}}")
}

fn unquoted(raw: Option<&str>) -> Option<Cow<'_, str>> {
    let text: Cow<'_, str> = serde_json::from_str::<String>(raw?).ok()?.into();
    Some(text).filter(|text| !text.is_empty())
}
