//! What requests did, as OpenTelemetry spans, for a collector elsewhere: off unless `[telemetry]`
//! says where it is.
//!
//! A request that is followed (`open`) notes what the ledger is told of it, and a few times beside
//! (`notes`); when it is over, they are put into a queue (`queue`) that forgets what has no room
//! and wakes nobody. The control plane's thread makes spans of them (`attributes`), writes those
//! as OTLP (`otlp`) and posts them (`export`). No request waits for any of it. No span has a field
//! for a prompt, an argument or an answer.

mod attributes;
mod context;
mod export;
mod notes;
mod open;
mod otlp;
mod queue;
mod span;

pub use self::{
    export::{Outbox, run},
    open::{Began, Trace, Wish},
    queue::{Arrivals, Queue, queue},
};
