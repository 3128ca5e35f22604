//! The composition root: configuration in, a serving process out. The one place that names a
//! database.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

use crate::{
    admin,
    books::Books,
    clock::Clock,
    config::{Config, ConfigError, Durability, OnDown, StoreUrl},
    engine::{policy::Seals, pricing::PriceBook, record::Event},
    metrics::{Gauge, Metrics},
    proxy::{Live, Proxy, Worker},
    server,
    store::{
        Answer, Store as _, StoreError,
        approvals::{Approval, Recorded, Verdict},
        reader::Reader,
        sqlite::{self, Sqlite},
    },
    traces::{self, Arrivals},
    webhook,
};

/// The file is looked at this often.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Addresses that failed a key are forgotten this often, and what they tried is summed up. Turns.
const FORGET_EVERY: u32 = 60;

/// A serving process.
pub struct App {
    /// Where clients and operators reach it; the real ports, if the file says 0.
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    proxy: Arc<Proxy>,
    reloads: Arc<Reloads>,
    stop: watch::Sender<bool>,
    /// Turns true once no worker has anything to tell any more.
    drained: watch::Sender<bool>,
    workers: Vec<JoinHandle<()>>,
    control: Option<JoinHandle<()>>,
}

/// What came of the last change of the files.
pub struct Reloads {
    file: PathBuf,
    proxy: Arc<Proxy>,
    last: Mutex<Seen>,
    seals: Mutex<Seals>,
}

#[derive(Default)]
struct Seen {
    /// The contents that were last looked at.
    print: Vec<u8>,
    /// Why the newest files are not in force.
    rejected: Option<String>,
    rejected_at_ms: i64,
    in_force_since_ms: i64,
}

impl App {
    /// Starts everything and returns once it serves.
    ///
    /// # Errors
    /// A wrong configuration, an address or a store that cannot be had.
    pub async fn start(file: &Path, clock: Clock) -> anyhow::Result<Self> {
        let config = Config::load(file)?;
        // Fails only if another one is installed, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = config.server.clone();
        let now_ms = clock.now_ms();
        let (queue, arrivals) = traces::queue();
        let (proxy, seals) = open(config, clock, queue).await?;
        let proxy = Arc::new(proxy);
        let sockets = server::bind(server.listen, server.workers)
            .with_context(|| format!("cannot listen on {}", server.listen))?;
        let admin_socket = std::net::TcpListener::bind(server.admin_listen)
            .with_context(|| format!("cannot listen on {}", server.admin_listen))?;
        admin_socket.set_nonblocking(true)?;
        let listen = sockets.first().context("no socket")?.local_addr()?;
        let admin = admin_socket.local_addr()?;
        let reloads = Arc::new(Reloads::new(file, &proxy, seals, now_ms));
        let (stop, stopped) = watch::channel(false);
        let (up, ready) = channel();
        let workers = sockets
            .into_iter()
            .map(|socket| worker(socket, &proxy, &stopped, server.drain_timeout, up.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        let (drained, over) = watch::channel(false);
        let traces = (arrivals, over);
        let control = Some(control(
            admin_socket,
            &reloads,
            &stopped,
            traces,
            up.clone(),
        )?);
        drop(up);
        wait_for(&ready, workers.len() + 1)?;
        Ok(Self {
            listen,
            admin,
            proxy,
            reloads,
            stop,
            drained,
            workers,
            control,
        })
    }

    /// Looks at the files again now, as SIGHUP asks for.
    pub fn reload(&self) {
        self.reloads.look(true);
    }

    pub fn live(&self) -> Arc<Live> {
        self.proxy.live.load_full()
    }

    /// Lets open requests finish, writes everything down, ends.
    pub async fn shutdown(mut self) {
        let _ = self.stop.send(true);
        let (workers, control) = (std::mem::take(&mut self.workers), self.control.take());
        join(workers).await;
        let _ = self.drained.send(true);
        join(control).await;
        self.proxy.record_summaries();
        self.proxy.books.close().await;
    }
}

async fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    let threads: Vec<_> = threads.into_iter().collect();
    let joined = tokio::task::spawn_blocking(move || {
        threads.into_iter().for_each(|thread| drop(thread.join()));
    });
    let _ = joined.await;
}

/// The store, the books on it, and what is in force.
async fn open(
    config: Config,
    clock: Clock,
    traces: Arc<traces::Queue>,
) -> anyhow::Result<(Proxy, Seals)> {
    let StoreUrl::Sqlite(path) = &config.store.url;
    let mut store = Sqlite::open(path).await?;
    let mut seals = Seals::new(store.seals().await?);
    let fresh = config.check_seals(&seals)?;
    let local = config.store.on_down == OnDown::Local;
    let books = Books::open(Box::new(store), clock.clone(), local)
        .await
        .with_context(|| format!("{}: nothing can be written to it", path.display()))?;
    let version = env!("CARGO_PKG_VERSION");
    books.record(None, Event::Started { version });
    seals.add(fresh.clone());
    books.seal(fresh);
    let prices = Arc::new(price_book(&config)?);
    let before_release = config.durability == Durability::BeforeRelease;
    let proxy = Proxy {
        live: ArcSwap::from_pointee(Live::new(config, prices, &books)),
        books,
        clock,
        failures: Default::default(),
        listings: Default::default(),
        breakers: Default::default(),
        traces,
        before_release,
    };
    Ok((proxy, seals))
}

pub(crate) fn price_book(config: &Config) -> anyhow::Result<PriceBook> {
    let Some(file) = &config.price_table else {
        return Ok(PriceBook::Bundled);
    };
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the price table {}", file.display()))?;
    PriceBook::from_json(&text).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))
}

