//! The product as its users meet it: real sockets, a scripted provider behind, plain HTTP before.
//!
//! One binary of topic files, so that it links once. What must be awaited is counted or gated by
//! `support`; only a test about time itself sleeps.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod admin;
mod approvals;
mod arguments;
mod budget_records;
mod budgets;
mod calls;
mod chat;
mod command_line;
mod crash;
mod dialects;
mod docker;
mod elastic;
mod escalations;
mod events;
mod failover;
mod framing;
mod full_disk;
mod layering;
mod ledger;
mod limits;
mod models;
mod observed_limits;
mod policies;
mod records;
mod refusals;
mod reload;
mod resending;
mod responses;
mod runs;
mod simulate;
mod store_down;
mod streaming;
mod support;
mod tools;
mod traces;
mod transport;
mod webhook;
