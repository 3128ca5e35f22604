//! Tallygate: a guarding reverse proxy for language models.

pub mod config;
pub mod engine;
