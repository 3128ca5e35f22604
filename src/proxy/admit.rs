//! Admission: everything that must hold before a byte goes to a provider. Only a `Permit` can
//! be sent upstream, and only this file makes one.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{
    live::Live,
    references,
    rejection::{Rejection, Source, Told},
    resolve::{Target, resolve},
};
use crate::{
    books::{Actual, Books, Need, Purse, Refusal, Reservation, STEP},
    clock::Clock,
    config::{ApiKey, CapMember, Provider},
    engine::{
        call::{Api, ChatRequest, Edits},
        chain::{CallGuard, Delivery, Offered},
        chat::{CallRules, Judged, Tally},
        guard::{
            input::{self, InputFault},
            tool_offers::{self, Admitted},
        },
        policy::{Batch, Budget, Enforcement, Key, OnBlock, Policy},
        pricing::{Usage, UsageReading},
        record::{Closing, Event, JudgedCall, OfferNotes, Opening, Outcome, Refused, Subject},
        responses::OwnIds,
        tokens,
    },
    store::{Owned, Owner},
};

/// The cap of an answer when a limit needs one and neither client nor policy names any. Tokens.
const DEFAULT_OUTPUT: u64 = 4096;

/// The right to send one request, and the duty to settle it: once, with what was used. One
/// that is dropped unsettled was left by its client.
pub struct Permit {
    books: Books,
    clock: Clock,
    request_id: Arc<str>,
    key: Arc<str>,
    reply_seed: u128,
    subject: Subject,
    target: Target,
    api: Api,
    body: Bytes,
    stream: bool,
    hide_usage: bool,
    /// The cap that was sent, if it is lower than the client's.
    lowered_cap: Option<u64>,
    input_estimate: u64,
    /// Judges the calls that the model proposes.
    call_guard: CallGuard,
    /// How blocked calls are told.
    delivery: Delivery,
    reservation: Option<Reservation>,
    sent: bool,
    started_ms: i64,
}

/// Who asks, for what, by which rules.
pub struct Asked<'a> {
    pub live: &'a Live,
    pub key: &'a Key,
    pub policy: &'a Policy,
    pub request_id: &'a Arc<str>,
    pub started_ms: i64,
    pub api: Api,
}

/// Evaluates the request guards in order, reserves, and records the start.
///
/// # Errors
/// The first guard or limit that says no. Nothing is held then.
pub async fn admit(
    books: &Books,
    clock: &Clock,
    asked: &Asked<'_>,
    body: &Bytes,
) -> Result<Permit, Rejection> {
    let call =
        ChatRequest::read_as(asked.api, body).map_err(|fault| Rejection::InvalidRequest {
            message: fault.message,
            param: fault.param,
        })?;
    check_input(asked.policy, &call)?;
    let now_ms = clock.now_ms();
    let target = resolve(asked.live, asked.policy, &call.model, now_ms)?;
    let contracts = &asked.live.config.contracts;
    let mut tools = tool_offers::judge(&asked.policy.tools, contracts, &call.offers, body, &call)
        .map_err(|denied| Rejection::ToolDenied(Box::new(denied)))?;
    if let ApiKey::Missing(_) = target.provider.api_key {
        let provider = target.provider.name.to_string();
        return Err(Rejection::ProviderUnavailable { provider });
    }
    let purse = asked
        .live
        .purse(asked.key)
        .ok_or(Rejection::GuardUnavailable)?;
    if target.rates.is_none() && purse.counts_cost() {
        return Err(Rejection::PriceUnknown { model: call.model });
    }
    let earlier = references::check(books, purse, asked, (&call, body), &target).await?;
    tools.patches.extend(earlier.patches);
    let earlier = earlier.tokens;
    let budget = &asked.policy.budget;
    let cap = Cap::of(budget, &call, &target, purse.needs_cap());
    let input = tokens::input_bound(&call, body.len()).saturating_add(earlier);
    let need = cap.need(budget, &call, &target, input);
    let exact = || {
        let own = tokens::exact_input(&call, body.len(), &target.model);
        own.saturating_add(earlier)
    };
    let mut reservation = reserve(books, purse, need, exact, now_ms).await?;
    let granted = Granted {
        cap: cap.settle(&mut reservation),
        target,
        tools,
        reservation,
    };
    Ok(permit(books, clock, asked, &call, body, granted))
}

