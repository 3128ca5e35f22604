//! The permit: the right to send one request, and the duty to settle it. Only admission makes one.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderValue;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{
    super::{
        Proxy,
        held::Pausing,
        rejection::{Rejection, Source, Told},
        resolve::Target,
        runs::InRun,
    },
    Asked, Granted,
    attempts::Spare,
    cap::cap_edit,
};
use crate::{
    books::{Books, OpenRun, Refusal, Reservation},
    clock::Clock,
    config::Provider,
    engine::{
        call::{Api, ChatRequest, Edits, offers::Patch},
        chain::{CallGuard, Delivery, Offered},
        chat::{CallRules, Judged, Tally},
        guard::input,
        policy::{Batch, OnBlock, Policy},
        record::{Event, JudgedCall, OfferNotes, Opening, Refused, Subject},
        responses::OwnIds,
        tokens,
    },
    metrics::Metrics,
    store::{Owned, Owner},
};

/// The right to send one request, and the duty to settle it: once, with what was used. One
/// that is dropped unsettled was left by its client.
pub struct Permit {
    pub(super) books: Books,
    pub(super) clock: Clock,
    pub(super) request_id: Arc<str>,
    pub(super) key: Arc<str>,
    pub(super) reply_seed: u128,
    pub(super) subject: Subject,
    pub(super) target: Target,
    /// Set if another attempt may follow a failed one.
    pub(super) spare: Option<Box<Spare>>,
    /// Routes there were at first.
    pub(super) places: u32,
    pub(super) run: Option<Arc<OpenRun>>,
    pub(super) api: Api,
    pub(super) body: Bytes,
    pub(super) stream: bool,
    pub(super) hide_usage: bool,
    /// The cap that was sent, if it is lower than the client's.
    pub(super) lowered_cap: Option<u64>,
    /// The names of offered tools that were taken out, if any were.
    pub(super) stripped: Option<HeaderValue>,
    pub(super) input_estimate: u64,
    /// Judges the calls that the model proposes.
    pub(super) call_guard: CallGuard,
    /// How blocked calls are told.
    pub(super) delivery: Delivery,
    /// Set if its answer may have to wait for people.
    pub(super) pausing: Option<Pausing>,
    /// `None` once settled; and for an answer that was parked, which was paid for then.
    pub(super) reservation: Option<Reservation>,
    pub(super) settled: bool,
    /// A call that must be on disk before the client has it.
    pub(super) unwritten: bool,
    pub(super) sent: bool,
    /// When; for what is counted.
    pub(super) sent_at: Option<Instant>,
    pub(super) started_ms: i64,
}

/// Done once what was counted is on disk.
pub type Remembered = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

pub(super) fn permit(
    proxy: &Proxy,
    asked: &Asked<'_>,
    call: &ChatRequest,
    body: &Bytes,
    granted: Granted,
) -> Permit {
    let Granted {
        routes,
        tools,
        reservation,
        cap,
        pausing,
        resumes,
        escalated,
    } = granted;
    let input_bound = reservation.as_ref().map_or(0, Reservation::input_tokens);
    let sent = for_provider(&routes.first, (call, body), cap, &tools.patches);
    let places = routes.count();
    let spare = Spare::of(&asked.policy.retry, &routes, cap, tools.patches);
    let warnings = warnings(asked.policy, call, routes.would_deny);
    let target = routes.first;
    // Who comes back for a parked answer makes no new step.
    let counted = asked.run.filter(|_| reservation.is_some());
    let step = counted.and_then(|run| run.count(proxy));
    let client_cap = call.cap.map(|(_, cap)| cap);
    let permit = Permit {
        books: proxy.books.clone(),
        clock: proxy.clock.clone(),
        request_id: Arc::clone(asked.request_id),
        key: Arc::clone(&asked.key.name),
        reply_seed: seed(asked.request_id),
        subject: subject(asked, call, step),
        run: asked.run.and_then(|run| run.open.clone()),
        api: call.api,
        body: sent,
        stream: call.stream,
        hide_usage: hides_usage(call),
        stripped: stripped(&tools.notes),
        lowered_cap: cap.filter(|cap| client_cap.is_some_and(|asked| *cap < asked)),
        input_estimate: tokens::estimate(call.content.bytes + call.tool_bytes()).min(input_bound),
        call_guard: call_guard(asked, tools.offered),
        delivery: delivery(asked.policy, call),
        pausing,
        reservation,
        settled: false,
        unwritten: false,
        sent: false,
        sent_at: None,
        started_ms: asked.started_ms,
        target,
        spare,
        places,
    };
    let notes = (warnings, tools.notes, resumes);
    permit.record_start(asked, body, cap, notes);
    permit.record_escalations(escalated);
    permit
}

