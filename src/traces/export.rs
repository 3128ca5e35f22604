//! Posts finished requests to the collector, a batch after the other: tried again while it cannot
//! take them, given up after a while, and at the end of the process within a bound.

use std::{sync::Arc, time::Duration};

use http::{StatusCode, header};
use reqwest::{Client, Response, redirect::Policy as Redirects};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{attributes, otlp, queue::Arrivals, span::Span};
use crate::{
    config::{Config, Telemetry},
    metrics::Metrics,
};

/// What the telling needs of the running process. `app` fills it in.
pub trait Outbox: Send + Sync + 'static {
    fn config(&self) -> Arc<Config>;
    fn metrics(&self) -> &Metrics;
}

/// What is there is posted this often.
const EVERY: Duration = Duration::from_secs(1);
/// Requests that are posted together.
const TOGETHER: usize = 512;
/// A collector that takes longer is asked again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Posts of one batch before it is given up.
const MOST_POSTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Also where the collector asks for more.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// At the end of the process.
const LAST: Duration = Duration::from_secs(3);
/// Of what the collector answers. Bytes.
const LARGEST_ANSWER: usize = 64 << 10;

/// Ends when `over` has turned true and what was there is posted, or cannot be in time.
pub async fn run(outbox: Arc<dyn Outbox>, arrivals: Arrivals, mut over: watch::Receiver<bool>) {
    let client = Client::builder()
        .timeout(PATIENCE)
        .redirect(Redirects::none())
        .no_proxy()
        .build();
    let client = match client {
        Ok(client) => client,
        Err(error) => return tracing::error!(%error, "no HTTP client for traces"),
    };
    let mut exporter = Exporter {
        outbox,
        client,
        arrivals,
        held: Vec::new(),
    };
    tokio::select! {
        () = exporter.go_on() => {}
        _ = over.wait_for(|over| *over) => {}
    }
    if timeout(LAST, exporter.empty()).await.is_err() {
        exporter.give_up_the_rest();
    }
}

struct Exporter {
    outbox: Arc<dyn Outbox>,
    client: Client,
    arrivals: Arrivals,
    /// The batch that is being posted.
    held: Vec<Span>,
}

/// Why a post was in vain.
enum Fault {
    /// It may be taken later; after so long, if the collector says so.
    Later(String, Option<Duration>),
    Never(String),
}

impl Exporter {
    /// Never ends.
    async fn go_on(&mut self) {
        loop {
            tokio::select! {
                () = sleep(EVERY) => {}
                () = self.arrivals.filling() => {}
            }
            self.empty().await;
        }
    }

    /// Posts what is there. May be broken off at any point: what is held stays held.
    async fn empty(&mut self) {
        loop {
            self.outbox.metrics().spans(false, self.arrivals.dropped());
            if self.held.is_empty() {
                let finished = self.arrivals.take(TOGETHER);
                self.held = finished.into_iter().flat_map(attributes::spans).collect();
            }
            if self.held.is_empty() {
                return;
            }
            self.post_held().await;
        }
    }

    async fn post_held(&mut self) {
        let config = self.outbox.config();
        let Some(telemetry) = &config.telemetry else {
            return self.let_go(0);
        };
        let source = otlp::Source {
            service: &telemetry.service_name,
            version: env!("CARGO_PKG_VERSION"),
        };
        let body = otlp::request(&source, &self.held);
        for post in 1.. {
            let fault = match post_once(&self.client, telemetry, body.clone()).await {
                Ok(turned_down) => {
                    return self.let_go((self.held.len() as u64).saturating_sub(turned_down));
                }
                Err(fault) => fault,
            };
            let (cause, wanted) = match fault {
                Fault::Later(cause, wanted) if post < MOST_POSTS => (cause, wanted),
                Fault::Later(cause, _) | Fault::Never(cause) => {
                    let (host, spans) = (telemetry.host(), self.held.len());
                    tracing::warn!(host, cause, spans, "traces were given up");
                    return self.let_go(0);
                }
            };
            tracing::debug!(host = telemetry.host(), cause, "traces were not taken");
            sleep(pause(post, wanted)).await;
        }
    }

    /// The batch is done with; so many of its spans were taken.
    fn let_go(&mut self, taken: u64) {
        let metrics = self.outbox.metrics();
        metrics.spans(true, taken);
        metrics.spans(false, (self.held.len() as u64).saturating_sub(taken));
        self.held.clear();
    }

    fn give_up_the_rest(&mut self) {
        let waiting = self.arrivals.take(usize::MAX);
        let spans = waiting
            .iter()
            .map(super::open::Finished::spans)
            .sum::<u64>();
        let spans = spans + self.held.len() as u64;
        self.outbox.metrics().spans(false, spans);
        tracing::warn!(spans, "ended before the collector had taken all traces");
    }
}

/// Doubled with each post, unless the collector asks for longer.
fn pause(post: u32, wanted: Option<Duration>) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << (post - 1).min(20));
    doubled.max(wanted.unwrap_or_default()).min(LONGEST_PAUSE)
}

/// How many spans were turned down. The cause of a failure holds no URL, since that may be a
/// secret.
async fn post_once(client: &Client, telemetry: &Telemetry, body: Vec<u8>) -> Result<u64, Fault> {
    let mut post = client
        .post(telemetry.endpoint.clone())
        .header(header::CONTENT_TYPE, "application/x-protobuf");
    for (name, secret) in &telemetry.headers {
        post = post.header(name, secret.reveal());
    }
    let later = |error: reqwest::Error| Fault::Later(error.without_url().to_string(), None);
    let answer = post.body(body).send().await.map_err(later)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(read_answer(answer).await);
    }
    let cause = format!("it answered {status}");
    Err(match status {
        // These alone may be sent again, says the protocol.
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Fault::Later(cause, wanted(&answer)),
        _ => Fault::Never(cause),
    })
}

async fn read_answer(mut answer: Response) -> u64 {
    let mut read = Vec::new();
    while let Ok(Some(piece)) = answer.chunk().await {
        read.extend_from_slice(&piece);
        if read.len() > LARGEST_ANSWER {
            return 0;
        }
    }
    otlp::turned_down(&read)
}

fn wanted(answer: &Response) -> Option<Duration> {
    let value = answer.headers().get(header::RETRY_AFTER)?;
    let seconds: u64 = value.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}
