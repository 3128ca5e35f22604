//! What of a Responses answer goes on to the client, and what it amounted to.
//!
//! Events about text leave at once, as the bytes they came in. A call is on the wire up to four
//! times; all of its events and copies are withheld until it is whole and judged, and then sent
//! in one form. A blocked call is replaced by a message that says why, in the events and in the
//! response object alike. Items are joined by `output_index`, since ids may change on the way;
//! what leaves is numbered anew as soon as something was withheld.
//!
//! While calls are withheld only messages overtake them. What cannot be read, or contradicts
//! what was passed on, ends the answer with an error; withheld calls stay withheld.

mod answer;
mod body;
mod court;
mod draft;
mod event;
mod item;
mod members;
mod object;
mod slots;
mod steps;
mod stream;
#[cfg(test)]
mod tests;
mod writer;

pub use self::{answer::OwnIds, body::judge_whole, stream::ResponsesStream};

/// Why an answer cannot be read; for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault(pub &'static str);
