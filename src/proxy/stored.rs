//! Answers that a provider keeps: read and deleted by the key that got them, and by no other.
//! What is read is judged again, by the rules of now.

use std::{borrow::Cow, sync::Arc};

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request::Parts};

use super::{
    Proxy, answer,
    live::Live,
    rejection::{Rejection, UpstreamFault},
    relay::{self, Body},
    upstream::{self, Clients},
};
use crate::{
    config::{ApiKey, Dialect, Provider},
    engine::{
        call::{
            Api,
            offers::{NoCompanions, Offers},
        },
        chain::{CallGuard, Delivery, Facts, Offered},
        chat::{self, CallRules},
        guard::tool_offers,
        policy::{Batch, Key, OnBlock, Policy},
        record::{Event, JudgedCall, Subject},
    },
    traces::{Trace, Wish},
};

/// Who asks for which answer.
pub struct Asked<'a> {
    pub live: &'a Live,
    pub key: &'a Key,
    pub policy: &'a Policy,
    pub trace: Option<&'a Trace>,
    pub request_id: &'a Arc<str>,
    pub decision: &'a str,
    pub id: &'a str,
}

/// # Errors
/// `ResponseNotFound` for an answer of another key just as for one that never was.
pub async fn answer(
    (proxy, clients): (&Proxy, &Clients),
    asked: &Asked<'_>,
    head: &Parts,
) -> Result<Response<Body>, Rejection> {
    if head.uri.query().is_some_and(|query| !query.is_empty()) {
        return Err(Rejection::InvalidRequest {
            message: "An answer is read as a whole and without parameters: Tallygate does not \
                      stream one again."
                .to_owned(),
            param: None,
        });
    }
    let provider = owner(proxy, asked).await?;
    let path = format!("responses/{}", asked.id);
    let now_ms = proxy.clock.now_ms();
    let what = (head.method.clone(), path.as_str());
    let headers = led(asked, &provider, &head.headers);
    let reply = upstream::fetch(clients, &provider, what, &headers, now_ms).await?;
    if let Some(trace) = asked.trace {
        trace.reached(reply.status.as_u16());
    }
    if reply.status == StatusCode::NOT_FOUND {
        return Err(not_found(asked));
    }
    let body = relay::plain_body(&provider, reply).await?;
    let body = match head.method {
        Method::GET => judged(proxy, asked, &provider, &body)?,
        _ => body,
    };
    let mut response = Response::new(Body::whole(body));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

/// The client's headers; where the request is followed, with our span instead of the client's.
fn led<'h>(
    asked: &Asked<'_>,
    provider: &Arc<Provider>,
    headers: &'h HeaderMap,
) -> Cow<'h, HeaderMap> {
    let Some(trace) = asked.trace else {
        return Cow::Borrowed(headers);
    };
    let mut headers = headers.clone();
    trace.sent(provider, Wish::Kept);
    trace.lead(&mut headers);
    Cow::Owned(headers)
}

/// The provider that keeps the answer for this key.
async fn owner(proxy: &Proxy, asked: &Asked<'_>) -> Result<Arc<Provider>, Rejection> {
    let owners = proxy.books.owners(vec![asked.id.to_owned()]).await?;
    let owner = owners.into_iter().flatten().next();
    let owner = owner.filter(|owner| owner.key == asked.key.name);
    let owner = owner.ok_or_else(|| not_found(asked))?;
    let mut providers = asked.live.config.providers.iter();
    let kept = |provider: &&Arc<Provider>| {
        provider.name == owner.provider && provider.dialect != Dialect::Sandbox
    };
    let provider = providers.find(kept).ok_or_else(|| not_found(asked))?;
    match provider.api_key {
        ApiKey::Missing(_) => Err(Rejection::ProviderUnavailable {
            provider: provider.name.to_string(),
        }),
        _ => Ok(Arc::clone(provider)),
    }
}

fn not_found(asked: &Asked<'_>) -> Rejection {
    Rejection::ResponseNotFound {
        id: asked.id.to_owned(),
        param: None,
    }
}

fn judged(
    proxy: &Proxy,
    asked: &Asked<'_>,
    provider: &Provider,
    body: &bytes::Bytes,
) -> Result<bytes::Bytes, Rejection> {
    let guard = CallGuard::new(
        Arc::clone(&asked.policy.label),
        Arc::clone(&asked.policy.tools),
        Arc::clone(&asked.live.config.contracts),
        Arc::clone(&asked.key.tenant),
        Arc::new(offered(asked, body)),
        // Nobody knows what the conversation of then held.
        Arc::new(Facts {
            tainted: true,
            run: None,
        }),
    );
    let rules = CallRules {
        judge: Arc::new(guard),
        delivery: Delivery {
            as_error: asked.policy.tools.on_block == OnBlock::Error,
            each: asked.policy.tools.batch == Batch::Each,
        },
        policy: Arc::clone(&asked.policy.label),
        decision: asked.decision.to_owned(),
        // Nobody can be asked here: a call that needs it stays withheld.
        rulings: Some(Arc::from([])),
    };
    let broken = || UpstreamFault::Broken {
        provider: provider.name.to_string(),
    };
    let (whole, _) = answer::whole(Api::Responses, body, rules).ok_or_else(broken)?;
    let subject = Subject {
        key: Some(Arc::clone(&asked.key.name)),
        tenant: Some(Arc::clone(&asked.key.tenant)),
        policy: Some(Arc::clone(&asked.policy.label)),
        requested_model: None,
        run: None,
        step: None,
    };
    for judged in &whole.judged {
        let call = JudgedCall::of(&subject, &judged.judgement);
        let event = Event::CallJudged(Box::new(call));
        if let Some(trace) = asked.trace {
            trace.observe(&event);
        }
        proxy
            .books
            .record(Some(Arc::clone(asked.request_id)), event);
    }
    match whole.body {
        chat::Body::Send(body) => Ok(body),
        chat::Body::Error(_) => Err(broken().into()),
        chat::Body::Refused(blocks) => Err(Rejection::CallsBlocked { blocks }),
        // Never, since there were rulings.
        chat::Body::Paused(_) => Err(Rejection::GuardUnavailable),
    }
}

/// What the request of then offered, as far as the rules of now let it; the answer repeats it.
fn offered(asked: &Asked<'_>, body: &[u8]) -> Offered {
    let Ok(offers) = Offers::of_answer(body) else {
        return Offered::default();
    };
    let (rules, contracts) = (&asked.policy.tools, &asked.live.config.contracts);
    let admitted = tool_offers::judge(rules, contracts, &offers, body, &NoCompanions);
    admitted
        .map(|admitted| admitted.offered)
        .unwrap_or_default()
}
