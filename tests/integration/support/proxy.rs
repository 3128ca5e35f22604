//! The product inside the test's process, on ports of its own and a clock that the test moves.

use std::path::PathBuf;

use serde_json::Value;
use tallygate::{app::App, clock::Clock};

use super::{
    Client, Setup, Upstream, ledger,
    setup::{K1, K2, K3},
};

/// Monday 30 November 2026, 12:00:00 UTC.
pub const NOON_MS: i64 = 1_796_040_000_000;

pub struct TestProxy {
    pub setup: Setup,
    pub clock: Clock,
    app: App,
}

impl TestProxy {
    /// In front of `upstream` with no rules but the model lists.
    pub async fn to(upstream: &Upstream) -> Self {
        Self::start(Setup::to(upstream)).await
    }

    pub async fn start(setup: Setup) -> Self {
        Self::start_at(setup, Clock::manual(NOON_MS)).await
    }

    pub async fn start_at(setup: Setup, clock: Clock) -> Self {
        setup.write();
        let app = App::start(&setup.file(), clock.clone()).await;
        Self {
            app: app.unwrap(),
            setup,
            clock,
        }
    }

    /// An orderly end and a new start on the same files at the same time.
    pub async fn restart(self) -> Self {
        self.app.shutdown().await;
        Self::start_at(self.setup, self.clock).await
    }

    /// An orderly end; its files stay.
    pub async fn end(self) -> Setup {
        self.app.shutdown().await;
        self.setup
    }

    pub fn k1(&self) -> Client {
        Client::new(self.app.listen, K1)
    }

    pub fn k2(&self) -> Client {
        Client::new(self.app.listen, K2)
    }

    pub fn k3(&self) -> Client {
        Client::new(self.app.listen, K3)
    }

    pub fn with_key(&self, key: &str) -> Client {
        Client::new(self.app.listen, key)
    }

    /// The control plane.
    pub fn admin(&self) -> Client {
        Client::new(self.app.admin, "").without_key()
    }

    /// The control plane with a token.
    pub fn operator(&self, token: &str) -> Client {
        Client::new(self.app.admin, token)
    }

    pub fn admin_address(&self) -> std::net::SocketAddr {
        self.app.admin
    }

    /// The ledger's records of one kind, once there are `count` of them.
    pub async fn records(&self, kind: &str, count: usize) -> Vec<Value> {
        ledger::records(&self.database(), kind, count).await
    }

    pub async fn settled(&self, count: usize) -> Vec<Value> {
        self.records("request_settled", count).await
    }

    /// The last of `count` settled requests.
    pub async fn last_settled(&self, count: usize) -> Value {
        self.settled(count).await.pop().unwrap()
    }

    fn database(&self) -> PathBuf {
        ledger::database(&self.setup)
    }
}
