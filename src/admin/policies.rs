//! The rules in force: policies with the text of their files, the keys bound to them, and what
//! came of the last reading of the configuration.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use serde_json::{Value, json};

use super::{Console, Shared};
use crate::{
    config::{Config, Operator, PolicyFile},
    engine::policy::{Binding, Key, Status},
};

/// `GET /admin/v1/policies`.
pub(super) async fn all(State(console): State<Shared>) -> Json<Value> {
    let config = console.status.config();
    let mut files: Vec<_> = config.policy_files.iter().collect();
    files.sort_by(|a, b| {
        let (a, b) = (&a.policy, &b.policy);
        (&a.id, b.version).cmp(&(&b.id, a.version))
    });
    let policies: Vec<Value> = files.into_iter().map(|file| told(&config, file)).collect();
    let mut keys: Vec<_> = config.keys.values().collect();
    keys.sort_by(|a, b| a.name.cmp(&b.name));
    let keys: Vec<Value> = keys.into_iter().map(|key| key_told(key)).collect();
    Json(json!({
        "configuration": configuration(&console, &config),
        "policies": policies,
        "keys": keys,
    }))
}

/// `POST /admin/v1/reload`.
pub(super) async fn reload(
    State(console): State<Shared>,
    Extension(operator): Extension<Arc<Operator>>,
) -> Json<Value> {
    tracing::info!(operator = %operator.name, "asked to read the configuration again");
    console.status.reload();
    Json(configuration(&console, &console.status.config()))
}

fn configuration(console: &Console, config: &Config) -> Value {
    let state = console.status.configuration();
    let rejected = state
        .rejected
        .map(|(at, why)| json!({ "at": at, "problems": why.lines().collect::<Vec<_>>() }));
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    json!({
        "file": config.file,
        "in_force_since": state.in_force_since_ms,
        "rejected": rejected,
        "warnings": warnings,
    })
}

fn told(config: &Config, file: &PolicyFile) -> Value {
    let policy = &file.policy;
    let bound = |key: &&Arc<Key>| matches!(&key.policy, Binding::To(to) if Arc::ptr_eq(to, policy));
    let mut keys: Vec<&str> = config
        .keys
        .values()
        .filter(bound)
        .map(|key| &*key.name)
        .collect();
    keys.sort_unstable();
    json!({
        "id": policy.id,
        "version": policy.version,
        "status": match policy.status {
            Status::Draft => "draft",
            Status::Published => "published",
            Status::Archived => "archived",
        },
        "keys": keys,
        "file": file.file,
        "sha256": file.sha256,
        "text": file.text,
    })
}

fn key_told(key: &Key) -> Value {
    let (policy, unusable) = match &key.policy {
        Binding::To(policy) => (Some(&*policy.label), None),
        Binding::Unusable(reason) => (None, Some(&**reason)),
    };
    json!({
        "name": key.name,
        "tenant": key.tenant,
        "policy": policy,
        "unusable": unusable,
        "disabled": key.disabled,
        "expires": key.expires.map(|expires| expires.to_string()),
    })
}