/// What rules that only warn or observe say against the request, by their codes.
fn warnings(policy: &Policy, call: &ChatRequest, would_deny: bool) -> Vec<&'static str> {
    let sensitive = input::is_sensitive(&policy.input, &call.content);
    let warnings = [
        sensitive.then_some("input_sensitive"),
        would_deny.then_some("model_denied"),
    ];
    warnings.into_iter().flatten().collect()
}

/// As many names as a header may well hold, and how many more there are.
fn stripped(notes: &OfferNotes) -> Option<HeaderValue> {
    const NAMED: usize = 16;
    let names = &notes.stripped;
    if names.is_empty() {
        return None;
    }
    let mut named: Vec<_> = names.iter().take(NAMED).cloned().collect();
    if names.len() > NAMED {
        named.push(format!("+{}", names.len() - NAMED));
    }
    let text = named.join(", ");
    // A name that was cut short ends in an ellipsis, which is not ASCII.
    HeaderValue::from_str(&text.replace('…', "...")).ok()
}

/// The body as this provider must be sent it.
pub(super) fn for_provider(
    target: &Target,
    (call, body): (&ChatRequest, &Bytes),
    cap: Option<u64>,
    tools: &[Patch],
) -> Bytes {
    let hide_usage = hides_usage(call);
    let edits = Edits {
        model: (*target.model != *call.model).then_some(&*target.model),
        include_usage: hide_usage && target.provider.stream_usage,
        cap: cap.and_then(|cap| cap_edit(call, &target.provider, cap)),
        tools,
    };
    call.rewrite(body, &edits)
}

/// Some providers report usage although nobody asked.
fn hides_usage(call: &ChatRequest) -> bool {
    call.stream && call.api == Api::Chat && call.include_usage != Some(true)
}

fn call_guard(asked: &Asked<'_>, offered: Offered) -> CallGuard {
    let contracts = &asked.live.config.contracts;
    let facts = asked.run.map(|run| run.facts(asked.policy));
    CallGuard::new(
        Arc::clone(&asked.policy.label),
        Arc::clone(&asked.policy.tools),
        Arc::clone(contracts),
        Arc::clone(&asked.key.tenant),
        Arc::new(offered),
        Arc::new(facts.unwrap_or_default()),
    )
}

/// How a blocked call can be told to this client.
fn delivery(policy: &Policy, call: &ChatRequest) -> Delivery {
    Delivery {
        as_error: policy.tools.on_block == OnBlock::Error || call.forces_structure(),
        each: policy.tools.batch == Batch::Each,
    }
}

fn subject(asked: &Asked<'_>, call: &ChatRequest, step: Option<u64>) -> Subject {
    Subject {
        key: Some(Arc::clone(&asked.key.name)),
        tenant: Some(Arc::clone(&asked.key.tenant)),
        policy: Some(Arc::clone(&asked.policy.label)),
        requested_model: Some(call.model.as_str().into()),
        run: asked.run.and_then(InRun::id),
        step,
    }
}

/// The random part of the request id, as a number.
fn seed(request_id: &str) -> u128 {
    let digits = request_id.rsplit('_').next().unwrap_or_default();
    u128::from_str_radix(digits, 16).unwrap_or_default()
}

impl Permit {
    pub fn provider(&self) -> &Arc<Provider> {
        &self.target.provider
    }

    pub fn api(&self) -> Api {
        self.api
    }

    pub fn request_id(&self) -> &Arc<str> {
        &self.request_id
    }

    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The model at the provider.
    pub fn model(&self) -> &Arc<str> {
        &self.target.model
    }

