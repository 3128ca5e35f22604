//! `[[keys]]`, `[tenants.…]` and `[global]`: who may call, and what they share.

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
    sync::Arc,
};

use super::{
    budget,
    policies::Policies,
    reader::{Place, Table},
    text::suggestion,
    values::{digest, flag, instant, name, network, one_of, text},
};
use crate::engine::policy::{Binding, Budget, Endpoint, Key};

/// What the file says of keys.
pub(super) struct Keys {
    pub all: HashMap<[u8; 32], Arc<Key>>,
    /// The tenants that keys name, of keys with mistakes too.
    tenants: Vec<String>,
}

/// A key as read, with the places at which a comparison with others can complain.
struct Entry<'a> {
    name: Option<&'a str>,
    sha256: Option<[u8; 32]>,
    tenant: &'a str,
    key: Option<Key>,
    at: [Place<'a>; 2],
}

pub(super) fn keys<'a>(
    root: &mut Table<'a>,
    policies: &Policies,
    listen: Option<SocketAddr>,
) -> Keys {
    let entries: Option<Vec<Entry<'a>>> = root.tables("keys", |table| entry(table, policies));
    if entries.as_ref().is_some_and(Vec::is_empty) {
        let place = root.place_of("keys");
        place.mistake("missing; nobody could call (`tallygate keys new` prints a [[keys]] block)");
    }
    let entries = entries.unwrap_or_default();
    let mut names = HashMap::new();
    let mut digests = HashMap::new();
    for (
        index,
        Entry {
            name,
            sha256,
            at: [at_name, at_digest],
            ..
        },
    ) in entries.iter().enumerate()
    {
        if let Some(first) = name.and_then(|name| first_with(&mut names, name, index)) {
            at_name.mistake(format!("the same name as keys[{first}]"));
        }
        if let Some(first) = sha256.and_then(|digest| first_with(&mut digests, digest, index)) {
            at_digest.mistake(format!("the same key as keys[{first}]"));
        }
        if *sha256 == Some(DEMO_KEY) && listen.is_some_and(|at| !at.ip().is_loopback()) {
            at_digest.warning("is the published demo key, and others can reach the listener");
        }
    }
    let tenants = entries
        .iter()
        .map(|entry| entry.tenant.to_owned())
        .collect();
    let all = entries.into_iter().filter_map(|entry| entry.key);
    Keys {
        all: all.map(|key| (key.sha256, Arc::new(key))).collect(),
        tenants,
    }
}

fn first_with<T: std::hash::Hash + Eq>(
    seen: &mut HashMap<T, usize>,
    value: T,
    index: usize,
) -> Option<usize> {
    let first = *seen.entry(value).or_insert(index);
    (first != index).then_some(first)
}

fn entry<'a>(table: &mut Table<'a>, policies: &Policies) -> Entry<'a> {
    let name = table.required("name", name);
    let tenant = table.or("tenant", DEFAULT_TENANT, self::name);
    let sha256 = table.required("sha256", digest);
    let policy = table.required("policy", |value| policies.bind(text(value)?));
    if let Some(Binding::Unusable(reason)) = &policy {
        let place = table.place_of("policy");
        place.warning(format!("{reason}; requests with this key are answered 503"));
    }
    let disabled = table.or("disabled", false, flag);
    let expires = table.optional("expires", instant);
    let everywhere = "an empty list would allow every address; remove it, or disable the key";
    let allow_from = table.filled_list("allow_from", everywhere, network);
    let everything = "an empty list would allow every endpoint; remove it, or disable the key";
    let endpoints = table.filled_list("endpoints", everything, one_of(Endpoint::NAMES));
    let key = name
        .zip(sha256)
        .zip(policy)
        .map(|((name, sha256), policy)| Key {
            name: name.into(),
            tenant: tenant.into(),
            sha256,
            policy,
            disabled,
            expires,
            allow_from: allow_from.unwrap_or_default(),
            endpoints: endpoints.unwrap_or_default(),
        });
    let at = [table.place_of("name"), table.place_of("sha256")];
    Entry {
        name,
        sha256,
        tenant,
        key,
        at,
    }
}

/// The budgets of the tenants, of which each must have a key: else the limit limits nobody.
pub(super) fn tenant_budgets(root: &mut Table<'_>, keys: &Keys) -> HashMap<Arc<str>, Budget> {
    let read = root.named("tenants", |tenant, table| {
        if !keys.tenants.iter().any(|known| known == tenant) {
            let known: BTreeSet<&str> = keys.tenants.iter().map(String::as_str).collect();
            let suggestion = suggestion(tenant, known);
            table
                .place()
                .mistake(format!("no key has the tenant {tenant:?}{suggestion}"));
        }
        Some((Arc::from(tenant), table.table("budget", budget::shared)?))
    });
    read.into_iter().flatten().flatten().collect()
}

pub(super) fn global_budget(root: &mut Table<'_>) -> Option<Budget> {
    root.table("global", |table| table.table("budget", budget::shared))
        .flatten()
}

const DEFAULT_TENANT: &str = "default";

/// SHA-256 of `tg-demo-key`, which the shipped configuration knows.
const DEMO_KEY: [u8; 32] = [
    0xe7, 0xaa, 0xb4, 0xb4, 0x39, 0xba, 0xa8, 0xc6, 0x15, 0xeb, 0x31, 0xe3, 0x52, 0xf5, 0xb4, 0x25,
    0x90, 0x85, 0x81, 0x3f, 0xbc, 0xd9, 0x5a, 0x65, 0xa5, 0xa3, 0x46, 0xa6, 0xbd, 0xfb, 0x1b, 0xb3,
];
