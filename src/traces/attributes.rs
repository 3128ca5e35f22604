//! From notes to spans, named as the semantic conventions of OpenTelemetry name things: HTTP, and
//! generative AI as of its `gen_ai.client.inference`. What is ours is called `tallygate.…`.

use std::{sync::Arc, time::Duration};

use super::{
    notes::{Attempt, Notes, Used},
    open::{Finished, OTHER, attempt_id},
    span::{Attribute, Kind, Span, Value, word},
};
use crate::{
    config::{Dialect, Provider},
    engine::{call::Api, record::Outcome},
};

/// Longer names are cut: clients make them. Characters.
const LONGEST: usize = 256;

/// The request's span, and one for each attempt at a provider.
pub(super) fn spans(finished: Finished) -> Vec<Span> {
    let mut spans = Vec::with_capacity(finished.notes.attempts.len() + 1);
    for (attempt, number) in finished.notes.attempts.iter().zip(1..) {
        spans.push(client(&finished, attempt, number));
    }
    spans.push(server(finished));
    spans
}

fn server(finished: Finished) -> Span {
    let (began, ended) = (at(&finished, Duration::ZERO), at(&finished, finished.ended));
    let failure = failure(&finished.notes);
    let mut attributes = of_request(&finished);
    attributes.extend(failure.clone().map(|kind| ("error.type", kind)));
    let Finished {
        trace,
        span,
        parent,
        method,
        notes,
        ..
    } = finished;
    let verb = if method == OTHER { "HTTP" } else { method };
    Span {
        trace,
        id: span,
        parent,
        parent_is_remote: parent.is_some(),
        name: match notes.route {
            Some(route) => format!("{verb} {route}"),
            None => verb.to_owned(),
        },
        kind: Kind::Server,
        begun: began,
        ended,
        attributes,
        events: notes.happened,
        left_out: notes.left_out,
        failed: failure.is_some(),
    }
}

/// By the conventions a server's answer of 4xx is no failure of the server.
fn failure(notes: &Notes) -> Option<Value> {
    let broke = matches!(
        notes.outcome,
        Some(Outcome::UpstreamFailed | Outcome::UpstreamError)
    );
    match notes.code {
        Some(code) if notes.status >= 500 => Some(code.into()),
        _ if notes.status >= 500 => Some(notes.status.to_string().into()),
        _ if broke && notes.status < 400 => notes.outcome.map(|outcome| word(outcome).into()),
        _ => None,
    }
}

fn of_request(finished: &Finished) -> Vec<Attribute> {
    let notes = &finished.notes;
    let subject = &notes.subject;
    let fresh = finished.request_id.trim_start_matches("req_");
    let mut all: Vec<Attribute> = vec![
        ("http.request.method", finished.method.into()),
        ("tallygate.request.id", (&finished.request_id).into()),
        ("tallygate.decision.id", format!("dec_{fresh}").into()),
    ];
    all.extend(notes.route.map(|route| ("http.route", route.into())));
    let status = Some(notes.status).filter(|status| *status > 0);
    all.extend(status.map(|status| ("http.response.status_code", status.into())));
    for (name, value) in [
        ("tallygate.key", &subject.key),
        ("tallygate.tenant", &subject.tenant),
        ("tallygate.run", &subject.run),
        ("tallygate.requested_model", &subject.requested_model),
        ("tallygate.resumes", &notes.resumes),
    ] {
        all.extend(value.as_ref().map(|value| (name, cut(value))));
    }
    if let Some((id, version)) = subject.policy.as_deref().and_then(|it| it.rsplit_once('@')) {
        all.push(("tallygate.policy.id", id.to_owned().into()));
        let version = version.parse::<u64>().ok();
        all.extend(version.map(|number| ("tallygate.policy.version", number.into())));
    }
    all.extend(subject.step.map(|step| ("tallygate.step", step.into())));
    all.extend(notes.code.map(|code| ("tallygate.code", code.into())));
    let rule = notes.rule.clone();
    all.extend(rule.map(|rule| ("tallygate.rule", rule.into())));
    if let Some(outcome) = notes.outcome {
        all.push(("tallygate.outcome", word(outcome).into()));
        all.push(("tallygate.cost_usd", usd(notes.cost_nano_usd)));
    }
    let first = notes.first_piece.zip(notes.attempts.last());
    let waited = first.map(|(first, attempt)| first.saturating_sub(attempt.sent));
    all.extend(waited.map(|time| ("tallygate.time_to_first_token", time.as_secs_f64().into())));
    all
}