/// What the steps of admission have given.
struct Granted {
    target: Target,
    tools: Admitted,
    reservation: Reservation,
    /// The output cap that goes upstream.
    cap: Option<u64>,
}

fn check_input(policy: &Policy, call: &ChatRequest) -> Result<(), Rejection> {
    input::judge(&policy.input, &call.content).map_err(|fault| match fault {
        InputFault::TooLong { chars, limit } => Rejection::InputTooLong { chars, limit },
        InputFault::Unsupported { pattern } => Rejection::InputUnsupported { pattern },
    })?;
    match call.substitute {
        Some(member) => Err(Rejection::SubstituteDenied {
            member: member.to_owned(),
        }),
        None => Ok(()),
    }
}

async fn reserve(
    books: &Books,
    purse: &Purse,
    mut need: Need,
    exact_input: impl FnOnce() -> u64,
    now_ms: i64,
) -> Result<Reservation, Rejection> {
    let refusal = match purse.reserve(books, &need, now_ms).await {
        Ok(reservation) => return Ok(reservation),
        Err(refusal) => refusal,
    };
    // The cheap bound did not fit; counting closer may.
    let exact = exact_input();
    if exact >= need.input_tokens {
        return Err(refusal.into());
    }
    need.input_tokens = exact;
    purse
        .reserve(books, &need, now_ms)
        .await
        .map_err(Rejection::from)
}

/// How long the answer may be, and how much of that is reserved for at once.
enum Cap {
    /// All of it, and what fits the limits is what goes upstream.
    Whole(Option<u64>),
    /// A little; the rest as the answer comes. Limits do not lower what goes upstream.
    Growing { sent: Option<u64>, choices: u64 },
}

impl Cap {
    fn of(budget: &Budget, call: &ChatRequest, target: &Target, needed: bool) -> Self {
        if budget.enforcement == Enforcement::Elastic && call.stream && needed {
            Self::Growing {
                sent: output_cap(budget, call, target, false),
                choices: call.choices,
            }
        } else {
            Self::Whole(output_cap(budget, call, target, needed))
        }
    }

    fn need(&self, budget: &Budget, call: &ChatRequest, target: &Target, input: u64) -> Need {
        Need {
            input_tokens: input,
            output_cap: self.reserved(),
            min_output: budget.min_output_tokens,
            // What grows is counted over all choices together.
            choices: match self {
                Self::Whole(_) => call.choices,
                Self::Growing { .. } => 1,
            },
            audio: call.audio,
            rates: target.rates.as_ref().map(|at| Arc::clone(&at.rates)),
        }
    }

    fn reserved(&self) -> Option<u64> {
        match self {
            Self::Whole(cap) => *cap,
            Self::Growing { .. } => Some(self.most().map_or(STEP, |most| most.min(STEP))),
        }
    }

    /// All answers of a growing reservation together.
    fn most(&self) -> Option<u64> {
        match self {
            Self::Growing {
                sent: Some(cap),
                choices,
            } => Some(cap.saturating_mul(*choices)),
            _ => None,
        }
    }

    /// The cap that goes upstream.
    fn settle(&self, reservation: &mut Reservation) -> Option<u64> {
        match self {
            Self::Whole(_) => reservation.output_cap,
            Self::Growing { sent, .. } => {
                reservation.let_grow(self.most());
                *sent
            }
        }
    }
}

/// What an answer may have at most: the least of what client, policy and model say.
fn output_cap(budget: &Budget, call: &ChatRequest, target: &Target, needed: bool) -> Option<u64> {
    let most = budget.max_output_tokens.map(u64::from);
    let asked = call.cap.map(|(_, cap)| cap);
    let default = budget.default_output_tokens.map(u64::from).or(most);
    let wanted = asked
        .or(default)
        .or(target.max_output)
        .or(needed.then_some(DEFAULT_OUTPUT));
    if !needed && most.is_none() {
        return None;
    }
    [wanted, most, target.max_output]
        .into_iter()
        .flatten()
        .min()
}

