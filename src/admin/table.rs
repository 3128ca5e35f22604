//! The one table of the control plane: each route with the role it needs and what it may be
//! asked. `routes` serves it, `openapi` describes it.

use axum::{
    http::Method,
    routing::{delete, get, post},
};

use super::{
    activity, approvals, auth, events, health, ledger, measured, openapi, policies,
    query::{Kind, Parameter},
    routes::{Access, Answer, Route},
    runs, spend,
};
use crate::{config::Role, engine::record::Event};

const VIEWER: Access = Access::To(Role::Viewer);
const APPROVER: Access = Access::To(Role::Approver);
const OPERATOR: Access = Access::To(Role::Operator);

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
    all.extend(tasks());
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
            "/admin/v1/events",
            VIEWER,
            Answer::Events,
            "Tells what to fetch again: `event: activity` when there are new records, `event: approvals` when a call came to wait or was decided; 503 if too many listen already",
            get(events::events),
        ),
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
            Answer::LinesOrCsv("Record"),
            "Records with their places in the chain, oldest first; as CSV, a line each, the whole record in the last column",
            get(ledger::export),
        )
        .asking(EXPORT),
    ]
}

fn tasks() -> Vec<Route> {
    vec![
        Route::get(
            "/admin/v1/runs",
            VIEWER,
            Answer::Json("Runs"),
            "What agents did over whole tasks, the last heard of first",
            get(runs::routes::list),
        )
        .asking(RUNS),
        Route::get(
            "/admin/v1/runs/{id}",
            VIEWER,
            Answer::Json("RunPath"),
            "One run, of each key that has one of this name, and its records in order",
            get(runs::routes::one),
        )
        .asking(RUN),
        Route::get(
            "/admin/v1/comparison",
            VIEWER,
            Answer::Json("Comparison"),
            "Groups of runs side by side: quartiles and the share of successes",
            get(runs::routes::side_by_side),
        )
        .asking(COMPARISON),
    ]
}

const OF_KEY: Parameter = parameter("key", Kind::Text, "Name of the client key");
const TAGGED: Parameter = parameter("tag", Kind::Text, "With this tag (X-Run-Tag)");
const RUN: &[Parameter] = &[OF_KEY];
const RUNS: &[Parameter] = &[
    OF_KEY,
    TAGGED,
    FROM,
    parameter("limit", Kind::Number(1, 200), "Runs on a page"),
];
const COMPARISON: &[Parameter] = &[
    OF_KEY,
    TAGGED,
    FROM,
    parameter(
        "by",
        Kind::OneOf(runs::By::NAMES),
        "What tells the groups apart",
    ),
];

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
    parameter("kind", Kind::SomeOf(Event::KINDS), "Kinds of records"),
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

const EXPORT: &[Parameter] = &[
    parameter(
        "format",
        Kind::OneOf(&["jsonl", "csv"]),
        "jsonl unless said otherwise",
    ),
    parameter("kind", Kind::SomeOf(Event::KINDS), "Kinds of records"),
    parameter("key", Kind::Text, "Name of the client key"),
    FROM,
    TO,
    parameter("after", SEQ, "Only records after this number"),
];
