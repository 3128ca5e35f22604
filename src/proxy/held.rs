//! Answers that wait for people: parked, waited for, and judged again with what was decided.
//!
//! An answer is parked as the provider gave it. Whoever delivers it, the connection that caused it
//! or a later one with the same conversation, judges it again by the rules of that moment.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{
    Proxy,
    admit::{Asked, Permit},
    rejection::Rejection,
};
use crate::{
    books::{Outcome, Refusal},
    engine::{
        call::Api,
        chain::{Block, CallGuard, Paused, Ruling},
        policy::{Binding, Pattern, ToolRules},
    },
    store::approvals::{Approval, Parked, Status},
    traces::Trace,
};

/// While no byte has left, clients wait this long at most.
const WITHOUT_HEADERS: Duration = Duration::from_secs(50);

/// What a request needs whose answer may have to wait.
#[derive(Clone)]
pub struct Pausing {
    proxy: Arc<Proxy>,
    /// Its body, as the client sent it.
    request: Bytes,
    conversation: Option<String>,
}

impl Pausing {
    pub fn new(proxy: &Arc<Proxy>, request: &Bytes) -> Self {
        Self {
            proxy: Arc::clone(proxy),
            request: request.clone(),
            conversation: None,
        }
    }

    /// The answer that waits for this conversation, if one does.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn find(&mut self, asked: &Asked<'_>) -> Result<Option<Parked>, Refusal> {
        if !self.proxy.books.has_parked() {
            return Ok(None);
        }
        let policy = &asked.policy.label;
        let whose = [&*asked.key.name, &*asked.key.tenant, &**policy];
        let conversation = conversation(whose, asked.api, &self.request);
        let found = self.proxy.books.parked_for(&conversation).await?;
        self.conversation = Some(conversation);
        Ok(found)
    }
}

/// SHA-256 of whose conversation it is, under which policy, and what the client sent, but for
/// how it wants to read the answer.
fn conversation(whose: [&str; 3], api: Api, request: &[u8]) -> String {
    let mut digest = Sha256::new();
    let api = match api {
        Api::Chat => "chat",
        Api::Responses => "responses",
    };
    for part in whose.iter().chain([&api]) {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(request) {
        Ok(mut members) => {
            members.shift_remove("stream");
            members.shift_remove("stream_options");
            digest.update(serde_json::Value::Object(members).to_string());
        }
        Err(_) => digest.update(request),
    }
    hex::encode(digest.finalize())
}

/// A parked answer and the wait for it.
pub struct Hold {
    proxy: Arc<Proxy>,
    parked: String,
    until: Instant,
    place: String,
    trace: Option<Trace>,
}

impl Hold {
    /// Parks an answer of this permit's request.
    ///
    /// # Errors
    /// The store does not answer: nothing may wait then.
    pub async fn open(
        permit: &Permitted,
        paused: Vec<Paused>,
        answer: Bytes,
        streamed: bool,
    ) -> Result<Self, Refusal> {
        let proxy = Arc::clone(&permit.pausing.proxy);
        let parked = permit.parked(&answer, streamed);
        let calls = permit.approvals(&parked, paused);
        let hold = Self::join(permit, &parked.id);
        let waiting = permit.trace.as_ref().map(|_| calls.clone());
        proxy.books.park(parked, calls).await?;
        if let (Some(trace), Some(waiting)) = (&permit.trace, waiting) {
            waiting
                .iter()
                .for_each(|call| trace.waits(&call.id, &call.tool));
        }
        Ok(hold)
    }

    /// Waits for one that was parked before.
    pub fn join(permit: &Permitted, parked: &str) -> Self {
        let approvals = permit.pausing.proxy.live.load().config.approvals.clone();
        let wait = match permit.without_headers {
            true => approvals.wait.min(WITHOUT_HEADERS),
            false => approvals.wait,
        };
        Self {
            proxy: Arc::clone(&permit.pausing.proxy),
            parked: parked.to_owned(),
            until: Instant::now() + wait,
            place: PLACE.to_owned(),
            trace: permit.trace.clone(),
        }
    }

    /// What people decided, once they have, or that they have not.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn rulings(self) -> Result<Arc<[Ruling]>, Refusal> {
        let books = &self.proxy.books;
        let outcome = books.rulings(&self.parked, self.until, &self.place).await?;
        if let Outcome::Held(rulings) = &outcome {
            tracing::info!(parked = self.parked, calls = rulings.len(), "still held");
        }
        let rulings = outcome.rulings();
        if let Some(trace) = &self.trace {
            let decided = |one: &Ruling| trace.decided(&one.approval, one.outcome.name());
            rulings.iter().for_each(decided);
        }
        Ok(rulings.into())
    }

    /// Takes the answer out although nobody has to decide any more.
    ///
    /// # Errors
    /// The store does not answer, or another delivery was first.
    pub async fn claim(self) -> Result<(), Rejection> {
        match self.proxy.books.claim(&self.parked).await? {
            true => Ok(()),
            false => Err(Rejection::CallsBlocked {
                blocks: vec![taken()],
            }),
        }
    }
}

