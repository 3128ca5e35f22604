//! Tallygate: a guarding reverse proxy for language models.

pub mod books;
pub mod clock;
pub mod config;
pub mod engine;
pub mod provider;
pub mod store;
