//! `GET /admin/v1/events`: server-sent events that tell which data to fetch again, and nothing of
//! it. What may be seen is asked where it is fetched.

use std::{sync::Arc, time::Duration};

use axum::{extract::State, http::HeaderMap, response::Response};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::{
    Shared, Signals,
    auth::Credential,
    fault::Fault,
    stream::{self, Sink},
};

const APPROVALS: &str = "event: approvals\ndata: {}\n\n";
const ACTIVITY: &str = "event: activity\ndata: {}\n\n";
const KEEP_ALIVE: &str = ": alive\n\n";

/// Whether who asked still may is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Proxies between cut connections that are silent for a minute, some after 30 s.
const LONGEST_SILENCE: Duration = Duration::from_secs(15);
/// Between two events: a busy ledger commits far more often than a page can fetch.
const PAUSE: Duration = Duration::from_millis(250);
/// A client that does not take an event within this has left without a word.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) async fn events(
    State(console): State<Shared>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let credential = Credential::of(&headers).ok_or(Fault::NoToken)?;
    let watchers = Arc::clone(&console.watchers);
    let permit = watchers.try_acquire_owned().map_err(|_| Fault::Busy)?;
    let signals = console.status.signals();
    let (response, sink) = stream::events(permit);
    tokio::spawn(tell(console, credential, signals, sink));
    Ok(response)
}

/// Ends with the session or token, with the process, and when the client leaves.
async fn tell(console: Shared, credential: Credential, mut signals: Signals, sink: Sink) {
    let mut stopped = console.stopped.clone();
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Instant::now();
    loop {
        let event = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => return,
            () = sink.left() => return,
            Ok(()) = signals.approvals.changed() => Some(APPROVALS),
            Ok(()) = signals.activity.changed() => Some(ACTIVITY),
            _ = look.tick() => (last.elapsed() >= LONGEST_SILENCE).then_some(KEEP_ALIVE),
        };
        if !credential.holds(&console) {
            return;
        }
        let Some(event) = event else { continue };
        if !matches!(timeout(PATIENCE, sink.send(event)).await, Ok(Ok(()))) {
            return;
        }
        last = Instant::now();
        sleep(PAUSE).await;
    }
}
