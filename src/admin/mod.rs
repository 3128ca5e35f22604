//! The control plane: for operators, on its own address. `table` has its routes; a file each
//! for what operators look at; `ui` is the console's page, embedded.

mod activity;
mod approvals;
mod auth;
mod events;
mod fault;
mod files;
mod health;
mod hosts;
mod ledger;
mod links;
mod measured;
mod openapi;
mod policies;
mod query;
mod routes;
pub mod runs;
mod sessions;
pub mod simulate;
mod spend;
mod stream;
mod table;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::ConnectInfo, response::Response};
use hyper::{Request, body::Incoming, service::Service as _};
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use self::sessions::Sessions;
pub use self::spend::of_keys;
use crate::{
    clock::Clock,
    config::Config,
    failures::Failures,
    metrics::{Gauge, Metrics},
    store::{
        Answer, StoreError,
        approvals::{Recorded, Verdict},
        reader::Reader,
    },
};

/// What the control plane can see of the running process. `app` fills it in.
pub trait Status: Send + Sync + 'static {
    /// Why new requests would be refused right now; empty when all is well.
    fn unready(&self) -> Vec<String>;
    /// What is in force and what was rejected, for people.
    fn describe(&self) -> Value;
    fn config(&self) -> Arc<Config>;
    fn configuration(&self) -> Configuration;
    /// Reads the files again, as SIGHUP asks for.
    fn reload(&self);
    fn clock(&self) -> &Clock;
    /// Writes down what a person decided about a waiting call.
    fn decide(&self, verdict: Verdict) -> Answer<'_, Recorded>;
    fn metrics(&self) -> &Metrics;
    /// What is looked at rather than counted.
    fn gauges(&self) -> Vec<Gauge>;
    /// What moves when there is something new to fetch.
    fn signals(&self) -> Signals;
    /// A reading connection beside the writing one.
    fn reader(&self) -> Answer<'_, Box<dyn Reader>>;
}

/// What came of the last reading of the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    pub in_force_since_ms: i64,
    /// When newer files were refused, and why.
    pub rejected: Option<(i64, String)>,
}

/// Each counts up; what it has counted to means nothing.
pub struct Signals {
    /// A call came to wait, or was decided.
    pub approvals: watch::Receiver<u64>,
    /// The ledger has new records.
    pub activity: watch::Receiver<u64>,
}

/// So many answers are read out of the store at once.
const MOST_READERS: usize = 4;
/// So many readings of the whole ledger at once.
const MOST_STREAMS: usize = 2;
/// So many pages are told of changes at once; others ask now and then.
const MOST_WATCHERS: usize = 64;
/// A stream that nobody reads does not keep the process from ending.
pub const DRAIN: Duration = Duration::from_secs(2);

/// What all requests to the control plane share.
pub(crate) struct Console {
    status: Arc<dyn Status>,
    sessions: Sessions,
    failures: Failures,
    /// Readers of the store at work; more wait.
    readers: Semaphore,
    streams: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
    /// True once the process is to end.
    stopped: watch::Receiver<bool>,
}

pub(crate) type Shared = Arc<Console>;

impl Console {
    fn new(status: Arc<dyn Status>, stopped: watch::Receiver<bool>) -> Self {
        Self {
            status,
            sessions: Sessions::default(),
            failures: Failures::default(),
            readers: Semaphore::new(MOST_READERS),
            streams: Arc::new(Semaphore::new(MOST_STREAMS)),
            watchers: Arc::new(Semaphore::new(MOST_WATCHERS)),
            stopped,
        }
    }

    /// A reading connection for one answer. A fresh one each time: it costs a millisecond, and no
    /// long search stands in the way of the others.
    async fn reader(&self) -> Result<Reading<'_>, StoreError> {
        let closed = |_| StoreError::Down("the control plane ends".to_owned());
        let permit = self.readers.acquire().await.map_err(closed)?;
        Ok(Reading {
            reader: self.status.reader().await?,
            _permit: permit,
        })
    }
}

struct Reading<'c> {
    reader: Box<dyn Reader>,
    _permit: SemaphorePermit<'c>,
}

impl Reading<'_> {
    fn store(&mut self) -> &mut dyn Reader {
        &mut *self.reader
    }
}

/// The control plane's answers, to be served by `server`.
#[derive(Clone)]
pub struct Plane {
    console: Shared,
    routes: TowerToHyperService<Router>,
}

impl Plane {
    /// `stopped` turns true when answers without an end must end.
    pub fn new(status: Arc<dyn Status>, stopped: watch::Receiver<bool>) -> Self {
        let console = Arc::new(Console::new(status, stopped));
        let routes = TowerToHyperService::new(routes::router(Arc::clone(&console)));
        Self { console, routes }
    }

    pub async fn handle(&self, mut request: Request<Incoming>, peer: SocketAddr) -> Response {
        request.extensions_mut().insert(ConnectInfo(peer));
        match self.routes.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Keeps what is remembered of wrong tokens bounded. Never ends.
    pub async fn forget(&self) {
        let mut tick = tokio::time::interval(Duration::from_secs(60));
        loop {
            tick.tick().await;
            self.console.failures.forget_quiet();
        }
    }
}
