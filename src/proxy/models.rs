//! `GET /v1/models`: what a key may use, and nothing else.

use http::{HeaderValue, Response, header};
use serde_json::{Value, json};

use super::{
    listings::Listings,
    live::Live,
    rejection::Rejection,
    relay::Body,
    resolve::{resolve, usable},
    upstream::Clients,
};
use crate::engine::policy::Policy;

pub async fn list(
    listings: &Listings,
    clients: &Clients,
    live: &Live,
    policy: &Policy,
    now_ms: i64,
) -> Response<Body> {
    let listed = listings.all(clients, &live.config.providers, now_ms).await;
    let data: Vec<Value> = usable(live, policy, &listed, now_ms)
        .iter()
        .map(|(name, _)| entry(live, name))
        .collect();
    answer(&json!({ "object": "list", "data": data }))
}

/// # Errors
/// `ModelNotFound`, also for a model that exists and is forbidden.
pub fn one(
    live: &Live,
    policy: &Policy,
    id: &str,
    now_ms: i64,
) -> Result<Response<Body>, Rejection> {
    let name = decoded(id);
    let configured = usable(live, policy, &[], now_ms);
    let usable = configured.iter().any(|(usable, _)| *usable == name)
        || (resolve(live, policy, &name, now_ms).is_ok() && policy.models.allow.is_some());
    if usable {
        Ok(answer(&entry(live, &name)))
    } else {
        Err(Rejection::ModelNotFound { model: name })
    }
}

fn entry(live: &Live, name: &str) -> Value {
    let provider = live
        .config
        .aliases
        .get(name)
        .and_then(|alias| alias.routes.first())
        .map_or("tallygate", |route| &route.provider.name);
    json!({ "id": name, "object": "model", "created": 0, "owned_by": provider })
}

fn answer(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::whole(value.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Percent-decoded once; what is not UTF-8 then names no model.
fn decoded(id: &str) -> String {
    let mut bytes = Vec::with_capacity(id.len());
    let mut rest = id.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match hex.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(decoded) if byte == b'%' => {
                bytes.push(decoded);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
