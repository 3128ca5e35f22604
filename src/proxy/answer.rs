//! An answer of either API, for a relay that need not know which.

use std::sync::Arc;

use bytes::Bytes;

use crate::engine::{
    call::Api,
    chain::{Block, Paused, Ruling},
    chat::{self, Answer, CallRules, ChatStream, Judge, Judged, StreamRules, Tally},
    responses::{self, OwnIds, ResponsesStream, judge_whole},
};

/// A streamed answer on its way through its judge.
pub enum StreamedAnswer {
    Chat(Box<ChatStream>),
    Responses(Box<ResponsesStream>),
}

/// Calls the judge of whichever API it is.
macro_rules! either {
    ($answer:expr, $judge:ident => $call:expr) => {
        match $answer {
            StreamedAnswer::Chat($judge) => $call,
            StreamedAnswer::Responses($judge) => $call,
        }
    };
}

impl StreamedAnswer {
    pub fn new(api: Api, rules: StreamRules) -> Self {
        match api {
            Api::Chat => Self::Chat(Box::new(ChatStream::new(rules))),
            Api::Responses => Self::Responses(Box::new(ResponsesStream::new(rules))),
        }
    }

    pub fn tally(&self) -> &Tally {
        either!(self, judge => judge.tally())
    }

    /// The calls judged since this was asked last.
    pub fn take_judged(&mut self) -> Vec<Judged> {
        either!(self, judge => judge.take_judged())
    }

    /// The calls that are blocked, if that is told as an error.
    pub fn refused(&self) -> &[Block] {
        either!(self, judge => judge.refused())
    }

    /// The calls that wait for a person.
    pub fn paused(&self) -> &[Paused] {
        either!(self, judge => judge.paused())
    }

    /// Goes on with what people decided.
    pub fn rule(&mut self, judge: Arc<dyn Judge>, rulings: Arc<[Ruling]>, out: &mut Vec<Bytes>) {
        either!(self, stream => stream.rule(judge, rulings, out));
    }

    /// `true` once nothing more can come out.
    pub fn is_over(&self) -> bool {
        either!(self, judge => judge.is_over())
    }

    /// Whether anything has left for the client.
    pub fn has_sent(&self) -> bool {
        either!(self, judge => judge.has_sent())
    }

    /// Whether something waits for its verdict.
    pub fn is_withholding(&self) -> bool {
        either!(self, judge => judge.is_withholding())
    }

    /// Takes a piece in; pushes what may leave.
    pub fn feed(&mut self, piece: Bytes, out: &mut Vec<Bytes>) {
        either!(self, judge => judge.feed(piece, out));
    }

    /// The body ended: properly (`cut` false) or not.
    pub fn end(&mut self, cut: bool, out: &mut Vec<Bytes>) {
        either!(self, judge => judge.end(cut, out));
    }

    /// Ends the stream in the middle, with words for the client.
    pub fn stop(&mut self, code: &str, message: &str, out: &mut Vec<Bytes>) {
        either!(self, judge => judge.stop(code, message, out));
    }

    /// Ends the stream at one of our limits: `told` is the error, as a whole JSON object.
    pub fn cut(&mut self, told: &[u8], out: &mut Vec<Bytes>) {
        either!(self, judge => judge.cut(told, out));
    }

    /// From here on an error can only be told inside the stream.
    pub fn speak(&mut self, out: &mut Vec<Bytes>) {
        either!(self, judge => judge.speak(out));
    }

    /// Something harmless for a client that has to wait for a verdict.
    pub fn keep_alive(&mut self, out: &mut Vec<Bytes>) {
        either!(self, judge => judge.keep_alive(out));
    }

    /// What the provider keeps of the answer and the client may refer to; once, at its end.
    pub fn take_own_ids(&mut self) -> OwnIds {
        match self {
            Self::Chat(_) => OwnIds::default(),
            Self::Responses(judge) => judge.take_own_ids(),
        }
    }
}

/// Judges a whole body; `None`: it cannot be read.
pub fn whole(api: Api, body: &Bytes, rules: CallRules) -> Option<(Answer, OwnIds)> {
    match api {
        Api::Chat => Some((Answer::read(body, &rules).ok()?, OwnIds::default())),
        Api::Responses => judge_whole(body, rules).ok(),
    }
}

/// A judged body as a stream; `None`: it is no answer.
pub fn as_stream(api: Api, body: &Bytes, hide_usage: bool) -> Option<Bytes> {
    match api {
        Api::Chat => chat::as_stream(body, hide_usage).ok().map(Bytes::from),
        Api::Responses => responses::as_stream(body).ok(),
    }
}

/// A judged stream as a body; `None`: it did not end well.
pub fn as_body(api: Api, stream: &[u8]) -> Option<Bytes> {
    match api {
        Api::Chat => chat::as_body(stream).ok().map(Bytes::from),
        Api::Responses => responses::as_body(stream).ok(),
    }
}
