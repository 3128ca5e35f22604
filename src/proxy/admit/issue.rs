//! Making a permit of what admission has granted, and the record that the request began.

use std::{num::NonZeroU64, sync::Arc};

use bytes::Bytes;
use http::HeaderValue;
use sha2::{Digest, Sha256};

use super::{
    super::{Proxy, resolve::Target, runs::InRun},
    Asked, Granted,
    attempts::Spare,
    cap::cap_edit,
    permit::Permit,
};
use crate::{
    books::{Reservation, Shortfall},
    engine::{
        budget::Window,
        call::{Api, ChatRequest, Edits, offers::Patch},
        chain::{CallGuard, Delivery, Offered},
        guard::input,
        policy::{Batch, OnBlock, Policy},
        record::{Event, OfferNotes, Opening, Subject, WouldRefuse},
        tokens,
    },
};

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
        unpriced,
        escalated,
    } = granted;
    let input_bound = reservation.as_ref().map_or(0, Reservation::input_tokens);
    let sent = for_provider(&routes.first, (call, body), cap, &tools.patches);
    let places = routes.count();
    let spare = Spare::of(&asked.policy.retry, &routes, cap, tools.patches);
    let warnings = warnings(asked.policy, call, (routes.would_deny, unpriced));
    let target = routes.first;
    // Who comes back for a parked answer makes no new step.
    let counted = asked.run.filter(|_| reservation.is_some());
    let step = counted.and_then(|run| run.count(proxy));
    let client_cap = call.cap.map(|(_, cap)| cap);
    let mut permit = Permit {
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
        trace: asked.trace.cloned(),
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
fn warnings(
    policy: &Policy,
    call: &ChatRequest,
    (would_deny, unpriced): (bool, bool),
) -> Vec<&'static str> {
    let sensitive = input::is_sensitive(&policy.input, &call.content);
    let warnings = [
        sensitive.then_some("input_sensitive"),
        would_deny.then_some("model_denied"),
        unpriced.then_some("price_unknown"),
    ];
    warnings.into_iter().flatten().collect()
}

/// The limits that only count and that the request passed.
fn would_refuse(asked: &Asked<'_>, reservation: Option<&Reservation>) -> Vec<WouldRefuse> {
    let burst = asked.too_fast.then(|| Shortfall {
        name: "burst",
        subject: format!("key {:?}", asked.key.name).into(),
        limit: asked.policy.limits.burst.map_or(0, NonZeroU64::get),
        needed: 1,
        window: Window::Minute,
        ..Shortfall::default()
    });
    let limits = reservation.map_or(&[][..], |held| &held.would_refuse);
    burst.iter().chain(limits).map(passed).collect()
}

fn passed(short: &Shortfall) -> WouldRefuse {
    WouldRefuse {
        code: short.code(),
        rule: short.name,
        subject: Arc::clone(&short.subject),
        unit: short.unit.name(),
        limit: short.limit,
        used: short.used,
        reserved: short.reserved,
        needed: short.needed,
    }
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
    fn record_start(
        &mut self,
        asked: &Asked<'_>,
        body: &[u8],
        cap: Option<u64>,
        (warnings, tools, resumes): (Vec<&'static str>, OfferNotes, Option<Arc<str>>),
    ) {
        let notes = |held: &mut Reservation| std::mem::take(&mut held.notes);
        let limits = self.reservation.as_mut().map_or_else(Vec::new, notes);
        let reserved = self.reservation.as_ref();
        let opening = Opening {
            subject: self.subject.clone(),
            provider: Arc::clone(&self.target.provider.name),
            resolved_model: Arc::clone(&self.target.model),
            stream: self.stream,
            reserved_nano_usd: reserved.map_or(0, |held| held.cost),
            reserved_tokens: reserved.map_or(0, |held| held.tokens),
            input_bound: reserved.map_or(0, Reservation::input_tokens),
            limits,
            output_cap: cap,
            body_sha256: hex::encode(Sha256::digest(body)),
            warnings,
            would_refuse: would_refuse(asked, reserved),
            tools,
            resumes,
            input_sha256: asked.run.and_then(InRun::input),
            tainted: asked.run.is_some_and(InRun::brings_taint),
            tags: asked.run.map_or_else(Vec::new, |run| run.tags.clone()),
        };
        let event = Event::RequestStarted(Box::new(opening));
        self.record(event);
    }
}
