//! What becomes of one choice, its calls being whole: they go on, a notice stands in their
//! place, or both.

use sha2::{Digest, Sha256};

use super::{
    assemble::Whole,
    rules::{CallRules, Judged},
    strict::{Members, list, quoted},
};
use crate::engine::chain::{Block, CallKind, Docket, Paused, notice};

/// The outcome for one choice.
#[derive(Debug, Default)]
pub struct Verdict {
    /// In the canonical form, JSON objects without `index`; empty if none goes on.
    pub calls: Vec<Members<'static>>,
    /// The one call, if it came as `function_call` and goes on as such.
    pub function_call: Option<String>,
    pub blocks: Vec<Block>,
    /// Calls that wait for a person, if nothing else withholds them.
    pub paused: Vec<Paused>,
}

impl Verdict {
    /// Judges the `wholes` of the choice with this `index` and notes the outcome of each.
    pub fn of(
        wholes: Vec<Whole>,
        index: u64,
        (rules, docket): (&CallRules, &mut Docket),
        judged: &mut Vec<Judged>,
    ) -> Self {
        let first = judged.len();
        let mut verdict = Self::default();
        let legacy_alone = wholes.len() == 1;
        let mut sent: Vec<Judged> = Vec::new();
        for mut whole in wholes {
            whole.call.id = unused_id(&whole.call.id, &sent, rules, index);
            let mut judgement = rules.judge.judge(&whole.call);
            let waits = docket.apply(&mut judgement, &whole.call.arguments);
            if waits.is_none() {
                rules.judge.take(&mut judgement);
            }
            verdict.paused.extend(waits);
            match &judgement.blocked {
                Some(block) => verdict.blocks.push(block.clone()),
                None if whole.legacy && legacy_alone => {
                    verdict.function_call = Some(function(&whole, &judgement.arguments));
                }
                None => verdict.calls.push(canonical(&whole, &judgement.arguments)),
            }
            sent.push(Judged {
                delivered: judgement.blocked.is_none(),
                call: whole.call,
                judgement,
            });
        }
        judged.append(&mut sent);
        if !verdict.blocks.is_empty() && !rules.delivery.each {
            verdict.withhold_all(judged.get_mut(first..).unwrap_or_default());
            verdict.paused.clear();
        }
        verdict
    }

    /// Nothing goes on, also of what passed.
    pub fn withhold_all(&mut self, judged: &mut [Judged]) {
        self.calls.clear();
        self.function_call = None;
        judged.iter_mut().for_each(|one| one.delivered = false);
    }

    pub fn sends_calls(&self) -> bool {
        !self.calls.is_empty() || self.function_call.is_some()
    }

    /// What stands in the text in place of the blocked calls.
    pub fn notice(&self, rules: &CallRules) -> Option<String> {
        (!self.blocks.is_empty()).then(|| notice(&self.blocks, &rules.decision))
    }

    /// `reason` as it came, unless it no longer fits.
    pub fn finish<'a>(&self, reason: Option<&'a str>) -> &'a str {
        if !self.blocks.is_empty() {
            return if self.sends_calls() {
                "tool_calls"
            } else {
                "stop"
            };
        }
        match reason {
            Some("function_call") if !self.calls.is_empty() => "tool_calls",
            Some(reason) => reason,
            None if self.function_call.is_some() => "function_call",
            None => "tool_calls",
        }
    }

    /// The value of `tool_calls` in a whole body.
    pub fn list(&self) -> String {
        let calls: Vec<String> = self.calls.iter().map(Members::to_json).collect();
        list(calls.iter().map(String::as_str))
    }
}

fn canonical(whole: &Whole, arguments: &str) -> Members<'static> {
    let name = quoted(&whole.call.name);
    let arguments = quoted(arguments);
    let mut call = Members::default();
    call.set("id", quoted(&whole.call.id));
    if whole.call.kind == CallKind::Custom {
        call.set("type", "\"custom\"");
        call.set(
            "custom",
            format!("{{\"name\":{name},\"input\":{arguments}}}"),
        );
    } else {
        call.set("type", "\"function\"");
        let function = format!("{{\"name\":{name},\"arguments\":{arguments}}}");
        call.set("function", function);
    }
    if let Some(extra) = &whole.extra {
        call.set("extra_content", extra.clone());
    }
    call
}

fn function(whole: &Whole, arguments: &str) -> String {
    let (name, arguments) = (quoted(&whole.call.name), quoted(arguments));
    format!("{{\"name\":{name},\"arguments\":{arguments}}}")
}

/// The call's own id; a made one where it has none or another call of the choice has it.
fn unused_id(id: &str, sent: &[Judged], rules: &CallRules, choice: u64) -> String {
    let used = sent.iter().any(|other| other.call.id == id);
    if !id.is_empty() && !used {
        return id.to_owned();
    }
    let seed = format!("{}/{choice}/{}", rules.decision, sent.len());
    let digest = Sha256::digest(seed);
    let hex: String = digest
        .iter()
        .take(12)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("call_{hex}")
}
