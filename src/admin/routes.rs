//! What a route is, and how the table's routes become the router: each behind the gate that asks
//! for its role. Nothing is served that does not stand in `table`, but the page's own files
//! and the links of `links`.

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::{HeaderValue, Method, header},
    middleware::{self, Next},
    response::Response,
    routing::MethodRouter,
};

use super::{Shared, auth, fault::Fault, files, hosts, links, query::Parameter, table::table};
use crate::config::Role;

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody who reaches the address.
    Open,
    To(Role),
}

/// What a good answer is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// JSON of the schema with this name.
    Json(&'static str),
    /// JSON Lines, each of the schema with this name.
    Lines(&'static str),
    /// The same, or CSV if asked for.
    LinesOrCsv(&'static str),
    /// Server-sent events, without an end.
    Events,
    Nothing,
    /// Plain text.
    Text,
}

pub(super) struct Route {
    pub method: Method,
    pub path: &'static str,
    pub access: Access,
    pub about: &'static str,
    pub query: &'static [Parameter],
    /// The schema of the request's body, if it takes one.
    pub body: Option<&'static str>,
    pub answer: Answer,
    pub handler: MethodRouter<Shared>,
}

/// What stands before a handler.
pub(super) struct Gate {
    pub console: Shared,
    pub access: Access,
    pub query: &'static [Parameter],
}

impl Route {
    pub fn new(
        (method, path): (Method, &'static str),
        access: Access,
        answer: Answer,
        about: &'static str,
        handler: MethodRouter<Shared>,
    ) -> Self {
        Self {
            method,
            path,
            access,
            about,
            query: &[],
            body: None,
            answer,
            handler,
        }
    }

    pub fn get(
        path: &'static str,
        access: Access,
        answer: Answer,
        about: &'static str,
        handler: MethodRouter<Shared>,
    ) -> Self {
        Self::new((Method::GET, path), access, answer, about, handler)
    }

    pub fn asking(mut self, query: &'static [Parameter]) -> Self {
        self.query = query;
        self
    }

    pub fn taking(mut self, schema: &'static str) -> Self {
        self.body = Some(schema);
        self
    }
}

/// Everything that the control plane answers to.
pub(super) fn router(console: Shared) -> Router {
    let mut router = Router::new();
    for route in table() {
        let gate = Arc::new(Gate {
            console: Arc::clone(&console),
            access: route.access,
            query: route.query,
        });
        let guarded = route
            .handler
            .route_layer(middleware::from_fn_with_state(gate, auth::pass));
        router = router.route(route.path, guarded);
    }
    router
        .merge(files::routes())
        .merge(links::routes())
        .fallback(async || Fault::UnknownPath)
        .method_not_allowed_fallback(async || Fault::WrongMethod)
        .layer(middleware::from_fn_with_state(
            Arc::clone(&console),
            hosts::check,
        ))
        .layer(middleware::from_fn(protect))
        .with_state(console)
}

/// What every answer says to browsers. Nothing is loaded from elsewhere, nothing is framed, and
/// nothing that tells of people's requests stays in a cache.
async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