fn wait_for(ready: &Receiver<()>, count: usize) -> anyhow::Result<()> {
    for _ in 0..count {
        ready.recv().context("a worker could not start")?;
    }
    Ok(())
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn worker(
    socket: std::net::TcpListener,
    proxy: &Arc<Proxy>,
    stopped: &watch::Receiver<bool>,
    drain: Duration,
    up: Sender<()>,
) -> std::io::Result<JoinHandle<()>> {
    let (proxy, stopped) = (Arc::clone(proxy), stopped.clone());
    let serve = async move {
        let listener = match TcpListener::from_std(socket) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "a worker could not listen"),
        };
        let worker = Arc::new(Worker::new(proxy));
        let _ = up.send(());
        drop(up);
        let handler = move |request, peer| {
            let worker = Arc::clone(&worker);
            async move { worker.handle(request, peer).await }
        };
        server::serve(listener, handler, stopped, drain).await;
    };
    let runtime = runtime()?;
    std::thread::Builder::new()
        .name("worker".to_owned())
        .spawn(move || runtime.block_on(serve))
}

fn control(
    socket: std::net::TcpListener,
    reloads: &Arc<Reloads>,
    stopped: &watch::Receiver<bool>,
    (arrivals, over): (Arrivals, watch::Receiver<bool>),
    up: Sender<()>,
) -> std::io::Result<JoinHandle<()>> {
    let (reloads, stopped) = (Arc::clone(reloads), stopped.clone());
    let serve = async move {
        let Ok(listener) = TcpListener::from_std(socket) else {
            return;
        };
        let _ = up.send(());
        drop(up);
        tokio::spawn(housekeeping(Arc::clone(&reloads)));
        let told: Arc<dyn traces::Outbox> = Arc::clone(&reloads) as _;
        let telling = tokio::spawn(traces::run(told, arrivals, over));
        if let Ok(address) = listener.local_addr() {
            let outbox: Arc<dyn webhook::Outbox> = Arc::clone(&reloads) as _;
            tokio::spawn(webhook::run(outbox, format!("http://{address}")));
        }
        let plane = admin::Plane::new(reloads, stopped.clone());
        let kept = plane.clone();
        tokio::spawn(async move { kept.forget().await });
        let handler = move |request, peer| {
            let plane = plane.clone();
            async move { plane.handle(request, peer).await }
        };
        server::serve(listener, handler, stopped, admin::DRAIN).await;
        // Requests that are still open are told of as well.
        let _ = telling.await;
    };
    let runtime = runtime()?;
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || runtime.block_on(serve))
}

async fn housekeeping(reloads: Arc<Reloads>) {
    let mut tick = tokio::time::interval(WATCH_EVERY);
    for turn in 0_u32.. {
        tick.tick().await;
        reloads.look(false);
        if turn % FORGET_EVERY == 0 {
            reloads.proxy.failures.forget_quiet();
            reloads.proxy.record_summaries();
        }
    }
}

impl Reloads {
    fn new(file: &Path, proxy: &Arc<Proxy>, seals: Seals, now_ms: i64) -> Self {
        let sources = proxy.live.load().config.sources.clone();
        let print = print(&sources);
        let seen = Seen {
            print,
            in_force_since_ms: now_ms,
            ..Seen::default()
        };
        Self {
            file: file.to_owned(),
            proxy: Arc::clone(proxy),
            last: Mutex::new(seen),
            seals: Mutex::new(seals),
        }
    }

    /// Takes changed files over in one step, or leaves everything as it is and says why.
    fn look(&self, asked: bool) {
        let mut seen = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let live = self.proxy.live.load_full();
        let now = print(&live.config.sources);
        if now == seen.print && !asked {
            return;
        }
        seen.print = now;
        match self.load() {
            Ok(fresh) => {
                let (keys, policies) = (fresh.config.keys.len(), fresh.config.policies.len());
                seen.print = print(&fresh.config.sources);
                seen.rejected = None;
                seen.in_force_since_ms = self.proxy.clock.now_ms();
                self.proxy.live.store(Arc::new(fresh));
                tracing::info!(keys, policies, "configuration reloaded");
                self.proxy
                    .books
                    .record(None, Event::ConfigurationReloaded { keys, policies });
            }
            Err(error) => {
                tracing::error!(%error, "configuration refused; the old one stays in force");
                seen.rejected = Some(error.to_string());
                seen.rejected_at_ms = self.proxy.clock.now_ms();
                let first = error
                    .to_string()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                let problems = error
                    .downcast_ref()
                    .map_or(1, |e: &ConfigError| e.problems.len());
                let event = Event::ConfigurationRefused { problems, first };
                self.proxy.books.record(None, event);
            }
        }
    }