fn client(finished: &Finished, attempt: &Attempt, number: usize) -> Span {
    let notes = &finished.notes;
    let is_last = number == notes.attempts.len();
    let failure = attempt_failure(notes, attempt, is_last);
    let mut attributes = of_attempt(notes, attempt, number);
    attributes.extend(failure.clone().map(|kind| ("error.type", kind)));
    Span {
        trace: finished.trace,
        id: attempt_id(finished.span, number),
        parent: Some(finished.span),
        parent_is_remote: false,
        name: match &attempt.asked {
            Some((_, model)) => format!("{CHAT} {}", shortened(model)),
            None => finished.method.to_owned(),
        },
        kind: Kind::Client,
        begun: at(finished, attempt.sent),
        ended: at(finished, attempt.ended.unwrap_or(finished.ended)),
        attributes,
        events: Vec::new(),
        left_out: 0,
        failed: failure.is_some(),
    }
}

/// What both of OpenAI's ways to ask are called.
const CHAT: &str = "chat";

fn attempt_failure(notes: &Notes, attempt: &Attempt, is_last: bool) -> Option<Value> {
    if let Some(failure) = attempt.failure {
        return Some(failure.into());
    }
    if attempt.status >= 400 {
        return Some(attempt.status.to_string().into());
    }
    let broke = matches!(
        notes.outcome,
        Some(Outcome::UpstreamFailed | Outcome::UpstreamError)
    );
    let unanswered = attempt.asked.is_none() && attempt.status == 0;
    let outcome = || notes.outcome.map_or_else(|| OTHER.to_owned(), word);
    let kind = || notes.code.map_or_else(|| outcome().into(), Value::from);
    (is_last && (broke || unanswered)).then(kind)
}

fn of_attempt(notes: &Notes, attempt: &Attempt, number: usize) -> Vec<Attribute> {
    let provider = &attempt.provider;
    let mut all: Vec<Attribute> = vec![
        ("tallygate.provider", (&provider.name).into()),
        ("tallygate.attempt", (number as u64).into()),
    ];
    let status = Some(attempt.status).filter(|status| *status > 0);
    all.extend(status.map(|status| ("http.response.status_code", status.into())));
    all.extend(address(provider));
    if let Some((api, model)) = &attempt.asked {
        all.extend([
            ("gen_ai.operation.name", CHAT.into()),
            ("gen_ai.provider.name", dialect(provider).into()),
            ("gen_ai.request.model", cut(model)),
        ]);
        if provider.dialect == Dialect::OpenAi {
            all.push(("openai.api.type", api_type(*api).into()));
        }
        // By the conventions only said where it is so.
        if notes.stream {
            all.push(("gen_ai.request.stream", true.into()));
        }
        let cap = notes.output_cap;
        all.extend(cap.map(|cap| ("gen_ai.request.max_tokens", cap.into())));
    }
    if let Some(used) = &attempt.used {
        all.extend(of_usage(used));
    }
    all
}

fn of_usage(used: &Used) -> Vec<Attribute> {
    let model = used.answered_model.as_deref();
    let mut all: Vec<Attribute> = Vec::new();
    all.extend(model.map(|model| ("gen_ai.response.model", shortened(model).into())));
    for (name, count) in [
        ("gen_ai.usage.input_tokens", used.input_tokens),
        ("gen_ai.usage.output_tokens", used.output_tokens),
        ("gen_ai.usage.cache_read.input_tokens", used.cached_tokens),
        (
            "gen_ai.usage.reasoning.output_tokens",
            used.reasoning_tokens,
        ),
    ] {
        if count > 0 {
            all.push((name, count.into()));
        }
    }
    if used.estimated {
        all.push(("tallygate.usage_estimated", true.into()));
    }
    all.push(("tallygate.cost_usd", usd(used.cost_nano_usd)));
    all
}

/// Which conventions the provider's telemetry follows, not whose it is: that is
/// `tallygate.provider` and `server.address`.
fn dialect(provider: &Provider) -> &'static str {
    match provider.dialect {
        Dialect::OpenAi => "openai",
        Dialect::Sandbox => "tallygate.sandbox",
    }
}

fn api_type(api: Api) -> &'static str {
    match api {
        Api::Chat => "chat_completions",
        Api::Responses => "responses",
    }
}

fn address(provider: &Provider) -> Vec<Attribute> {
    let url = provider.base_url.as_ref();
    let told = url.and_then(|url| Some((url.host_str()?, url.port_or_known_default()?)));
    let Some((host, port)) = told else {
        return Vec::new();
    };
    vec![
        ("server.address", host.to_owned().into()),
        ("server.port", port.into()),
    ]
}

/// Whole dollars are what people's tools expect; the exact amount is in the ledger.
#[expect(
    clippy::cast_precision_loss,
    reason = "exact to 9 million dollars, and rounded above"
)]
fn usd(nanos: u64) -> Value {
    (nanos as f64 / 1e9).into()
}

/// Nanoseconds since 1970.
fn at(finished: &Finished, since: Duration) -> u64 {
    let began = u64::try_from(finished.began_ms).unwrap_or(0);
    let since = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    began.saturating_mul(1_000_000).saturating_add(since)
}

fn cut(name: &Arc<str>) -> Value {
    if name.len() <= LONGEST {
        return name.into();
    }
    shortened(name).into()
}

fn shortened(name: &str) -> String {
    name.chars().take(LONGEST).collect()
}
