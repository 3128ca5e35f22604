//! A whole answer, in one body.

use bytes::Bytes;
use serde_json::Value;

use super::{
    Fault,
    answer::{Answer, OwnIds, Settled},
    object::{ResponseObject, in_object},
    writer::{patched, span, with_guard},
};
use crate::engine::chat::{Answer as Whole, Body, CallRules, Tally, shaped};

/// Judges the calls of a body; one in which nothing had to change keeps its bytes. The second
/// value is what the client may refer to.
///
/// # Errors
/// A body that cannot be read as a response object.
pub fn judge_whole(body: &Bytes, rules: CallRules) -> Result<(Whole, OwnIds), Fault> {
    let text = std::str::from_utf8(body).map_err(|_| Fault("The answer cannot be read."))?;
    let object = ResponseObject::read(text)?;
    let mut tally = Tally::default();
    object.tell(&mut tally);
    let mut answer = Answer::new(rules);
    let settled = answer.settle(&object, &mut tally, &mut Vec::new())?;
    tally.tool_calls = answer.court.heard;
    tally.finished = true;
    let error = object.error.map(|raw| (raw, shaped(raw.get())));
    let guard = answer.court.guard();
    let output = match settled {
        Settled::Done(output) => output,
        Settled::Refused => None,
        Settled::Paused(paused) => {
            let whole = Whole {
                body: Body::Paused(paused),
                tally,
                judged: Vec::new(),
            };
            return Ok((whole, OwnIds::default()));
        }
    };
    let body = match (error, object.output.zip(output)) {
        // An error instead of a response object.
        (Some((_, error)), _) if object.output.is_none() => Body::Error(error),
        _ if answer.court.refuses() => Body::Refused(std::mem::take(&mut answer.court.blocks)),
        (None, None) => Body::Send(body.clone()),
        (error, output) => {
            let error = error.map(|(raw, error)| (raw, in_object(&error)));
            Body::Send(rewritten(body, output, error, &guard))
        }
    };
    let own = answer.own_ids(object.id.map(std::borrow::Cow::into_owned));
    let whole = Whole {
        body,
        tally,
        judged: answer.court.judged,
    };
    Ok((whole, own))
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
