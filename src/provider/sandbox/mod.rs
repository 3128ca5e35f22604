//! The built-in provider: scripted, deterministic, no key, no network.
//!
//! `sandbox-echo` answers with the last user message, word by word. `sandbox-agent` obeys the
//! lines of the last user message (`plan.rs` has the list). Both speak OpenAI's Chat Completions
//! and Responses forms exactly, streamed and not. `answer` only writes the script of an answer, a
//! pure function; `Playback` waits, sends and cuts.
//!
//! **A token is four bytes**, rounded up over the whole prompt and over the whole answer. The
//! prompt is the messages and tools as compact JSON; the answer is its text and its calls' names
//! and arguments. Output caps cut by the same rule, so usage never passes a cap.

use std::time::Duration;

use bytes::Bytes;

pub use playback::{CutOff, Playback};

use plan::Plan;
use request::Asked;

mod chat;
mod plan;
mod playback;
mod refusal;
mod request;
mod responses;
#[cfg(test)]
mod tests;

/// What `/v1/models` may list.
pub const MODELS: &[&str] = &["sandbox-echo", "sandbox-agent"];

/// The longest answer of the sandbox models, in tokens.
pub const MAX_OUTPUT_TOKENS: u64 = 16_384;

/// The API whose form the answer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    Chat,
    Responses,
}

/// An answer, to be played in order. The status goes out with the first `Send`, so that a leading
/// `Sleep` is a slow provider and not a slow body.
pub struct Script {
    pub status: u16,
    pub content_type: &'static str,
    /// Written piece by piece while it is played: `n` choices of many words would not fit in
    /// memory at once.
    pub steps: Box<dyn Iterator<Item = Step> + Send>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Send(Bytes),
    Sleep(Duration),
    /// Drop the connection without an ending.
    Cut,
}

/// The answer to a request body. The same arguments give the same bytes; `id_seed` should be
/// fresh for each request, because clients key messages by the ids made from it. `created` is in
/// Unix seconds.
pub fn answer(endpoint: Endpoint, request: &[u8], id_seed: u128, created: u64) -> Script {
    let asked = match Asked::read(endpoint, request) {
        Ok(asked) => asked,
        Err(refusal) => return refusal.into_script(Duration::ZERO),
    };
    let plan = Plan::new(&asked);
    if let Some(refusal) = plan.failure() {
        return refusal.into_script(plan.total_sleep());
    }
    match endpoint {
        Endpoint::Chat => chat::script(asked, plan, id_seed, created),
        Endpoint::Responses => responses::script(asked, plan, id_seed, created),
    }
}

impl Script {
    fn json(status: u16, sleep: Duration, body: &serde_json::Value, cut: bool) -> Self {
        let mut body = Bytes::from(body.to_string());
        if cut {
            body.truncate(body.len() / 2);
        }
        let wait = (!sleep.is_zero()).then_some(Step::Sleep(sleep));
        let steps = wait
            .into_iter()
            .chain([Step::Send(body)])
            .chain(cut.then_some(Step::Cut));
        Self {
            status,
            content_type: "application/json",
            steps: Box::new(steps),
        }
    }

    fn stream(steps: impl Iterator<Item = Step> + Send + 'static) -> Self {
        let content_type = "text/event-stream; charset=utf-8";
        Self {
            status: 200,
            content_type,
            steps: Box::new(steps),
        }
    }
}
