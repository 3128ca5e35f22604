//! What providers say they have, for the list of models. Asked for when a client asks and kept
//! for a while; no request for an answer ever waits for it.

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;
use dashmap::DashMap;
use http::{HeaderValue, header};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use tokio::{sync::Mutex, task::JoinSet};

use super::upstream::{Clients, credential};
use crate::{
    config::{ApiKey, Dialect, Provider},
    provider::openai,
};

/// A list is asked for again after this long; one that could not be had, sooner.
const FRESH_MS: i64 = 300_000;
const FAILED_MS: i64 = 30_000;
/// A provider that takes longer is left out.
const PATIENCE: Duration = Duration::from_secs(3);
const LARGEST_LIST: usize = 4 << 20;
const MOST_NAMES: usize = 10_000;
const LONGEST_NAME: usize = 256;

type Names = Arc<[Box<str>]>;

/// What one provider says it has.
pub struct Listed {
    pub provider: Arc<Provider>,
    pub names: Names,
}

/// By base URL.
#[derive(Default)]
pub struct Listings {
    known: DashMap<Box<str>, Arc<Mutex<Listing>>>,
}

#[derive(Default)]
struct Listing {
    names: Names,
    stale_at_ms: i64,
}

#[derive(Deserialize)]
struct List {
    data: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
}

impl Listings {
    /// The providers that told their models, all asked at once.
    pub async fn all(
        &self,
        clients: &Clients,
        providers: &[Arc<Provider>],
        now_ms: i64,
    ) -> Vec<Listed> {
        let mut asked = JoinSet::new();
        for provider in providers {
            let askable = provider.dialect == Dialect::OpenAi
                && !matches!(provider.api_key, ApiKey::Missing(_));
            let (true, Some(url)) = (askable, &provider.base_url) else {
                continue;
            };
            let Some((client, _)) = clients.client(provider, now_ms) else {
                continue;
            };
            let listing = Arc::clone(&self.known.entry(url.as_str().into()).or_default());
            let provider = Arc::clone(provider);
            asked.spawn(async move {
                let names = names(&listing, &client, &provider, now_ms).await;
                Listed { provider, names }
            });
        }
        asked.join_all().await
    }
}

/// Whoever comes while the provider is asked waits for the same answer.
async fn names(
    listing: &Mutex<Listing>,
    client: &reqwest::Client,
    provider: &Provider,
    now_ms: i64,
) -> Names {
    let mut listing = listing.lock().await;
    if now_ms >= listing.stale_at_ms {
        let fetched = tokio::time::timeout(PATIENCE, fetch(client, provider)).await;
        match fetched.ok().flatten() {
            Some(names) => {
                listing.names = names;
                listing.stale_at_ms = now_ms + FRESH_MS;
            }
            None => {
                tracing::info!(provider = %provider.name, "the provider does not tell its models");
                listing.stale_at_ms = now_ms + FAILED_MS;
            }
        }
    }
    Arc::clone(&listing.names)
}

async fn fetch(client: &reqwest::Client, provider: &Provider) -> Option<Names> {
    let url = openai::endpoint(provider.base_url.as_ref()?, "models");
    let mut request = reqwest::Request::new(http::Method::GET, url);
    let identity = HeaderValue::from_static("identity");
    request
        .headers_mut()
        .insert(header::ACCEPT_ENCODING, identity);
    if let Some(value) = credential(provider) {
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
    let answer = client.execute(request).await.ok()?;
    if !answer.status().is_success() {
        return None;
    }
    let mut body = reqwest::Body::from(answer);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        whole.extend_from_slice(&frame.ok()?.into_data().unwrap_or_default());
        if whole.len() > LARGEST_LIST {
            return None;
        }
    }
    let list: List = serde_json::from_slice(&whole).ok()?;
    let plain = |name: &String| {
        (1..=LONGEST_NAME).contains(&name.len()) && !name.contains(|c: char| c.is_control())
    };
    let names = list.data.into_iter().map(|entry| entry.id).filter(plain);
    Some(names.take(MOST_NAMES).map(Into::into).collect())
}
