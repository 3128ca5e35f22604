//! Admission: everything that must hold before a byte goes to a provider. Only a `Permit` can
//! be sent upstream, and only this module makes one (`issue`); it is settled in `settle`.

mod attempts;
mod calls;
mod cap;
mod escalate;
mod issue;
mod permit;
mod settle;

use std::sync::Arc;

use bytes::Bytes;

use self::cap::Cap;
pub use self::{calls::Remembered, permit::Permit};
use super::{
    Proxy,
    held::Pausing,
    live::Live,
    references,
    rejection::Rejection,
    resolve::{self, Routes, Target},
    runs::InRun,
};
use crate::{
    books::{Books, Need, Purse, Reservation},
    config::ApiKey,
    engine::{
        call::{Api, ChatRequest},
        guard::{
            input::{self, InputFault},
            tool_offers::{self, Admitted},
        },
        policy::{Key, Policy, Role},
        run::Escalated,
        tokens,
    },
    store::approvals::Parked,
    traces::Trace,
};

/// Who asks, for what, by which rules.
pub struct Asked<'a> {
    pub live: &'a Live,
    pub key: &'a Key,
    pub policy: &'a Policy,
    /// Set where rules about runs hold, or the client names one.
    pub run: Option<&'a InRun>,
    /// What the agent says it is: picks the routes.
    pub role: Option<&'a Role>,
    /// Set if it is told of as a trace.
    pub trace: Option<&'a Trace>,
    pub request_id: &'a Arc<str>,
    pub started_ms: i64,
    /// It came faster than a burst that only counts would let it.
    pub too_fast: bool,
    pub api: Api,
}

/// What the request says, as far as admission needs it.
///
/// # Errors
/// `InvalidRequest`.
pub fn read(api: Api, body: &Bytes) -> Result<ChatRequest, Rejection> {
    ChatRequest::read_as(api, body).map_err(|fault| Rejection::InvalidRequest {
        message: fault.message,
        param: fault.param,
    })
}

/// What an admitted request may do.
pub enum Admission {
    /// Ask the provider.
    Send(Permit),
    /// Have the answer that was parked for its conversation: no provider is asked again, and
    /// nothing is charged.
    Resume(Permit, Parked),
}

/// Evaluates the request guards in order, reserves, and records the start.
///
/// # Errors
/// The first guard or limit that says no. Nothing is held then.
pub async fn admit(
    proxy: &Arc<Proxy>,
    asked: &Asked<'_>,
    call: &ChatRequest,
    body: &Bytes,
) -> Result<Admission, Rejection> {
    check_input(asked.policy, call)?;
    let now_ms = proxy.clock.now_ms();
    let routes = routes(asked, call, now_ms)?;
    let contracts = &asked.live.config.contracts;
    let tools = tool_offers::judge(&asked.policy.tools, contracts, &call.offers, body, call)
        .map_err(|denied| Rejection::ToolDenied(Box::new(denied)))?;
    let may_pause = may_pause(asked, call);
    let mut granted = Granted {
        routes,
        tools,
        reservation: None,
        cap: None,
        pausing: may_pause.then(|| Pausing::new(proxy, body)),
        resumes: None,
        unpriced: false,
        escalated: None,
    };
    if let Some(pausing) = &mut granted.pausing
        && let Some(parked) = pausing.find(asked).await?
    {
        granted.resumes = Some(parked.request_id.as_str().into());
        let permit = issue::permit(proxy, asked, call, body, granted);
        return Ok(Admission::Resume(permit, parked));
    }
    if let Some(run) = asked.run {
        let ended = run.enter(proxy, asked.policy, now_ms)?;
        granted.routes.pass_over(run.passed_over());
        granted.escalated = ended;
    }
    hold(proxy, asked, (call, body), &mut granted).await?;
    proxy.breakers.prefer_healthy(&mut granted.routes, now_ms);
    let permit = issue::permit(proxy, asked, call, body, granted);
    Ok(Admission::Send(permit))
}

