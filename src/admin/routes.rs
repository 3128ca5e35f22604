//! The one table of `/admin/v1`: each route with the role it needs. Nothing is served that does
//! not stand here, but the page's own files. `openapi` describes the same table.

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::{HeaderValue, Method, header},
    middleware::{self, Next},
    response::Response,
    routing::{MethodRouter, delete, get, post},
};

use super::{
    Shared, activity, approvals, auth,
    fault::Fault,
    files, health, ledger, measured, openapi, policies,
    query::{Kind, Parameter},
    spend,
};
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

const VIEWER: Access = Access::To(Role::Viewer);
const APPROVER: Access = Access::To(Role::Approver);
const OPERATOR: Access = Access::To(Role::Operator);

impl Route {
    fn new(
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

    fn get(
        path: &'static str,
        access: Access,
        answer: Answer,
        about: &'static str,
        handler: MethodRouter<Shared>,
    ) -> Self {
        Self::new((Method::GET, path), access, answer, about, handler)
    }

    fn asking(mut self, query: &'static [Parameter]) -> Self {
        self.query = query;
        self
    }

    fn taking(mut self, schema: &'static str) -> Self {
        self.body = Some(schema);
        self
    }
}

pub(super) fn table() -> Vec<Route> {
    let mut all = vec![
        Route::get(
            "/healthz",
            Access::Open,
            Answer::Json("Health"),
            "The process lives",
            get(health::healthz),
        ),
        Route::get(
            "/readyz",
            Access::Open,
            Answer::Json("Ready"),
            "Whether requests are served, and what is in force",
            get(health::readyz),
        ),
    ];
    all.push(Route::get(
        "/metrics",
        VIEWER,
        Answer::Text,
        "What is counted, in the text form of Prometheus",
        get(measured::metrics),
    ));
    all.extend(sessions());
    all.extend(records());
    all.extend(decisions());
    all.extend(money());
    all.extend(rules());
    all
}

const SESSION: &str = "/admin/v1/session";

fn sessions() -> Vec<Route> {
    vec![
        Route::new(
            (Method::POST, SESSION),
            Access::Open,
            Answer::Json("Session"),
            "Sign in with an operator's token: sets the session cookie",
            post(auth::sign_in),
        )
        .taking("SignIn"),
        Route::get(
            SESSION,
            VIEWER,
            Answer::Json("Session"),
            "Who asks",
            get(auth::who),
        ),
        Route::new(
            (Method::DELETE, SESSION),
            VIEWER,
            Answer::Nothing,
            "Sign out",
            delete(auth::sign_out),
        ),
        Route::get(
            "/admin/v1/openapi.json",
            VIEWER,
            Answer::Json("Description"),
            "This description",
            get(openapi::description),
        ),
    ]
}

fn records() -> Vec<Route> {
    vec![
        Route::get(
            "/admin/v1/activity",
            VIEWER,
            Answer::Json("Activity"),
            "Records of the ledger, newest first",
            get(activity::page),
        )
        .asking(ACTIVITY),
        Route::get(
            "/admin/v1/requests/{id}",
            VIEWER,
            Answer::Json("Path"),
            "All records of one request, in order",
            get(activity::request),
        )
        .asking(NEAR),
        Route::get(
            "/admin/v1/ledger",
            VIEWER,
            Answer::Json("Ledger"),
            "How far the ledger goes",
            get(ledger::summary),
        ),
        Route::get(
            "/admin/v1/ledger/verify",
            VIEWER,
            Answer::Lines("Verification"),
            "Follows the chain from its first record, and tells how far it is",
            get(ledger::verify),
        ),
        Route::get(
            "/admin/v1/ledger/export",
            OPERATOR,
            Answer::Lines("Record"),
            "Records with their places in the chain",
            get(ledger::export),
        )
        .asking(EXPORT),
    ]
}

fn decisions() -> Vec<Route> {
    vec![
        Route::get(
            "/admin/v1/approvals",
            VIEWER,
            Answer::Json("Approvals"),
            "Calls that wait for a person, newest first",
            get(approvals::list),
        )
        .asking(WAITING),
        Route::get(
            "/admin/v1/approvals/{id}",
            APPROVER,
            Answer::Json("Approval"),
            "One of them, with its arguments while it waits",
            get(approvals::one),
        ),
        Route::new(
            (Method::POST, "/admin/v1/approvals/{id}"),
            APPROVER,
            Answer::Json("Approval"),
            "Lets the call pass once, or turns it down; 409 if somebody was first",
            post(approvals::decide),
        )
        .taking("Decision"),
    ]
}

const WAITING: &[Parameter] = &[parameter(
    "status",
    Kind::OneOf(approvals::STATUSES),
    "Also those that are decided",
)];

fn money() -> Vec<Route> {
    vec![
        Route::get(
            "/admin/v1/spend",
            VIEWER,
            Answer::Json("Spend"),
            "What each limit holds, and what is used and reserved of it",
            get(spend::now),
        )
        .asking(KEYS),
        Route::get(
            "/admin/v1/spend/history",
            VIEWER,
            Answer::Json("History"),
            "What settled requests came to over time",
            get(spend::history),
        )
        .asking(HISTORY),
        Route::get(
            "/admin/v1/spend/refusals",
            VIEWER,
            Answer::Json("Refusals"),
            "Which limits and rules refused, and how often",
            get(spend::refusals),
        )
        .asking(SPAN),
    ]
}

fn rules() -> Vec<Route> {
    vec![
        Route::get(
            "/admin/v1/policies",
            VIEWER,
            Answer::Json("Policies"),
            "The policies in force, the keys bound to them, and what came of the last reload",
            get(policies::all),
        ),
        Route::new(
            (Method::POST, "/admin/v1/reload"),
            OPERATOR,
            Answer::Json("Configuration"),
            "Reads the configuration again, as SIGHUP does",
            post(policies::reload),
        ),
    ]
}

const fn parameter(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, kind, about }
}