const PLACE: &str = "in the Tallygate console or with `tallygate approvals`";

fn taken() -> Block {
    Block {
        code: "needs_human_approval",
        tool: String::new(),
        rule: "approvals".to_owned(),
        message: "The approved answer was given to another delivery.".to_owned(),
        approval: None,
    }
}

/// What of a permit the wait needs, so that it can go on beside it.
pub struct Permitted {
    pausing: Pausing,
    request_id: Arc<str>,
    key: Arc<str>,
    api: Api,
    provider: Arc<str>,
    model: Arc<str>,
    guard: CallGuard,
    run: Option<String>,
    /// The status is not sent yet, and must not be: the answer may become an error.
    without_headers: bool,
    trace: Option<Trace>,
}

impl Permitted {
    /// `None`: no call of this request's answer may wait.
    pub fn of(permit: &Permit, without_headers: bool) -> Option<Self> {
        Some(Self {
            pausing: permit.pausing()?.clone(),
            request_id: Arc::clone(permit.request_id()),
            key: Arc::clone(permit.key()),
            api: permit.api(),
            provider: Arc::clone(&permit.provider().name),
            model: Arc::clone(permit.model()),
            guard: permit.guard().clone(),
            run: permit.run().map(|run| run.id.to_string()),
            without_headers,
            trace: permit.trace().cloned(),
        })
    }

    fn parked(&self, answer: &Bytes, streamed: bool) -> Parked {
        let Pausing { proxy, request, .. } = &self.pausing;
        let whose = [&*self.key, &*self.guard.tenant, &*self.guard.policy];
        let known = self.pausing.conversation.clone();
        let expires = proxy.live.load().config.approvals.expires;
        Parked {
            id: format!("par_{}", proxy.clock.fresh_id()),
            conversation: known.unwrap_or_else(|| conversation(whose, self.api, request)),
            request_id: self.request_id.to_string(),
            provider: self.provider.to_string(),
            model: self.model.to_string(),
            streamed,
            answer: answer.to_vec(),
            expires_at_ms: proxy.clock.now_ms()
                + i64::try_from(expires.as_millis()).unwrap_or(i64::MAX >> 1),
        }
    }

    fn approvals(&self, parked: &Parked, paused: Vec<Paused>) -> Vec<Approval> {
        let clock = &self.pausing.proxy.clock;
        let open = |paused: Paused| Approval {
            id: format!("apr_{}", clock.fresh_id()),
            parked: parked.id.clone(),
            request_id: parked.request_id.clone(),
            key: Arc::clone(&self.key),
            tenant: Arc::clone(&self.guard.tenant),
            run: self.run.clone(),
            policy: Arc::clone(&self.guard.policy),
            tool: paused.tool,
            digest: paused.digest,
            rule: paused.rule,
            arguments: Some(paused.arguments),
            status: Status::Pending,
            created_at_ms: clock.now_ms(),
            expires_at_ms: parked.expires_at_ms,
            decision: None,
        };
        paused.into_iter().map(open).collect()
    }

    /// The guard of this moment: the key's policy as it is in force now. A key that is gone, or
    /// bound to another version, may do nothing with what was approved under the old one.
    pub fn guard_now(&self) -> CallGuard {
        let live = self.pausing.proxy.live.load();
        let config = &live.config;
        let named = |key: &&Arc<crate::engine::policy::Key>| key.name == self.key;
        let key = config.keys.values().find(named);
        let policy = key
            .filter(|key| !key.disabled)
            .and_then(|key| match &key.policy {
                Binding::To(policy) if policy.label == self.guard.policy => Some(policy),
                _ => None,
            });
        let rules = policy.map_or_else(|| Arc::new(nothing()), |policy| Arc::clone(&policy.tools));
        CallGuard {
            rules,
            contracts: Arc::clone(&config.contracts),
            ..self.guard.clone()
        }
    }
}

/// Rules that deny every tool.
fn nothing() -> ToolRules {
    ToolRules {
        allow: Some(Vec::new()),
        deny: Pattern::parse("*").into_iter().collect(),
        ..ToolRules::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: &str, request: &str) -> String {
        conversation([key, "t", "p@1"], Api::Chat, request.as_bytes())
    }

    #[test]
    fn how_the_answer_is_read_makes_no_other_conversation() {
        let plain = of("k", r#"{"model":"m","messages":[]}"#);
        let streamed =
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}"#;
        assert_eq!(plain, of("k", streamed));
    }

    #[test]
    fn another_key_or_another_word_is_another_conversation() {
        let one = of("k", r#"{"messages":["a"]}"#);
        assert_ne!(one, of("k", r#"{"messages":["b"]}"#));
        assert_ne!(one, of("l", r#"{"messages":["a"]}"#));
        let shifted = conversation(["k", "tp@1", ""], Api::Chat, br#"{"messages":["a"]}"#);
        assert_ne!(one, shifted);
    }
}
