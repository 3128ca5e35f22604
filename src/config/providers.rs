//! `[providers.…]`: where requests go, with which credential and which patience.

use std::{sync::Arc, time::Duration};

use super::{
    ApiKey, CapMember, Dialect, HttpVersion, Provider, Route,
    reader::Table,
    secret::api_key,
    text::suggestion,
    urls::{base_url, forwardable, is_loopback},
    values::{check_name, flag, model, one_of, pattern, percent, positive, timeout},
};
use crate::engine::{failover::BreakerRules, policy::Pattern};

/// What the file says of providers.
pub(super) struct Providers<'a> {
    pub all: Vec<Arc<Provider>>,
    /// The names in the file; a provider with mistakes is here alone.
    pub names: Vec<&'a str>,
}

impl Providers<'_> {
    /// Reads `provider/model`. `None`: the provider is there, but with mistakes.
    pub fn route(&self, text: &str) -> Result<Option<Route>, String> {
        let (provider, name) = text
            .split_once('/')
            .ok_or_else(|| format!("{text:?} is no route; write \"PROVIDER/MODEL\""))?;
        if !self.names.contains(&provider) {
            let suggestion = suggestion(provider, self.names.iter().copied());
            return Err(format!("no provider {provider:?}{suggestion}"));
        }
        model(name)?;
        let found = self.all.iter().find(|one| &*one.name == provider);
        Ok(found.map(|provider| Route {
            provider: provider.clone(),
            model: name.into(),
        }))
    }

    /// Splits a model name that begins with the name of a provider.
    pub fn prefix_of<'n>(&self, name: &'n str) -> Option<(&'n str, &'n str)> {
        name.split_once('/')
            .filter(|(provider, _)| self.names.contains(provider))
    }
}

pub(super) fn providers<'a>(root: &mut Table<'a>) -> Providers<'a> {
    let read = root.named("providers", |name, table| (name, provider(name, table)));
    let place = root.place_of("providers");
    if read.as_ref().is_some_and(Vec::is_empty) {
        place.mistake("missing; at least one [providers.NAME] is needed");
    }
    let read = read.unwrap_or_default();
    let names = read.iter().map(|(name, _)| *name).collect();
    let all: Vec<Arc<Provider>> = read
        .into_iter()
        .filter_map(|(_, provider)| provider.map(Arc::new))
        .collect();
    let any: Vec<&str> = all
        .iter()
        .filter(|one| one.models.is_none())
        .map(|one| &*one.name)
        .collect();
    if let [first, _, ..] = any.as_slice() {
        let those = any.join(", ");
        place.warning(format!(
            "{those} take any model; plain names go to {first} (see `models`)"
        ));
    }
    Providers { all, names }
}

fn provider(name: &str, table: &mut Table<'_>) -> Option<Provider> {
    if let Err(message) = check_name(name) {
        table.place().mistake(message);
    }
    match table.required("dialect", one_of(DIALECTS)) {
        Some(Dialect::Sandbox) => Some(sandbox(name, table)),
        // A dialect that is not known was told: the other members are checked all the same.
        Some(Dialect::OpenAi) | None => openai(name, table),
    }
}

fn openai(name: &str, table: &mut Table<'_>) -> Option<Provider> {
    let url = table.required("base_url", base_url);
    let key = api_key(table);
    let plain = Provider {
        base_url: None,
        api_key: key,
        connect_timeout: table.or("connect_timeout", CONNECT_TIMEOUT, timeout),
        first_byte_timeout: table.or("first_byte_timeout", FIRST_BYTE_TIMEOUT, timeout),
        idle_timeout: table.or("idle_timeout", IDLE_TIMEOUT, timeout),
        forward_headers: table
            .list("forward_headers", forwardable)
            .unwrap_or_default(),
        models: table.list("models", pattern),
        stream_usage: table.or("stream_usage", true, flag),
        cap_member: table.or("cap_member", CapMember::AsClient, one_of(CAP_MEMBERS)),
        http: table.or("http", HttpVersion::Auto, one_of(HTTP_VERSIONS)),
        breaker: table.table("breaker", breaker).unwrap_or_default(),
        name: name.into(),
        dialect: Dialect::OpenAi,
    };
    let url = url?;
    let in_the_clear = url.scheme() == "http" && !is_loopback(&url);
    if in_the_clear && !matches!(plain.api_key, ApiKey::None) {
        table
            .place_of("base_url")
            .warning("http:// sends the key and every prompt in the clear");
    }
    Some(Provider {
        base_url: Some(url),
        ..plain
    })
}

fn sandbox(name: &str, table: &mut Table<'_>) -> Provider {
    let own = || vec![Pattern::Prefix("sandbox-".into())];
    Provider {
        name: name.into(),
        dialect: Dialect::Sandbox,
        base_url: None,
        api_key: ApiKey::None,
        connect_timeout: CONNECT_TIMEOUT,
        first_byte_timeout: FIRST_BYTE_TIMEOUT,
        idle_timeout: IDLE_TIMEOUT,
        forward_headers: Vec::new(),
        models: Some(table.list("models", pattern).unwrap_or_else(own)),
        stream_usage: true,
        cap_member: CapMember::AsClient,
        http: HttpVersion::Auto,
        breaker: BreakerRules::default(),
    }
}

fn breaker(table: &mut Table<'_>) -> BreakerRules {
    let default = BreakerRules::default();
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let mut time = |name| table.optional(name, timeout).map(ms);
    let (window, slow, open) = (time("window"), time("slow"), time("open_for"));
    let least = table.optional("min_requests", positive);
    BreakerRules {
        failure_percent: table.or("failure_percent", default.failure_percent, percent),
        min_requests: least.map_or(default.min_requests, |least| {
            u32::try_from(least.get()).unwrap_or(u32::MAX)
        }),
        window_ms: window.unwrap_or(default.window_ms),
        slow_ms: slow,
        open_ms: open.unwrap_or(default.open_ms),
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(120);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

const DIALECTS: &[(&str, Dialect)] = &[("openai", Dialect::OpenAi), ("sandbox", Dialect::Sandbox)];

const CAP_MEMBERS: &[(&str, CapMember)] = &[
    ("as_client", CapMember::AsClient),
    ("max_tokens", CapMember::MaxTokens),
    ("max_completion_tokens", CapMember::MaxCompletionTokens),
];

const HTTP_VERSIONS: &[(&str, HttpVersion)] = &[
    ("auto", HttpVersion::Auto),
    ("1", HttpVersion::Http1),
    ("2", HttpVersion::Http2),
];