fn routes(asked: &Asked<'_>, call: &ChatRequest, now_ms: i64) -> Result<Routes, Rejection> {
    let (live, policy) = (asked.live, asked.policy);
    let mut routes = match asked.role {
        Some(role) => resolve::of_role(live, policy, (role, &call.model), now_ms)?,
        None => resolve::resolve(live, policy, &call.model, now_ms)?,
    };
    // What an earlier answer left behind is with the provider that gave it.
    if !call.references.is_empty() {
        let at = Arc::clone(&routes.first.provider.name);
        routes.retain(|target| target.provider.name == at);
    }
    Ok(routes)
}

/// Whether a call of a tool that is offered may have to wait for a person. One that was not
/// offered is blocked in any case.
fn may_pause(asked: &Asked<'_>, call: &ChatRequest) -> bool {
    let (rules, contracts) = (&asked.policy.tools, &asked.live.config.contracts);
    let mut offered = call.offers.tools.iter();
    offered.any(|tool| rules.approval_rule(contracts, &tool.name, true).is_some())
}

/// Reserves what the request may cost at most, and decides on its output cap.
async fn hold(
    proxy: &Proxy,
    asked: &Asked<'_>,
    (call, body): (&ChatRequest, &Bytes),
    granted: &mut Granted,
) -> Result<(), Rejection> {
    let (books, now_ms) = (&proxy.books, proxy.clock.now_ms());
    let has_credential = |target: &Target| !matches!(target.provider.api_key, ApiKey::Missing(_));
    if !granted.routes.retain(has_credential) {
        let provider = granted.routes.first.provider.name.to_string();
        return Err(Rejection::ProviderUnavailable { provider });
    }
    let purse = asked.live.purse(asked.key);
    let purse = purse.ok_or(Rejection::GuardUnavailable)?;
    let of_run = asked
        .run
        .and_then(|run| run.purse(proxy, asked.policy, purse));
    let purse = of_run.as_ref().unwrap_or(purse);
    if purse.limits_cost() && !granted.routes.retain(|target| target.rates.is_some()) {
        let model = call.model.clone();
        return Err(Rejection::PriceUnknown { model });
    }
    let target = &granted.routes.first;
    let earlier = references::check(books, purse, asked, (call, body), target).await?;
    let cap = Cap::of(&asked.policy.budget, call, target, purse.needs_cap());
    let input = tokens::input_bound(call, body.len()).saturating_add(earlier.tokens);
    let attempts = asked.policy.retry.paid_attempts(granted.routes.count());
    let (budget, routes) = (&asked.policy.budget, &granted.routes);
    let need = cap.need(budget, call, routes, (input, attempts));
    let exact = || {
        let own = tokens::exact_input(call, body.len(), &target.model);
        own.saturating_add(earlier.tokens)
    };
    let reserved = reserve(books, purse, need, exact, now_ms).await;
    let mut reservation = reserved.inspect_err(|rejection| {
        if let (Some(run), Some(code)) = (asked.run, rejection.ends_run()) {
            run.ended(proxy, code);
        }
    })?;
    granted.tools.patches.extend(earlier.patches);
    granted.cap = cap.settle(&mut reservation);
    granted.unpriced = purse.counts_cost() && granted.routes.first.rates.is_none();
    granted.reservation = Some(reservation);
    Ok(())
}

/// What the steps of admission have given.
struct Granted {
    routes: Routes,
    tools: Admitted,
    reservation: Option<Reservation>,
    /// The output cap that goes upstream.
    cap: Option<u64>,
    pausing: Option<Pausing>,
    /// The request whose parked answer this one is given.
    resumes: Option<Arc<str>>,
    /// Money is counted by accounts that only count, and the model has no price.
    unpriced: bool,
    /// The escalation that the request's new user input ends.
    escalated: Option<Escalated>,
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