const SEQ: Kind = Kind::Number(0, i64::MAX);
const FROM: Parameter = parameter("from", Kind::Instant, "Not before this instant");
const TO: Parameter = parameter("to", Kind::Instant, "Before this instant");
const SPAN: &[Parameter] = &[FROM, TO];

const ACTIVITY: &[Parameter] = &[
    parameter("kind", Kind::SomeOf(activity::KINDS), "Kinds of records"),
    parameter("key", Kind::Text, "Name of the client key"),
    parameter("tenant", Kind::Text, "Tenant of the key"),
    parameter("run", Kind::Text, "Run that it belongs to"),
    parameter("model", Kind::Text, "Model, as asked for or as resolved"),
    parameter(
        "code",
        Kind::Text,
        "Code of a refusal, or of a layer that blocked, paused or warned",
    ),
    parameter("request_id", Kind::Text, "One request"),
    FROM,
    TO,
    parameter(
        "before",
        SEQ,
        "Only records before this number: `next` of the page before",
    ),
    parameter("after", SEQ, "Only records after this number"),
    parameter("limit", Kind::Number(1, 200), "Records on a page"),
];

const NEAR: &[Parameter] = &[parameter(
    "near",
    SEQ,
    "Number of one of its records, where that is known: finds it at once",
)];

const KEYS: &[Parameter] = &[
    parameter(
        "find",
        Kind::Text,
        "Only keys and tenants with this in their names",
    ),
    parameter(
        "after",
        Kind::Text,
        "Only keys after this name: `next` of the page before",
    ),
    parameter("limit", Kind::Number(1, 200), "Keys on a page"),
];

const HISTORY: &[Parameter] = &[
    FROM,
    TO,
    parameter("by", Kind::OneOf(&["model", "key"]), "What to tell apart"),
];

const EXPORT: &[Parameter] = &[parameter("after", SEQ, "Only records after this number")];

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
        .fallback(async || Fault::UnknownPath)
        .method_not_allowed_fallback(async || Fault::WrongMethod)
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
