//! `[approvals.webhook]`: who is told of calls that wait.

use std::sync::Arc;

use super::{
    ApiKey, Webhook,
    reader::Table,
    secret::credential,
    urls::{is_loopback, parse_hook},
    values::{flag, text},
};

/// `None` is a mistake that has been told.
pub(super) fn webhook(table: &mut Table<'_>) -> Option<Arc<Webhook>> {
    let url = target(table);
    let place = table.place_of("secret");
    let secret = match table.member("secret") {
        Some(value) => credential(&place, value, NOTHING_SENT),
        None => {
            place.mistake("missing; what is sent, and the links in it, are signed with it");
            ApiKey::None
        }
    };
    if let ApiKey::Found(secret) = &secret
        && secret.reveal().len() < SHORTEST
    {
        let message = format!(
            "must have at least {SHORTEST} characters, such as `openssl rand -hex 32` prints"
        );
        place.mistake(message);
    }
    let include_arguments = table.or("include_arguments", false, flag);
    Some(Arc::new(Webhook {
        url: url?,
        secret,
        include_arguments,
    }))
}

/// A URL as it stands, or where one is found: of some services it is a secret.
fn target(table: &mut Table<'_>) -> Option<Result<url::Url, String>> {
    let place = table.place_of("url");
    let Some(value) = table.member("url") else {
        place.mistake("missing");
        return None;
    };
    let url = if value.is_table() {
        match credential(&place, value, NOTHING_SENT) {
            ApiKey::None => return None,
            ApiKey::Missing(what) => return Some(Err(what)),
            ApiKey::Found(found) => parse_hook(found.reveal()),
        }
    } else {
        value.read(|value| Ok(parse_hook(text(value)?)))?
    };
    match url {
        Err(message) => {
            place.mistake(message);
            None
        }
        Ok(url) => {
            if url.scheme() == "http" && !is_loopback(&url) {
                place.warning("http:// sends links that decide in the clear");
            }
            Some(Ok(url))
        }
    }
}

const NOTHING_SENT: &str = "nobody is told of calls that wait";
/// 128 bits as hexadecimal digits have 32; a password of this length is the least.
const SHORTEST: usize = 16;
