//! Sends an admitted request to the first of its routes and, where an attempt fails, on to the
//! next: as often as the policy says, and never when the failed one may be paid for unasked.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::{
    Worker,
    admit::Permit,
    rejection::UpstreamFault,
    upstream::{self, Reply},
};
use crate::engine::{
    call::ChatRequest,
    failover::{Failure, Verdict},
};

impl Worker {
    /// # Errors
    /// The fault of the last attempt. An error status is a `Reply`.
    pub(super) async fn send(
        &self,
        permit: &mut Permit,
        headers: &HeaderMap,
        asked: (&ChatRequest, &Bytes),
    ) -> Result<Reply, UpstreamFault> {
        loop {
            let sent_ms = self.proxy.clock.now_ms();
            let sent = upstream::send(&self.clients, permit, headers, sent_ms).await;
            let failure = failure(&sent);
            self.tell_breaker(permit, failure, sent_ms);
            let again = failure.and_then(|failure| {
                let wanted_ms = sent.as_ref().ok().and_then(|reply| wanted(&reply.headers));
                permit.try_again(failure, wanted_ms, asked)
            });
            let Some(after_ms) = again else { return sent };
            // A client that leaves meanwhile ends it here: the permit settles.
            drop(sent);
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            permit.mark_sent_again();
        }
    }

    fn tell_breaker(&self, permit: &Permit, failure: Option<Failure>, sent_ms: i64) {
        if !permit.has_choice() {
            return;
        }
        let now_ms = self.proxy.clock.now_ms();
        let verdict = match failure {
            Some(_) => Verdict::Failed,
            None => Verdict::Answered(now_ms - sent_ms),
        };
        let breakers = &self.proxy.breakers;
        breakers.note(permit.provider(), verdict, now_ms);
    }
}

fn failure(sent: &Result<Reply, UpstreamFault>) -> Option<Failure> {
    match sent {
        Ok(reply) => Failure::of_status(reply.status.as_u16()),
        Err(UpstreamFault::Unreachable { .. })
        | Err(UpstreamFault::Timeout {
            connected: false, ..
        }) => Some(Failure::NotReached),
        Err(_) => Some(Failure::Unknown),
    }
}

/// How long the provider asks to be left alone. Milliseconds.
fn wanted(headers: &HeaderMap) -> Option<u64> {
    let number = |name| {
        let value: Option<&HeaderValue> = headers.get(name);
        value?.to_str().ok()?.trim().parse::<f64>().ok()
    };
    let ms = number("retry-after-ms").or_else(|| Some(number("retry-after")? * 1000.0))?;
    // A saturating cast; nonsense is no wish.
    ms.is_finite().then_some(ms.max(0.0) as u64)
}
