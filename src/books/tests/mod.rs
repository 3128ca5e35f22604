//! The books as the proxy uses them: real purses, the real writing thread, a real database, and
//! a clock that the test moves.

mod desk;
mod down;
mod growth;
mod minute;
mod money;

use std::{path::PathBuf, sync::Arc};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::{
    engine::{
        money::Money,
        policy::{Amounts, Budget, RateLimits},
        pricing::{OperatorPrice, Rates},
    },
    store::sqlite::{Reader, Sqlite},
};

/// Monday 30 November 2026, 12:00:00 UTC.
const NOON_MS: i64 = 1_796_040_000_000;

struct Place {
    directory: TempDir,
    clock: Clock,
}

impl Place {
    fn new() -> Self {
        Self {
            directory: TempDir::new().unwrap(),
            clock: Clock::manual(NOON_MS),
        }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("tallygate.db")
    }

    async fn books(&self) -> Books {
        let store = Sqlite::open(&self.file()).await.unwrap();
        Books::open(Box::new(store), self.clock.clone(), false)
            .await
            .unwrap()
    }

    /// What the store counts of an account as spent and as leased, all periods together.
    async fn standing(&self, spec: &LimitSpec) -> (u64, u64) {
        let period = spec.window.period(self.clock.now_ms(), &spec.calendar);
        let sliding = spec.window == Window::Minute;
        let mut reader = Reader::open(&self.file()).await.unwrap();
        let found = reader
            .standing(&spec.account, period.start_ms, sliding, self.clock.now_ms())
            .await
            .unwrap();
        (found.spent, found.leased)
    }
}

fn amounts(cost: u64, tokens: u64, requests: u64) -> Amounts {
    Amounts {
        cost: Some(Money::from_nanos(cost)),
        tokens: Some(tokens),
        requests: Some(requests),
    }
}

/// One nano-dollar for a token of input, four for one of output.
fn rates() -> Arc<Rates> {
    Arc::new(Rates::from(OperatorPrice {
        input: Money::from_nanos(1_000_000),
        output: Money::from_nanos(4_000_000),
        ..OperatorPrice::default()
    }))
}

fn need(input_tokens: u64, output_cap: u64) -> Need {
    Need {
        input_tokens,
        output_cap: Some(output_cap),
        min_output: output_cap,
        choices: 1,
        audio: false,
        rates: vec![rates()],
        attempts: 1,
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}