fn permit(
    books: &Books,
    clock: &Clock,
    asked: &Asked<'_>,
    call: &ChatRequest,
    body: &Bytes,
    granted: Granted,
) -> Permit {
    let Granted {
        target,
        tools,
        reservation,
        cap,
    } = granted;
    let input_bound = reservation.input_tokens();
    let ask_usage = call.stream && call.api == Api::Chat && target.provider.stream_usage;
    let insert_usage = ask_usage && call.include_usage != Some(true);
    let edits = Edits {
        model: (*target.model != *call.model).then_some(&*target.model),
        include_usage: insert_usage,
        cap: cap.and_then(|cap| cap_edit(call, &target.provider, cap)),
        tools: &tools.patches,
    };
    let sent = call.rewrite(body, &edits);
    let client_cap = call.cap.map(|(_, cap)| cap);
    let permit = Permit {
        books: books.clone(),
        clock: clock.clone(),
        request_id: Arc::clone(asked.request_id),
        key: Arc::clone(&asked.key.name),
        reply_seed: seed(asked.request_id),
        subject: subject(asked, call),
        api: call.api,
        body: sent,
        stream: call.stream,
        hide_usage: insert_usage,
        lowered_cap: cap.filter(|cap| client_cap.is_some_and(|asked| *cap < asked)),
        input_estimate: tokens::estimate(call.content.bytes + call.tool_bytes()).min(input_bound),
        call_guard: call_guard(asked, tools.offered),
        delivery: delivery(asked.policy, call),
        reservation: Some(reservation),
        sent: false,
        started_ms: asked.started_ms,
        target,
    };
    permit.record_start(asked.policy, call, body, cap, tools.notes);
    permit
}

fn call_guard(asked: &Asked<'_>, offered: Offered) -> CallGuard {
    CallGuard::new(
        Arc::clone(&asked.policy.label),
        Arc::clone(&asked.policy.tools),
        Arc::clone(&asked.live.config.contracts),
        Arc::clone(&asked.key.tenant),
        Arc::new(offered),
    )
}

/// How a blocked call can be told to this client.
fn delivery(policy: &Policy, call: &ChatRequest) -> Delivery {
    Delivery {
        as_error: policy.tools.on_block == OnBlock::Error || call.forces_structure(),
        each: policy.tools.batch == Batch::Each,
    }
}

/// The member in which the cap goes upstream; `None` if it stands there already.
fn cap_edit<'a>(call: &ChatRequest, provider: &Provider, cap: u64) -> Option<(&'a str, u64)> {
    let member = match (provider.cap_member, call.cap) {
        _ if call.api == Api::Responses => "max_output_tokens",
        (CapMember::MaxTokens, _) => "max_tokens",
        (CapMember::AsClient, Some((member, _))) if member != "max_output_tokens" => member,
        _ => "max_completion_tokens",
    };
    (call.cap != Some((member, cap)) || call.several_caps()).then_some((member, cap))
}

