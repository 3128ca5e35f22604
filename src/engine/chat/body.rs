//! A whole answer: judged as its stream would be, and written anew only where calls stand.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    assemble::{Assembly, Form},
    chunk::{Choice, Chunk, TOKEN_MEMBERS},
    rules::{CallRules, Judged},
    shape::shaped,
    strict::{Members, Unreadable, list, quoted},
    suspect,
    tally::Tally,
    verdict::Verdict,
    withheld::without_calls,
};
use crate::engine::chain::{Block, Paused, guard_object};

/// What a whole answer amounts to.
#[derive(Debug)]
pub struct Answer {
    pub body: Body,
    pub tally: Tally,
    pub judged: Vec<Judged>,
}

#[derive(Debug)]
pub enum Body {
    Send(Bytes),
    /// The provider's error, in a body that said it was none.
    Error(Value),
    /// Calls are blocked, and the answer for that is an error.
    Refused(Vec<Block>),
    /// A person has to decide on these first; then the body is read again.
    Paused(Vec<Paused>),
}

impl Answer {
    /// Reads and judges a whole body.
    ///
    /// # Errors
    /// It cannot be read strictly, or holds what cannot be told from a call.
    pub fn read(body: &Bytes, rules: &CallRules) -> Result<Self, Unreadable> {
        let chunk = Chunk::read(body)?;
        let mut tally = Tally::default();
        tally.add(&chunk);
        let mut judged = Vec::new();
        let body = if let Some(error) = chunk.error() {
            Body::Error(shaped(error.get()))
        } else if chunk.marks.call {
            return Err(Unreadable);
        } else if !chunk.marks.leak && !chunk.choices().iter().any(Choice::needs_a_look) {
            Body::Send(body.clone())
        } else {
            let text = str::from_utf8(body).map_err(|_| Unreadable)?;
            rewritten(text, &chunk, rules, &mut judged)?
        };
        tally.tool_calls = judged.len() as u64;
        Ok(Self {
            body,
            tally,
            judged,
        })
    }
}

#[derive(Deserialize)]
struct RawChoices<'a> {
    #[serde(borrow)]
    choices: Option<Vec<&'a RawValue>>,
}

fn rewritten(
    text: &str,
    chunk: &Chunk<'_>,
    rules: &CallRules,
    judged: &mut Vec<Judged>,
) -> Result<Body, Unreadable> {
    let mut body = Members::read(text)?;
    body.retain(|name, value| !suspect::look(name, value).leak);
    let raw: RawChoices<'_> = serde_json::from_str(text).map_err(|_| Unreadable)?;
    let (mut choices, mut blocks) = (Vec::new(), Vec::new());
    let (mut paused, mut docket) = (Vec::new(), rules.docket());
    for (at, (choice, raw)) in chunk
        .choices()
        .iter()
        .zip(raw.choices.iter().flatten())
        .enumerate()
    {
        let mut calls = Assembly::default();
        take_calls(&mut calls, choice)?;
        let mut wholes = calls.into_calls(&*rules.judge, None);
        if choice.finish() == Some("length") {
            wholes
                .iter_mut()
                .for_each(super::assemble::Whole::blame_if_cut);
        }
        let how = (rules, &mut docket);
        let mut verdict = Verdict::of(wholes, at as u64, how, judged);
        paused.append(&mut verdict.paused);
        choices.push(written(choice, raw.get(), &verdict, rules)?);
        blocks.extend(verdict.blocks);
    }
    if rules.delivery.as_error && !blocks.is_empty() {
        judged.iter_mut().for_each(|one| one.delivered = false);
        return Ok(Body::Refused(blocks));
    }
    if !paused.is_empty() {
        let heard = judged.drain(..);
        heard.for_each(|one| rules.judge.give_back(&one.judgement));
        return Ok(Body::Paused(paused));
    }
    if chunk.choices.is_some() {
        body.set("choices", list(choices.iter().map(String::as_str)));
    }
    if !blocks.is_empty() {
        let guard = guard_object(&blocks, &rules.policy, &rules.decision);
        body.set("guard", guard.to_string());
    }
    Ok(Body::Send(body.to_json().into()))
}

fn take_calls(calls: &mut Assembly, choice: &Choice<'_>) -> Result<(), Unreadable> {
    if let Some(message) = &choice.message {
        if let Some(raw) = message.tool_calls.filter(|raw| raw.get() != "null") {
            calls.tool_calls(raw, Form::Whole)?;
        }
        if let Some(raw) = message.function_call {
            calls.function_call(raw)?;
        }
    }
    let marked = |part: &super::chunk::Delta<'_>| part.marks.call;
    let odd = choice.marks.call
        || choice.message.as_ref().is_some_and(marked)
        || choice
            .delta
            .as_ref()
            .is_some_and(|delta| delta.proposes() || marked(delta));
    if odd {
        calls.blame("A call stands in a place where this API has none.");
    }
    Ok(())
}

/// The choice again, with what became of its calls.
fn written(
    choice: &Choice<'_>,
    raw: &str,
    verdict: &Verdict,
    rules: &CallRules,
) -> Result<String, Unreadable> {
    let mut members = Members::read(raw)?;
    let blocked = !verdict.blocks.is_empty();
    members.retain(|name, value| {
        let read = matches!(name, "delta" | "message" | "index" | "finish_reason");
        let tells = blocked && (TOKEN_MEMBERS.contains(&name) || name == "native_finish_reason");
        (read || !suspect::look(name, value).any()) && !tells
    });
    for name in ["delta", "message"] {
        if let Some(part) = members.get(name).map(str::to_owned) {
            members.set(name, without_calls(&part)?);
        }
    }
    if verdict.sends_calls() || blocked {
        let part = members.take("message").unwrap_or_else(|| "{}".into());
        members.set("message", message(&part, verdict, rules)?);
        let finish = verdict.finish(choice.finish());
        members.set("finish_reason", quoted(finish));
    }
    Ok(members.to_json())
}

fn message(part: &str, verdict: &Verdict, rules: &CallRules) -> Result<String, Unreadable> {
    let mut message = Members::read(part)?;
    if let Some(notice) = verdict.notice(rules) {
        if message.get("role").is_none() {
            message.set("role", "\"assistant\"");
        }
        let content = with_notice(message.get("content"), &notice);
        message.set("content", content.to_string());
    }
    if !verdict.calls.is_empty() {
        message.set("tool_calls", verdict.list());
    }
    if let Some(call) = &verdict.function_call {
        message.set("function_call", call.clone());
    }
    Ok(message.to_json())
}

/// The text so far, then the notice.
fn with_notice(content: Option<&str>, notice: &str) -> Value {
    match serde_json::from_str(content.unwrap_or("null")) {
        Ok(Value::String(text)) if !text.is_empty() => json!(format!("{text}\n\n{notice}")),
        Ok(Value::Array(mut parts)) if !parts.is_empty() => {
            parts.push(json!({ "type": "text", "text": notice }));
            Value::Array(parts)
        }
        _ => json!(notice),
    }
}