    /// What judges the calls of the answer.
    pub fn guard(&self) -> &CallGuard {
        &self.call_guard
    }

    /// The run that the request belongs to.
    pub fn run(&self) -> Option<&Arc<OpenRun>> {
        self.run.as_ref()
    }

    /// Set if the answer may have to wait for people.
    pub fn pausing(&self) -> Option<&Pausing> {
        self.pausing.as_ref()
    }

    /// Blocked calls are told as an error, with a status while that can still be.
    pub fn tells_as_error(&self) -> bool {
        self.delivery.as_error
    }

    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Once it is answered, a long stream does not keep its request in memory.
    pub fn let_body_go(&mut self) {
        self.body = Bytes::new();
    }

    /// Makes the ids of an answer of our own.
    pub fn reply_seed(&self) -> u128 {
        self.reply_seed
    }

    /// Whether the client asked for a stream.
    pub fn is_stream(&self) -> bool {
        self.stream
    }

    /// How the calls of this request's answer are judged and told.
    pub fn call_rules(&self) -> CallRules {
        CallRules {
            policy: Arc::clone(&self.call_guard.policy),
            judge: Arc::new(self.call_guard.clone()),
            delivery: self.delivery,
            decision: self.decision(),
            // Where nobody could wait, nobody is asked.
            rulings: self.pausing.is_none().then(|| Arc::from([])),
        }
    }

    /// The id under which the answer's headers and the record name what was decided.
    pub fn decision(&self) -> String {
        let fresh = self.request_id.trim_start_matches("req_");
        format!("dec_{fresh}")
    }

    /// Notes whose an answer is that the provider keeps, before the client has its end.
    pub fn own(&self, own: OwnIds, tally: &Tally) {
        let usage = tally.usage.map(|read| read.usage);
        let owned = |id, tokens| Owned {
            id,
            owner: Owner {
                key: Arc::clone(&self.key),
                provider: Arc::clone(&self.target.provider.name),
                tokens,
                unanswered: None,
            },
        };
        let output = usage.map(|usage| usage.output);
        let mut all: Vec<Owned> = own.items.into_iter().map(|id| owned(id, output)).collect();
        all.extend(own.notices.into_iter().map(|id| {
            let mut ours = owned(id, Some(0));
            ours.owner.provider = "".into();
            ours
        }));
        all.extend(own.response.map(|id| {
            let total = usage.map(|usage| usage.input.saturating_add(usage.output));
            let mut response = owned(id, total);
            if !own.unanswered.is_empty() {
                response.owner.unanswered = serde_json::to_string(&own.unanswered).ok();
            }
            response
        }));
        self.books.own(all);
    }

    /// Writes down what became of a call: its names, codes and digest, never its arguments.
    pub fn record_call(&mut self, judged: &Judged) {
        if judged.delivered {
            self.unwritten |= self.call_guard.must_be_remembered(&judged.judgement);
        } else {
            self.call_guard.give_back(&judged.judgement);
        }
        self.note_in_run(judged);
        let mut call = JudgedCall::of(&self.subject, &judged.judgement);
        call.delivered = judged.delivered;
        let event = Event::CallJudged(Box::new(call));
        self.books.record(Some(Arc::clone(&self.request_id)), event);
    }

    /// Set if calls were judged that a crash must not forget: done once they are on disk. What
    /// follows them waits for that.
    pub fn remembered(&mut self) -> Option<Remembered> {
        if !std::mem::take(&mut self.unwritten) {
            return None;
        }
        let books = self.books.clone();
        Some(Box::pin(async move { books.flushed().await }))
    }

    /// What the run has to remember of a call.
    fn note_in_run(&self, judged: &Judged) {
        let Some(run) = &self.run else { return };
        let code = judged.judgement.blocked.as_ref().map(|block| block.code);
        match code {
            Some("loop_detected") => self.trip(run),
            Some(code @ "run_tool_calls_exceeded") => {
                run.state_now(|run| run.ended = Some(code.to_owned()));
            }
            _ => {}
        }
        self.books.note_run(run);
    }

