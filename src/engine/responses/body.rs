//! A whole answer, in one body.

use bytes::Bytes;
use serde_json::Value;

use super::{
    Fault,
    answer::Answer,
    court::{Judged, Rules},
    object::{ResponseObject, in_object},
    writer::{patched, span, with_guard},
};
use crate::engine::chat::{Tally, shaped};

/// What a whole answer came to.
pub struct WholeAnswer {
    /// For the client; `None` if `error` is to be told instead.
    pub body: Option<Bytes>,
    /// Blocked calls that are told as an error.
    pub error: Option<Value>,
    pub guard: Value,
    pub id: Option<String>,
    pub judged: Vec<Judged>,
    pub tally: Tally,
}

/// Judges the calls of a body; one in which nothing had to change keeps its bytes.
///
/// # Errors
/// A body that cannot be read as a response object.
pub fn judge_whole(body: &Bytes, rules: Rules) -> Result<WholeAnswer, Fault> {
    let unreadable = Fault("The answer cannot be read.");
    let text = std::str::from_utf8(body).map_err(|_| unreadable)?;
    let object = ResponseObject::read(text)?;
    let mut tally = Tally::default();
    object.tell(&mut tally);
    if let Some(error) = object.error.filter(|_| object.output.is_none()) {
        tally.error = Some(shaped(error.get()));
    }
    let mut answer = Answer::new(rules);
    let output = answer.settle(&object, &mut tally, &mut Vec::new())?;
    tally.tool_calls = answer.court.judged.len() as u64;
    tally.finished = true;
    let refused = answer.court.refuses().then(|| answer.court.error());
    let guard = answer.court.guard();
    let error = object.error.map(|raw| (raw, in_object(&shaped(raw.get()))));
    let changed = object.output.zip(output);
    let body = match (changed, error) {
        (None, None) => body.clone(),
        (changed, error) => rewritten(body, changed, error, &guard),
    };
    Ok(WholeAnswer {
        body: refused.is_none().then_some(body),
        error: refused,
        guard,
        id: object.id.map(std::borrow::Cow::into_owned),
        judged: answer.court.judged,
        tally,
    })
}

type Change<'a> = Option<(&'a serde_json::value::RawValue, String)>;

fn rewritten(body: &Bytes, output: Change<'_>, error: Change<'_>, guard: &Value) -> Bytes {
    let changes = [output, error].into_iter().flatten();
    let patches = changes.filter_map(|(raw, text)| {
        let (from, to) = span(body, raw)?;
        Some((from, to, text))
    });
    with_guard(patched(body, patches.collect()), guard).into()
}