fn subject(asked: &Asked<'_>, call: &ChatRequest) -> Subject {
    Subject {
        key: Some(Arc::clone(&asked.key.name)),
        tenant: Some(Arc::clone(&asked.key.tenant)),
        policy: Some(Arc::clone(&asked.policy.label)),
        requested_model: Some(call.model.as_str().into()),
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
    pub fn record_call(&self, judged: &Judged) {
        let mut call = JudgedCall::of(&self.subject, &judged.judgement);
        call.delivered = judged.delivered;
        let event = Event::CallJudged(Box::new(call));
        self.books.record(Some(Arc::clone(&self.request_id)), event);
    }

    pub fn hides_usage(&self) -> bool {
        self.hide_usage
    }

    pub fn lowered_cap(&self) -> Option<u64> {
        self.lowered_cap
    }

    /// From here on a client that leaves is charged for what went in.
    pub fn mark_sent(&mut self) {
        self.sent = true;
    }

    /// Whether what leaves must be covered first.
    pub fn grows(&self) -> bool {
        let reservation = self.reservation.as_ref();
        reservation.is_some_and(|held| held.covered().is_some())
    }

    /// Estimates never count what no limit was asked for.
    fn covered(&self) -> u64 {
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
        if let Some(reservation) = self.reservation.take() {
            reservation.release(self.clock.now_ms());
        }
    }

    fn record_start(
        &self,
        policy: &Policy,
        call: &ChatRequest,
        body: &[u8],
        cap: Option<u64>,
        tools: OfferNotes,
    ) {
        let reserved = self.reservation.as_ref();
        let sensitive = input::is_sensitive(&policy.input, &call.content);
        let opening = Opening {
            subject: self.subject.clone(),
            provider: Arc::clone(&self.target.provider.name),
            resolved_model: Arc::clone(&self.target.model),
            stream: self.stream,
            reserved_nano_usd: reserved.map_or(0, |held| held.cost),
            reserved_tokens: reserved.map_or(0, |held| held.tokens),
            output_cap: cap,
            body_sha256: hex::encode(Sha256::digest(body)),
            warnings: sensitive.then_some("input_sensitive").into_iter().collect(),
            tools,
        };
        let event = Event::RequestStarted(Box::new(opening));
        self.books.record(Some(Arc::clone(&self.request_id)), event);
    }

    /// Settles with what the answer amounted to. A second call changes nothing.
    pub fn close(&mut self, tally: &Tally, outcome: Outcome, status: u16) {
        let now_ms = self.clock.now_ms();
        let (usage, estimated) = self.usage(tally, outcome);
        let Some(reservation) = self.reservation.take() else {
            return;
        };
        let cost = self.cost(&usage, tally);
        let tokens = usage.input + usage.output;
        reservation.settle(Actual { tokens, cost }, now_ms);
        let reported = tally.usage.is_some();
        let zero_beside_text = reported && usage.output == 0 && tally.written > 0;
        let closing = Closing {
            subject: self.subject.clone(),
            provider: Arc::clone(&self.target.provider.name),
            resolved_model: Arc::clone(&self.target.model),
            answered_model: tally.model.clone(),
            input_tokens: usage.input,
            cached_tokens: usage.cached_input,
            output_tokens: usage.output,
            reasoning_tokens: usage.reasoning,
            cost_nano_usd: cost,
            estimated,
            usage_suspect: zero_beside_text || tally.usage.is_some_and(|read| read.suspect),
            outcome,
            status,
            tool_calls: tally.tool_calls,
            duration_ms: now_ms - self.started_ms,
        };
        let event = Event::RequestSettled(Box::new(closing));
        self.books.record(Some(Arc::clone(&self.request_id)), event);
    }

    fn cost(&self, usage: &Usage, tally: &Tally) -> u64 {
        let tier = tally.service_tier.as_deref();
        match &self.target.rates {
            Some(at) if *usage != Usage::default() => at.rates.cost(usage, tier).nanos(),
            _ => 0,
        }
    }

    /// Reported usage as it is; else a count of what went in and came out. An error answer and
    /// an answer without content cost nothing.
    fn usage(&self, tally: &Tally, outcome: Outcome) -> (Usage, bool) {
        let written = tokens::estimate(tally.written).min(self.covered());
        if let Some(UsageReading { mut usage, .. }) = tally.usage {
            // A report in the middle of an answer that we cut is behind what was written.
            if outcome == Outcome::Cut {
                usage.output = usage.output.max(written);
            }
            return (usage, false);
        }
        let left = outcome == Outcome::ClientGone && self.sent;
        if tally.written == 0 && !left {
            return (Usage::default(), outcome == Outcome::Completed);
        }
        (
            Usage {
                input: self.input_estimate,
                output: written,
                ..Usage::default()
            },
            true,
        )
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.close(&Tally::default(), Outcome::ClientGone, 499);
    }
}
