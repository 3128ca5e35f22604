//! What of a chat answer goes on to the client, and what it amounted to.
//!
//! Events that hold text alone leave as the bytes they came in, at once. Calls wait for the end
//! of the stream, are judged, and leave in one form that every client reads the same way; of a
//! blocked call nothing leaves. What cannot be read strictly ends the stream.
//!
//! `strict` reads JSON, `chunk` a piece of an answer, `suspect` looks for calls in odd places,
//! `repeat` knows events that differ in their text alone, `assemble` joins pieces to calls,
//! `verdict` has them judged, `withheld` knows what waits, `stream` puts it together for streams
//! and `body` for whole answers; `reshape` makes one of the other.

mod assemble;
mod body;
mod chunk;
mod repeat;
mod reshape;
mod rules;
mod shape;
mod stream;
mod strict;
mod suspect;
mod tally;
#[cfg(test)]
mod tests;
mod verdict;
mod withheld;

pub use self::{
    body::{Answer, Body},
    chunk::Chunk,
    reshape::{as_body, as_stream},
    rules::{CallRules, Judge, Judged},
    shape::shaped,
    stream::{ChatStream, StreamRules},
    tally::Tally,
};
