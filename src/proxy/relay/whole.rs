//! A whole answer: read within bounds, judged, sent on in one piece.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};

use super::{
    Body, KEPT,
    collect::{LARGEST_BODY, collect},
    failed::{answered, error_answer},
    keep, mark_json, reshaped,
};
use crate::{
    config::Provider,
    engine::{
        chat::{self, Answer, Tally},
        record::Outcome,
    },
    proxy::{
        admit::Permit,
        answer,
        rejection::{Rejection, UpstreamFault},
        upstream::Reply,
    },
};

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
    let Some((answer, own)) = answer::whole(permit.api(), &body, permit.call_rules()) else {
        return Err(failed(&mut permit, UpstreamFault::Broken { provider }));
    };
    let Answer {
        body,
        tally,
        judged,
    } = answer;
    judged.iter().for_each(|one| permit.record_call(one));
    if matches!(body, chat::Body::Send(_)) {
        permit.own(own, &tally);
    }
    let body = match body {
        chat::Body::Send(body) => body,
        chat::Body::Error(error) => {
            let told = answered(StatusCode::BAD_GATEWAY, error, HeaderMap::new());
            return Err(permit.refuse(&tally, Outcome::UpstreamError, told));
        }
        chat::Body::Refused(blocks) => {
            let blocked = Rejection::CallsBlocked { blocks };
            return Err(permit.refuse(&tally, Outcome::Completed, blocked));
        }
    };
    permit.complete(&tally, Outcome::Completed);
    let streamed = permit
        .is_stream()
        .then(|| reshaped::streamed(permit.api(), &body, permit.hides_usage()));
    let mut response = streamed.flatten().unwrap_or_else(|| {
        let mut response = Response::new(Body::whole(body));
        mark_json(response.headers_mut());
        response
    });
    keep(&reply.headers, response.headers_mut(), KEPT);
    Ok(response)
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
