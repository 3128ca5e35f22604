//! What the topic files build on: `Upstream` plays a provider, `Client` an application, `Setup`
//! is the operator's files, `TestProxy` and `Process` run the product between them.

use std::{future::Future, time::Duration};

pub mod answer;
pub mod client;
pub mod h2;
pub mod ledger;
pub mod otlp;
pub mod packed;
pub mod process;
pub mod proxy;
pub mod reply;
pub mod setup;
pub mod upstream;
mod wire;

#[cfg(test)]
mod tests;

pub use answer::Answer;
pub use client::Client;
pub use packed::packed;
pub use process::Process;
pub use proxy::TestProxy;
pub use reply::{Gate, Reply};
pub use setup::Setup;
pub use upstream::{Captured, Upstream};

/// Longer than any step of a test takes; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Awaits `future`, or fails the test that named it.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} for {what}"),
    }
}

/// Tries again until it holds: for what the product does by itself a moment later, such as giving
/// a slot back after its client has left.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    within(what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