    pub fn hides_usage(&self) -> bool {
        self.hide_usage
    }

    /// What the answer's header says of tools that were taken out.
    pub fn take_stripped(&mut self) -> Option<HeaderValue> {
        self.stripped.take()
    }

    pub fn lowered_cap(&self) -> Option<u64> {
        self.lowered_cap
    }

    /// From here on a client that leaves is charged for what went in. `read`: when the whole
    /// request had been.
    pub fn mark_sent(&mut self, read: Instant) {
        let now = Instant::now();
        self.sent = true;
        self.sent_at = Some(now);
        self.metrics().added(now - read);
    }

    /// The head of the provider's answer is there.
    pub fn mark_answered(&self) {
        if let Some(sent) = self.sent_at {
            let provider = &self.target.provider.name;
            self.metrics().upstream(provider, sent.elapsed());
        }
    }

    /// The first piece of a stream leaves.
    pub fn mark_first_piece(&self) {
        if let Some(sent) = self.sent_at {
            let provider = &self.target.provider.name;
            self.metrics().first_piece(provider, sent.elapsed());
        }
    }

    pub fn metrics(&self) -> &Metrics {
        self.books.metrics()
    }

    /// Whether what leaves must be covered first.
    pub fn grows(&self) -> bool {
        let reservation = self.reservation.as_ref();
        reservation.is_some_and(|held| held.covered().is_some())
    }

    /// Estimates never count what no limit was asked for.
    pub(super) fn covered(&self) -> u64 {
        let covered = self.reservation.as_ref().and_then(Reservation::covered);
        covered.unwrap_or(u64::MAX)
    }

    /// Ready once `output` tokens of the answer are covered.
    ///
    /// # Errors
    /// The limit that leaves no more.
    pub fn poll_cover(&mut self, cx: &mut Context<'_>, output: u64) -> Poll<Result<(), Refusal>> {
        let now_ms = self.clock.now_ms();
        match &mut self.reservation {
            Some(held) => held.poll_cover(cx, output, now_ms),
            None => Poll::Ready(Ok(())),
        }
    }

    /// The words of a refusal in the middle of an answer.
    pub fn tell(&self, rejection: &Rejection) -> Told {
        let fresh = self.request_id.trim_start_matches("req_");
        rejection.tell(Source {
            decision: &format!("dec_{fresh}"),
            policy: self.subject.policy.as_deref(),
        })
    }

    /// Beside the settlement, so that the ledger names the limit.
    pub fn record_refused(&self, rejection: &Rejection, told: &Told) {
        let refused = Refused {
            subject: self.subject.clone(),
            code: told.code,
            status: told.status.as_u16(),
            rule: rejection.rule(),
            source: None,
            duration_ms: self.clock.now_ms() - self.started_ms,
        };
        let event = Event::RequestRefused(Box::new(refused));
        self.books.record(Some(Arc::clone(&self.request_id)), event);
    }

    /// Nothing was sent, and nothing will be: everything goes back.
    pub fn withdraw(&mut self) {
        self.settled = true;
        if let Some(reservation) = self.reservation.take() {
            reservation.release(self.clock.now_ms());
        }
    }

    fn record_start(
        &self,
        asked: &Asked<'_>,
        body: &[u8],
        cap: Option<u64>,
        (warnings, tools, resumes): (Vec<&'static str>, OfferNotes, Option<Arc<str>>),
    ) {
        let reserved = self.reservation.as_ref();
        let opening = Opening {
            subject: self.subject.clone(),
            provider: Arc::clone(&self.target.provider.name),
            resolved_model: Arc::clone(&self.target.model),
            stream: self.stream,
            reserved_nano_usd: reserved.map_or(0, |held| held.cost),
            reserved_tokens: reserved.map_or(0, |held| held.tokens),
            output_cap: cap,
            body_sha256: hex::encode(Sha256::digest(body)),
            warnings,
            tools,
            resumes,
            tags: asked.run.map_or_else(Vec::new, |run| run.tags.clone()),
        };
        let event = Event::RequestStarted(Box::new(opening));
        self.books.record(Some(Arc::clone(&self.request_id)), event);
    }
}
