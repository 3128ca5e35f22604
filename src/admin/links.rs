//! Links that decide about one call: for people whom a webhook told of it, without signing in.
//!
//! What only GETs a link, such as a preview in a chat, sees neither the arguments nor decides.
//! A link works until its call is decided or has expired, and never with a client's key.

use std::borrow::Cow;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use sha2::{Digest as _, Sha256};

use super::Shared;
use crate::{
    approval::{Wish, verdict},
    config::ApiKey,
    engine::names::clean_name,
    store::approvals::{Approval, Recorded, Status},
    webhook::link_expiry,
};

/// As it stands in the ledger.
const WHO: &str = "webhook-link";
/// Characters.
const LONGEST_REASON: usize = 500;
const LARGEST_FORM: usize = 8 << 10;

pub(super) fn routes() -> Router<Shared> {
    let page = get(look)
        .post(act)
        .layer(DefaultBodyLimit::max(LARGEST_FORM));
    Router::new().route("/decide/{id}/{token}", page)
}

async fn look(
    State(console): State<Shared>,
    Path((id, token)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    match find(&console, &id, &token, &headers).await {
        Ok(approval) => page(StatusCode::OK, &before(&approval)),
        Err(refused) => refused,
    }
}

async fn act(
    State(console): State<Shared>,
    Path((id, token)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let approval = match find(&console, &id, &token, &headers).await {
        Ok(approval) => approval,
        Err(refused) => return refused,
    };
    let form: Vec<_> = url::form_urlencoded::parse(&body).collect();
    let member = |name: &str| {
        let found = form.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    };
    let wish = match member("action") {
        "show" => return page(StatusCode::OK, &with_arguments(&approval)),
        "approve" => Wish::Approve,
        "reject" => Wish::Reject,
        _ => return say(StatusCode::BAD_REQUEST, "The form was not filled in here."),
    };
    let reason: String = member("reason").chars().take(LONGEST_REASON).collect();
    decide(&console, &approval, wish, &reason).await
}

async fn decide(console: &Shared, approval: &Approval, wish: Wish, reason: &str) -> Response {
    let now_ms = console.status.clock().now_ms();
    let config = console.status.config();
    let verdict = verdict(&config, approval, wish, (WHO, reason), now_ms);
    let why = verdict.reason.clone();
    tracing::info!(
        operator = WHO,
        approval = approval.id,
        verdict = verdict.status.name(),
        "decided"
    );
    match console.status.decide(verdict).await {
        Err(_) => store_down(),
        Ok(Recorded::Unknown) => invalid(),
        Ok(Recorded::Late(known)) => late(&known),
        Ok(Recorded::Done(known)) if known.status == Status::Void => {
            let words = format!("It is void: {}. It lets nothing through.", escaped(&why));
            say(StatusCode::CONFLICT, &words)
        }
        Ok(Recorded::Done(known)) => {
            let words = format!("The call is {}. This link is used up.", known.status.name());
            say(StatusCode::OK, &words)
        }
    }
}

/// The approval of a good link, or the page that says why it is none.
async fn find(
    console: &Shared,
    id: &str,
    token: &str,
    headers: &HeaderMap,
) -> Result<Approval, Response> {
    let config = console.status.config();
    let webhook = config.webhook.as_ref().ok_or_else(invalid)?;
    let ApiKey::Found(secret) = &webhook.secret else {
        return Err(invalid());
    };
    let expires_at_ms = link_expiry(secret, id, token).ok_or_else(invalid)?;
    if carries_client_key(&config, headers) {
        let words = "A client's key cannot decide about calls.";
        return Err(say(StatusCode::FORBIDDEN, words));
    }
    if expires_at_ms <= console.status.clock().now_ms() {
        return Err(say(
            StatusCode::GONE,
            "This link has expired; nothing passes by it.",
        ));
    }
    let mut reading = console.reader().await.map_err(|_| store_down())?;
    let found = reading
        .store()
        .approval(id)
        .await
        .map_err(|_| store_down())?;
    let approval = found.ok_or_else(invalid)?;
    match approval.status {
        Status::Pending => Ok(approval),
        _ => Err(late(&approval)),
    }
}

/// An agent that came by a link must not decide with the credential that asked.
fn carries_client_key(config: &crate::config::Config, headers: &HeaderMap) -> bool {
    let names = [header::AUTHORIZATION.as_str(), "x-api-key", "api-key"];
    let values = names.iter().flat_map(|name| headers.get_all(*name));
    values.into_iter().any(|value| {
        let bytes = value.as_bytes();
        let key = match bytes.split_at_checked(7) {
            Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"bearer ") => key.trim_ascii(),
            _ => bytes,
        };
        let digest: [u8; 32] = Sha256::digest(key).into();
        config.keys.contains_key(&digest)
    })
}

fn invalid() -> Response {
    say(StatusCode::NOT_FOUND, "This link is not valid.")
}

fn store_down() -> Response {
    let words = "The store does not answer; nothing was decided. Try again.";
    say(StatusCode::SERVICE_UNAVAILABLE, words)
}

fn late(known: &Approval) -> Response {
    let by = known.decision.as_ref().map_or("", |decision| &decision.by);
    let by = match by {
        "" => String::new(),
        by => format!(" by {}", escaped(by)),
    };
    let words = format!(
        "It was {}{by} before; nothing was changed.",
        known.status.name()
    );
    say(StatusCode::CONFLICT, &words)
}

fn say(status: StatusCode, words: &str) -> Response {
    page(status, &format!("<p class=\"lead\">{words}</p>"))
}

fn before(approval: &Approval) -> String {
    format!(
        "{}<form method=\"post\"><button name=\"action\" value=\"show\">Show what it would do</button></form>",
        about(approval)
    )
}

fn with_arguments(approval: &Approval) -> String {
    format!(
        "{}<pre>{}</pre><form method=\"post\"><p><label>Reason <input name=\"reason\" maxlength=\"{LONGEST_REASON}\"></label></p>\
         <button name=\"action\" value=\"approve\">Approve</button> \
         <button name=\"action\" value=\"reject\">Reject</button></form>",
        about(approval),
        escaped(&readable(approval.arguments.as_deref().unwrap_or_default()))
    )
}

fn about(approval: &Approval) -> String {
    format!(
        "<p class=\"lead\">A call of <code>{}</code> waits. Asked for by key {} of {}, held by {}.</p>",
        escaped(&clean_name(&approval.tool)),
        escaped(&approval.key),
        escaped(&approval.tenant),
        escaped(&approval.rule)
    )
}

fn readable(arguments: &str) -> Cow<'_, str> {
    let value = serde_json::from_str::<serde_json::Value>(arguments);
    let pretty = value.and_then(|value| serde_json::to_string_pretty(&value));
    pretty.map_or(Cow::Borrowed(arguments), Cow::Owned)
}

fn page(status: StatusCode, main: &str) -> Response {
    let html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"robots\" content=\"noindex\"><title>Tallygate</title>\
         <link rel=\"stylesheet\" href=\"/console/style.css\"></head>\
         <body><main id=\"content\"><h1>A call waits for a person</h1>{main}</main></body></html>"
    );
    (status, Html(html)).into_response()
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let text = text.replace('>', "&gt;").replace('"', "&quot;");
    text.replace('\'', "&#39;")
}
