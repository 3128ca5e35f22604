//! The data plane: the life of a client's request, from its key to its settled answer.

mod admit;
mod answer;
mod attempts;
mod auth;
mod breakers;
mod cors;
mod elastic;
mod held;
mod intake;
mod listings;
mod live;
mod models;
mod outcomes;
mod references;
mod rejection;
mod relay;
mod resolve;
mod route;
mod runs;
mod stored;
mod trail;
mod upstream;

use std::{net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use hyper::{Request, body::Incoming};
use tokio::time::Instant;

use self::{
    admit::{Admission, Asked},
    breakers::Breakers,
    listings::Listings,
    rejection::{Rejection, Source, Told},
    relay::Body,
    route::{Route, check_endpoint, route},
    trail::Trail,
    upstream::Clients,
};
pub use self::{
    live::Live,
    relay::Body as ResponseBody,
    resolve::{Target, usable},
};
use crate::{
    books::Books,
    clock::Clock,
    engine::{
        call::ChatRequest,
        chat::Tally,
        policy::{Binding, Key, Policy, Role},
        record::{Event, Outcome, Refused},
    },
    failures::{self, Failures},
    traces::Queue,
};

const ROLE: HeaderName = HeaderName::from_static("x-role");
const OUTPUT_CAP: HeaderName = HeaderName::from_static("x-tallygate-output-cap");
const TOOLS_STRIPPED: HeaderName = HeaderName::from_static("x-tallygate-tools-stripped");

/// What all workers share.
pub struct Proxy {
    pub live: ArcSwap<Live>,
    pub books: Books,
    pub clock: Clock,
    pub failures: Failures,
    pub listings: Listings,
    pub breakers: Breakers,
    /// Where what is told of requests as traces is put.
    pub traces: Arc<Queue>,
    /// Records on disk before a client sees a byte.
    pub before_release: bool,
}

/// One worker: the shared proxy, and connections of its own.
pub struct Worker {
    pub proxy: Arc<Proxy>,
    clients: Clients,
}

impl Proxy {
    /// Records the refusals that were only counted so far.
    pub fn record_summaries(&self) {
        for summary in self.failures.summaries() {
            self.books.record(None, Event::RefusalsSummed(summary));
        }
    }
}

impl Worker {
    pub fn new(proxy: Arc<Proxy>) -> Self {
        let clients = Clients::default();
        clients.prepare(&proxy.live.load().config.providers);
        Self { proxy, clients }
    }

    /// Answers every request; a refusal is an answer too.
    pub async fn handle(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Body> {
        let live = self.proxy.live.load_full();
        let origin = cors::origin(&live.config.server.cors_origins, request.headers());
        if let Some(origin) = &origin
            && cors::is_preflight(request.method(), request.headers())
        {
            let mut response = Response::new(Body::Whole(None));
            *response.status_mut() = StatusCode::NO_CONTENT;
            *response.headers_mut() = cors::preflight(origin.clone(), request.headers());
            return response;
        }
        let (head, mut body) = request.into_parts();
        let mut trail = Trail::new(&self.proxy, &live, &head, peer.ip());
        let served = self.serve(&live, &mut trail, &head, &mut body, peer).await;
        let mut response = match served {
            Ok(response) => response,
            Err(rejection) => {
                let refusal = self.reject(&trail, &rejection);
                let limit = live.config.server.max_request_body;
                intake::discard(&head.headers, &mut body, limit).await;
                refusal
            }
        };
        trail.answered(&mut response, self.proxy.clock.now_ms());
        if let Some(origin) = origin {
            cors::allow(response.headers_mut(), origin);
        }
        response
    }

    async fn serve(
        &self,
        live: &Live,
        trail: &mut Trail,
        head: &http::request::Parts,
        body: &mut Incoming,
        peer: SocketAddr,
    ) -> Result<Response<Body>, Rejection> {
        let (key, endpoint, policy) = self.admitted_to(live, trail, head, peer)?;
        self.answer(live, trail, (key, policy), endpoint, head, body)
            .await
    }

    /// Who asks, what for, and by which rules.
    fn admitted_to<'a>(
        &self,
        live: &'a Live,
        trail: &mut Trail,
        head: &'a http::request::Parts,
        peer: SocketAddr,
    ) -> Result<(&'a Arc<Key>, Route<'a>, &'a Policy), Rejection> {
        if head.method == Method::OPTIONS {
            return Err(Rejection::WrongMethod { allow: "GET, POST" });
        }
        let key = auth::authenticate(
            &live.config,
            &self.proxy.failures,
            &head.headers,
            peer.ip(),
            trail.started_ms,
        )?;
        trail.of(key, live);
        let endpoint = route(&head.method, head.uri.path())?;
        if let Some(trace) = &trail.trace {
            trace.route(endpoint.pattern());
        }
        let policy = policy_of(key)?;
        trail.subject.policy = Some(Arc::clone(&policy.label));
        check_endpoint(key, &endpoint, head.uri.query())?;
        Ok((key, endpoint, policy))
    }

    async fn answer(
        &self,
        live: &Live,
        trail: &mut Trail,
        (key, policy): (&Arc<Key>, &Policy),
        endpoint: Route<'_>,
        head: &http::request::Parts,
        body: &mut Incoming,
    ) -> Result<Response<Body>, Rejection> {
        let proxy = &*self.proxy;
        let now_ms = trail.started_ms;
        match endpoint {
            Route::Ask(api) => {
                let burst = live.check_burst(key);
                let too_fast = burst.map_err(|retry_after| Rejection::Burst { retry_after })?;
                let most = live.config.server.max_request_body;
                let body = intake::read(&head.headers, body, most).await?;
                let call = admit::read(api, &body)?;
                trail.subject.requested_model = Some(call.model.as_str().into());
                let about = (&**key, policy);
                let asks = (&call, &*body);
                let run = runs::find(proxy, live, about, &head.headers, asks).await?;
                let pinned = run.as_ref().and_then(|run| run.pinned.clone());
                let policy = pinned.as_deref().unwrap_or(policy);
                trail.in_run(run.as_ref(), policy);
                let asked = Asked {
                    too_fast,
                    live,
                    key,
                    policy,
                    role: role(&head.headers, policy)?,
                    run: run.as_ref(),
                    trace: trail.trace.as_ref(),
                    request_id: &trail.id,
                    started_ms: now_ms,
                    api,
                };
                self.ask(&asked, &head.headers, call, &body).await
            }
            Route::Models => {
                Ok(models::list(&proxy.listings, &self.clients, live, policy, now_ms).await)
            }
            Route::Model(id) => models::one(live, policy, id, now_ms),
            Route::Stored(id) => {
                let asked = stored::Asked {
                    live,
                    key,
                    policy,
                    trace: trail.trace.as_ref(),
                    request_id: &trail.id,
                    decision: &trail.decision,
                    id,
                };
                stored::answer((proxy, &self.clients), &asked, head).await
            }
            Route::Outcome(run) => {
                live.check_burst(key)
                    .map_err(|retry_after| Rejection::Burst { retry_after })?;
                let body = intake::read(&head.headers, body, outcomes::LONGEST).await?;
                outcomes::take(proxy, trail, (key, run), &body).await
            }
        }
    }

    async fn ask(
        &self,
        asked: &Asked<'_>,
        headers: &HeaderMap,
        call: ChatRequest,
        body: &bytes::Bytes,
    ) -> Result<Response<Body>, Rejection> {
        let (proxy, read) = (&self.proxy, Instant::now());
        let mut permit = match admit::admit(proxy, asked, &call, body).await? {
            Admission::Send(permit) => permit,
            Admission::Resume(permit, parked) => return relay::resume(permit, parked).await,
        };
        if proxy.before_release {
            let flushed = proxy.books.flushed().await;
            if let Err(refusal) = flushed {
                permit.withdraw();
                return Err(refusal.into());
            }
        }
        permit.mark_sent(read);
        let (lowered, stripped) = (permit.lowered_cap(), permit.take_stripped());
        let reply = match self.send(&mut permit, headers, (&call, body)).await {
            Ok(reply) => reply,
            Err(fault) => {
                let failed = Outcome::UpstreamFailed;
                return Err(permit.refuse(&Tally::default(), failed, fault.into()));
            }
        };
        permit.mark_answered(reply.status);
        permit.let_body_go();
        let mut response = relay::respond(permit, reply).await?;
        let headers = response.headers_mut();
        if let Some(cap) = lowered {
            headers.insert(OUTPUT_CAP, HeaderValue::from(cap));
        }
        if let Some(names) = stripped {
            headers.insert(TOOLS_STRIPPED, names);
        }
        Ok(response)
    }

    fn record_refusal(&self, trail: &Trail, rejection: &Rejection, told: &Told) {
        match rejection {
            // What became of an answer stands in the record of its settlement.
            Rejection::Upstream(_) | Rejection::CallsBlocked { .. } => {}
            Rejection::KeyGuessing { .. } => return self.proxy.failures.sum(trail.peer),
            _ => {
                let unknown = matches!(rejection, Rejection::InvalidKey(_));
                let refused = Refused {
                    subject: trail.subject.clone(),
                    code: told.code,
                    status: told.status.as_u16(),
                    rule: rejection.rule(),
                    limits: rejection.limits(),
                    source: unknown.then(|| failures::source(trail.peer)),
                    duration_ms: self.proxy.clock.now_ms() - trail.started_ms,
                };
                let event = Event::RequestRefused(Box::new(refused));
                trail.record(&self.proxy.books, event);
            }
        }
        tracing::info!(
            request_id = &*trail.id,
            code = told.code,
            status = told.status.as_u16(),
            "refused"
        );
    }

    fn reject(&self, trail: &Trail, rejection: &Rejection) -> Response<Body> {
        let policy = trail.subject.policy.as_deref();
        let told = rejection.tell(Source {
            decision: &trail.decision,
            policy,
        });
        if let Some(trace) = &trail.trace {
            trace.refused(told.code);
        }
        self.record_refusal(trail, rejection, &told);
        let mut response = Response::new(Body::whole(told.body));
        *response.status_mut() = told.status;
        *response.headers_mut() = told.headers;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}

/// The role that the client says its agent has.
fn role<'a>(headers: &HeaderMap, policy: &'a Policy) -> Result<Option<&'a Role>, Rejection> {
    let Some(value) = headers.get(&ROLE) else {
        return Ok(None);
    };
    let named = value.to_str().ok().and_then(|name| policy.role(name));
    let known = || {
        let names: Vec<&str> = policy.roles.iter().map(|role| &*role.name).collect();
        match names.is_empty() {
            true => "it has none".to_owned(),
            false => format!("it has: {}", names.join(", ")),
        }
    };
    let unknown = || Rejection::InvalidRequest {
        message: format!("X-Role names no role of this key's policy; {}.", known()),
        param: None,
    };
    named.map(Some).ok_or_else(unknown)
}

fn policy_of(key: &Key) -> Result<&Policy, Rejection> {
    match &key.policy {
        Binding::To(policy) => Ok(policy),
        Binding::Unusable(reason) => Err(Rejection::PolicyUnavailable {
            reason: reason.to_string(),
        }),
    }
}
