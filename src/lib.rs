//! Tallygate: a guarding reverse proxy for language models.

pub mod admin;
pub mod app;
pub mod approval;
pub mod books;
pub mod cli;
pub mod clock;
pub mod config;
pub mod engine;
pub mod failures;
pub mod metrics;
pub mod provider;
pub mod proxy;
pub mod server;
pub mod store;
pub mod telemetry;
pub mod traces;
pub mod webhook;
