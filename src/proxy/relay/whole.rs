//! A whole answer: read within bounds, judged, sent on in one piece; after the wait, if people
//! have to decide.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};

use super::{
    Body, KEPT,
    collect::{LARGEST_BODY, collect},
    failed::{answered, error_answer},
    held::Held,
    keep, mark_json, mark_stream, reshaped,
};
use crate::{
    config::Provider,
    engine::{
        chain::{Paused, Ruling},
        chat::{self, Answer, CallRules, Tally},
        record::Outcome,
    },
    proxy::{
        admit::Permit,
        answer,
        held::{Hold, Permitted},
        rejection::{Rejection, UpstreamFault},
        upstream::Reply,
    },
    store::approvals::Parked,
};

/// A body and what became of it.
enum Judged {
    Send(Bytes),
    Wait(Vec<Paused>),
}

pub(super) async fn respond(
    mut permit: Permit,
    mut reply: Reply,
) -> Result<Response<Body>, Rejection> {
    let provider = permit.provider().name.to_string();
    let idle = permit.provider().idle_timeout;
    let body = match collect(&mut reply.body, LARGEST_BODY, idle).await {
        Ok(body) => body,
        Err(fault) => return Err(failed(&mut permit, fault.of(provider, idle))),
    };
    let rules = permit.call_rules();
    let mut response = match judge(&mut permit, &body, rules)? {
        Judged::Send(body) => {
            remembered(&mut permit).await?;
            sent(&permit, body)
        }
        Judged::Wait(paused) => {
            let waiter = waiter(&permit)?;
            let hold = Hold::open(&waiter, paused, body.clone(), false).await?;
            wait(permit, waiter, hold, body).await?
        }
    };
    keep(&reply.headers, response.headers_mut(), KEPT);
    Ok(response)
}

/// The answer that was parked for this conversation.
pub(super) async fn resume(
    mut permit: Permit,
    parked: Parked,
) -> Result<Response<Body>, Rejection> {
    let (waiter, rules) = (waiter(&permit)?, permit.call_rules());
    let hold = Hold::join(&waiter, &parked.id);
    let body = Bytes::from(parked.answer);
    match judge(&mut permit, &body, rules)? {
        Judged::Wait(_) => wait(permit, waiter, hold, body).await,
        Judged::Send(body) => {
            hold.claim().await?;
            remembered(&mut permit).await?;
            Ok(sent(&permit, body))
        }
    }
}

/// Only a permit whose calls may pause has any that do.
fn waiter(permit: &Permit) -> Result<Permitted, Rejection> {
    Permitted::of(permit, permit.tells_as_error()).ok_or(Rejection::GuardUnavailable)
}

/// Until people have decided; at once with headers, unless the answer may become an error.
async fn wait(
    mut permit: Permit,
    waiter: Permitted,
    hold: Hold,
    body: Bytes,
) -> Result<Response<Body>, Rejection> {
    if permit.tells_as_error() {
        let rulings = hold.rulings().await?;
        let body = ruled(&mut permit, &waiter, &body, rulings)?;
        remembered(&mut permit).await?;
        return Ok(sent(&permit, body));
    }
    let streams = permit.is_stream();
    let coming = async move {
        let answer = match hold.rulings().await {
            Ok(rulings) => ruled(&mut permit, &waiter, &body, rulings),
            Err(refusal) => Err(refusal.into()),
        };
        let answer = match remembered(&mut permit).await {
            Ok(()) => answer,
            Err(rejection) => Err(rejection),
        };
        match answer {
            Ok(body) if permit.is_stream() => {
                let api = permit.api();
                let stream = answer::as_stream(api, &body, permit.hides_usage());
                stream.unwrap_or_default()
            }
            Ok(body) => body,
            Err(rejection) => told(&permit, &rejection),
        }
    };
    let alive: &[u8] = if streams { b": waiting\n\n" } else { b"\n" };
    let held = Held::new(Box::pin(coming), alive);
    let mut response = Response::new(Body::Held(Box::new(held)));
    if streams {
        mark_stream(response.headers_mut());
    } else {
        mark_json(response.headers_mut());
    }
    Ok(response)
}

/// Calls that a crash must not forget are on disk.
async fn remembered(permit: &mut Permit) -> Result<(), Rejection> {
    match permit.remembered() {
        Some(written) => Ok(written.await?),
        None => Ok(()),
    }
}

/// An error after the headers: as a body, or as the last event.
fn told(permit: &Permit, rejection: &Rejection) -> Bytes {
    let body = permit.tell(rejection).body;
    match permit.is_stream() {
        true => [b"data: ", &*body, b"\n\ndata: [DONE]\n\n"].concat().into(),
        false => body,
    }
}

/// Judged again, by the rules of now, with what people decided.
fn ruled(
    permit: &mut Permit,
    waiter: &Permitted,
    body: &Bytes,
    rulings: Arc<[Ruling]>,
) -> Result<Bytes, Rejection> {
    let rules = CallRules {
        judge: Arc::new(waiter.guard_now()),
        rulings: Some(rulings),
        ..permit.call_rules()
    };
    match judge(permit, body, rules)? {
        Judged::Send(body) => Ok(body),
        // No call waits once there are rulings.
        Judged::Wait(_) => Err(Rejection::GuardUnavailable),
    }
}

/// Judges a body and settles, the first time.
fn judge(permit: &mut Permit, body: &Bytes, rules: CallRules) -> Result<Judged, Rejection> {
    let Some((answer, own)) = answer::whole(permit.api(), body, rules) else {
        let provider = permit.provider().name.to_string();
        return Err(failed(permit, UpstreamFault::Broken { provider }));
    };
    let Answer {
        body,
        tally,
        judged,
    } = answer;
    judged.iter().for_each(|one| permit.record_call(one));
    match body {
        chat::Body::Send(body) => {
            permit.own(own, &tally);
            permit.complete(&tally, Outcome::Completed);
            Ok(Judged::Send(body))
        }
        chat::Body::Paused(paused) => {
            permit.complete(&tally, Outcome::Completed);
            Ok(Judged::Wait(paused))
        }
        chat::Body::Error(error) => {
            let told = answered(StatusCode::BAD_GATEWAY, error, HeaderMap::new());
            Err(permit.refuse(&tally, Outcome::UpstreamError, told))
        }
        chat::Body::Refused(blocks) => {
            let blocked = Rejection::CallsBlocked { blocks };
            Err(permit.refuse(&tally, Outcome::Completed, blocked))
        }
    }
}

fn sent(permit: &Permit, body: Bytes) -> Response<Body> {
    let streamed = permit
        .is_stream()
        .then(|| reshaped::streamed(permit.api(), &body, permit.hides_usage()));
    streamed.flatten().unwrap_or_else(|| {
        let mut response = Response::new(Body::whole(body));
        mark_json(response.headers_mut());
        response
    })
}

fn failed(permit: &mut Permit, fault: UpstreamFault) -> Rejection {
    permit.refuse(&Tally::default(), Outcome::UpstreamFailed, fault.into())
}

/// The body of an answer that no permit was needed for.
///
/// # Errors
/// The provider's error, or that it broke off.
pub async fn plain_body(provider: &Provider, mut reply: Reply) -> Result<Bytes, Rejection> {
    if !reply.status.is_success() {
        return Err(error_answer(provider, reply).await);
    }
    let idle = provider.idle_timeout;
    let body = collect(&mut reply.body, LARGEST_BODY, idle).await;
    body.map_err(|fault| fault.of(provider.name.to_string(), idle).into())
}