    fn load(&self) -> anyhow::Result<Live> {
        let config = Config::load(&self.file)?;
        let mut seals = self.seals.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = config.check_seals(&seals)?;
        let prices = Arc::new(price_book(&config)?);
        seals.add(fresh.clone());
        self.proxy.books.seal(fresh);
        Ok(Live::new(config, prices, &self.proxy.books))
    }
}

/// All sources' contents, one after the other; a file that is gone differs from an empty one.
fn print(sources: &[PathBuf]) -> Vec<u8> {
    use sha2::{Digest as _, Sha256};
    let mut digest = Sha256::new();
    for source in sources {
        match std::fs::read(source) {
            Ok(bytes) => digest.update(Sha256::digest(&bytes)),
            Err(_) => digest.update(b"gone"),
        }
    }
    digest.finalize().to_vec()
}

impl webhook::Outbox for Reloads {
    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.proxy.live.load().config)
    }

    fn clock(&self) -> &Clock {
        &self.proxy.clock
    }

    fn metrics(&self) -> &Metrics {
        self.proxy.books.metrics()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.proxy.books.decisions()
    }

    fn untold(&self) -> Answer<'_, Vec<Approval>> {
        Box::pin(async move { self.proxy.books.untold().await.map_err(|_| no_answer()) })
    }

    fn tell(&self, approval: String) -> Answer<'_, ()> {
        Box::pin(async move {
            let told = self.proxy.books.tell(approval).await;
            told.map_err(|_| no_answer())
        })
    }
}

impl traces::Outbox for Reloads {
    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.proxy.live.load().config)
    }

    fn metrics(&self) -> &Metrics {
        self.proxy.books.metrics()
    }
}

fn no_answer() -> StoreError {
    StoreError::Down("it does not answer".to_owned())
}

impl admin::Status for Reloads {
    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.proxy.live.load().config)
    }

    fn configuration(&self) -> admin::Configuration {
        let seen = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let rejected = seen.rejected.clone().map(|why| (seen.rejected_at_ms, why));
        admin::Configuration {
            in_force_since_ms: seen.in_force_since_ms,
            rejected,
        }
    }

    fn reload(&self) {
        self.look(true);
    }

    fn clock(&self) -> &Clock {
        &self.proxy.clock
    }

    fn decide(&self, verdict: Verdict) -> Answer<'_, Recorded> {
        Box::pin(async move {
            let decided = self.proxy.books.decide(verdict).await;
            decided.map_err(|_| no_answer())
        })
    }

    fn signals(&self) -> admin::Signals {
        admin::Signals {
            approvals: self.proxy.books.decisions(),
            activity: self.proxy.books.written(),
        }
    }

    fn metrics(&self) -> &Metrics {
        self.proxy.books.metrics()
    }

    fn gauges(&self) -> Vec<Gauge> {
        let seen = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let yes = |yes: bool| if yes { 1.0 } else { 0.0 };
        #[expect(
            clippy::cast_precision_loss,
            reason = "times and counts stay far below 2^53"
        )]
        let (since, queued) = (
            seen.in_force_since_ms as f64 / 1000.0,
            self.proxy.books.queued() as f64,
        );
        let gauge = |name, help, value| Gauge { name, help, value };
        vec![
            gauge(
                "tallygate_store_up",
                "The store answers",
                yes(self.proxy.books.failure().is_none()),
            ),
            gauge(
                "tallygate_records_queued",
                "Records on their way to the store",
                queued,
            ),
            gauge(
                "tallygate_configuration_reload_success",
                "The newest files are in force",
                yes(seen.rejected.is_none()),
            ),
            gauge(
                "tallygate_configuration_in_force_since_seconds",
                "When the configuration in force was read",
                since,
            ),
        ]
    }

    fn reader(&self) -> Answer<'_, Box<dyn Reader>> {
        let StoreUrl::Sqlite(path) = self.proxy.live.load().config.store.url.clone();
        Box::pin(async move {
            let reader: Box<dyn Reader> = Box::new(sqlite::Reader::open(&path).await?);
            Ok(reader)
        })
    }

    fn unready(&self) -> Vec<String> {
        self.proxy
            .books
            .refuses()
            .into_iter()
            .map(|why| format!("store: {why}"))
            .collect()
    }

    fn describe(&self) -> Value {
        let seen = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let live = self.proxy.live.load();
        let rejected = seen.rejected.as_ref().map(
            |why| json!({ "at": seen.rejected_at_ms, "problems": why.lines().collect::<Vec<_>>() }),
        );
        json!({
            "configuration": {
                "file": live.config.file,
                "in_force_since": seen.in_force_since_ms,
                "keys": live.config.keys.len(),
                "policies": live.config.policies.len(),
                "rejected": rejected,
            },
            "store": self.proxy.books.failure().unwrap_or_else(|| "ok".to_owned()),
        })
    }
}
