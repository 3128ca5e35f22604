//! The decision core: plain values in, plain values out.
//!
//! No tokio, no I/O, no clock, no randomness, no statics. What a decision needs is handed in.

pub mod budget;
pub mod call;
pub mod chain;
pub mod chat;
pub mod contract;
pub mod failover;
pub mod guard;
pub mod json;
pub mod money;
pub mod names;
pub mod policy;
pub mod pricing;
pub mod record;
pub mod replay;
pub mod responses;
pub mod run;
pub mod sse;
pub mod tokens;
