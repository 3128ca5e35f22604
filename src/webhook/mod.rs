//! Tells a webhook of calls that wait, beside all requests: each call until it was taken, decided
//! or expired. What was told is in the store, so that a restart forgets nothing.

mod message;
mod sign;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use reqwest::{Client, redirect::Policy as Redirects};
use tokio::{sync::watch, task::JoinSet};

pub use self::sign::link_expiry;
use crate::{
    clock::Clock,
    config::{ApiKey, Config, Secret, Webhook},
    metrics::Metrics,
    store::{Answer, approvals::Approval},
};

/// What the telling needs of the running process. `app` fills it in.
pub trait Outbox: Send + Sync + 'static {
    fn config(&self) -> Arc<Config>;
    fn clock(&self) -> &Clock;
    fn metrics(&self) -> &Metrics;
    /// Counts up when a call may have come to wait.
    fn changes(&self) -> watch::Receiver<u64>;
    fn untold(&self) -> Answer<'_, Vec<Approval>>;
    fn tell(&self, approval: String) -> Answer<'_, ()>;
}

/// What is due is looked for this often while something waits to be sent again.
const TICK: Duration = Duration::from_millis(200);
/// Without any word of a change. Another process may have opened one, or the URL was mended.
const QUIET: Duration = Duration::from_secs(5);
/// A receiver that takes longer is asked again.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many are sent at once.
const AT_ONCE: usize = 8;
const FIRST_PAUSE_MS: i64 = 1_000;
const LONGEST_PAUSE_MS: i64 = 300_000;

/// How often one call was told in vain, and when to try again.
#[derive(Debug, Clone, Copy, Default)]
struct Failed {
    times: u32,
    again_at_ms: i64,
}

type Tries = Arc<Mutex<HashMap<String, Failed>>>;

/// Never ends. `console`: the address of the control plane, for links where no URL is configured.
pub async fn run(outbox: Arc<dyn Outbox>, console: String) {
    let client = Client::builder()
        .timeout(PATIENCE)
        .redirect(Redirects::none())
        .no_proxy()
        .build();
    let client = match client {
        Ok(client) => client,
        Err(error) => return tracing::error!(%error, "no HTTP client for the webhook"),
    };
    let tries = Tries::default();
    let mut changes = outbox.changes();
    loop {
        changes.borrow_and_update();
        round(&outbox, &client, &console, &tries).await;
        let pause = if lock(&tries).is_empty() { QUIET } else { TICK };
        // The sender lives in the books, as long as we do.
        let _ = tokio::time::timeout(pause, changes.changed()).await;
    }
}

/// Sends what is due.
async fn round(outbox: &Arc<dyn Outbox>, client: &Client, console: &str, tries: &Tries) {
    let config = outbox.config();
    let Some(webhook) = &config.webhook else {
        return lock(tries).clear();
    };
    if !matches!((&webhook.url, &webhook.secret), (Ok(_), ApiKey::Found(_))) {
        return;
    }
    let console = match &config.server.console_url {
        Some(url) => url.as_str().trim_end_matches('/').to_owned(),
        None => console.to_owned(),
    };
    let Ok(untold) = outbox.untold().await else {
        return;
    };
    let now_ms = outbox.clock().now_ms();
    let mut sending = JoinSet::new();
    for approval in due(untold, tries, now_ms) {
        if sending.len() >= AT_ONCE {
            sending.join_next().await;
        }
        sending.spawn(deliver(
            Arc::clone(outbox),
            client.clone(),
            Arc::clone(webhook),
            console.clone(),
            approval,
            Arc::clone(tries),
        ));
    }
    sending.join_all().await;
}

/// Forgets what needs no telling any more, and keeps what may be tried now.
fn due(untold: Vec<Approval>, tries: &Tries, now_ms: i64) -> Vec<Approval> {
    let mut tries = lock(tries);
    tries.retain(|id, _| untold.iter().any(|approval| approval.id == *id));
    let is_due = |approval: &Approval| {
        let failed = tries.get(&approval.id);
        failed.is_none_or(|failed| failed.again_at_ms <= now_ms)
    };
    untold.into_iter().filter(is_due).collect()
}

async fn deliver(
    outbox: Arc<dyn Outbox>,
    client: Client,
    webhook: Arc<Webhook>,
    console: String,
    approval: Approval,
    tries: Tries,
) {
    let (Ok(url), ApiKey::Found(secret)) = (&webhook.url, &webhook.secret) else {
        return;
    };
    let body = message::message(&webhook, secret, &console, &approval).to_string();
    let now_ms = outbox.clock().now_ms();
    let sent = send(&client, url, secret, now_ms, body).await;
    outbox.metrics().webhook(sent.is_ok());
    let (approval, host) = (approval.id, webhook.host());
    let told = match sent {
        Ok(()) => outbox
            .tell(approval.clone())
            .await
            .map_err(|error| error.to_string()),
        Err(cause) => Err(cause),
    };
    match told {
        Ok(()) => {
            lock(&tries).remove(&approval);
            tracing::info!(approval, host, "the webhook was told of a waiting call");
        }
        Err(cause) => {
            let mut tries = lock(&tries);
            let failed = tries.entry(approval.clone()).or_default();
            let again_in_ms = pause_ms(failed.times);
            failed.times += 1;
            failed.again_at_ms = now_ms + again_in_ms;
            tracing::warn!(
                approval,
                host,
                cause,
                again_in_ms,
                "the webhook was not told"
            );
        }
    }
}

/// The cause of a failure holds no URL, since that may be a secret.
async fn send(
    client: &Client,
    url: &url::Url,
    secret: &Secret,
    now_ms: i64,
    body: String,
) -> Result<(), String> {
    let timestamp = now_ms / 1000;
    let signature = sign::signature(secret, timestamp, body.as_bytes());
    let answer = client
        .post(url.clone())
        .header("content-type", "application/json")
        .header("x-tallygate-timestamp", timestamp)
        .header("x-tallygate-signature", signature)
        .body(body)
        .send()
        .await
        .map_err(|error| error.without_url().to_string())?;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status => Err(format!("it answered {status}")),
    }
}

/// Doubled with each failure.
fn pause_ms(times: u32) -> i64 {
    let doubled = FIRST_PAUSE_MS.saturating_mul(1 << times.min(20));
    doubled.min(LONGEST_PAUSE_MS)
}

fn lock(tries: &Tries) -> std::sync::MutexGuard<'_, HashMap<String, Failed>> {
    tries.lock().unwrap_or_else(PoisonError::into_inner)
}
