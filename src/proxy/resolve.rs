//! Which provider and which of its models a name means, and whether the key may use it.

use std::sync::Arc;

use super::{listings::Listed, live::Live, rejection::Rejection};
use crate::{
    config::{Dialect, Provider},
    engine::{
        guard::model_access::{Access, judge},
        policy::{ModelRules, Pattern, Policy},
        pricing::RatesAt,
    },
    provider::sandbox,
};

/// Where a request goes.
#[derive(Debug, Clone)]
pub struct Target {
    pub provider: Arc<Provider>,
    /// The name at the provider.
    pub model: Arc<str>,
    pub rates: Option<Arc<RatesAt>>,
    /// The model's own longest answer, if it is known.
    pub max_output: Option<u64>,
}

/// # Errors
/// `ModelDenied` or `ModelNotFound`.
pub fn resolve(live: &Live, policy: &Policy, name: &str, now_ms: i64) -> Result<Target, Rejection> {
    // A pattern is not a name, though it would match itself.
    if name.contains('*') {
        return Err(not_found(name));
    }
    if let Some(alias) = live
        .config
        .aliases
        .get(name)
        .filter(|alias| !alias.routes.is_empty())
    {
        let denied = alias
            .routes
            .iter()
            .any(|route| judge(&deny_only(&policy.models), &route.model) == Access::Denied);
        permit(policy, name, denied, true)?;
        let route = alias.routes.first().ok_or_else(|| not_found(name))?;
        let model: Arc<str> = (*route.model).into();
        return Ok(Target {
            rates: live.rates(&route.provider, &[name, &model], now_ms),
            provider: Arc::clone(&route.provider),
            model,
            max_output: alias.max_output_tokens,
        });
    }
    let (provider, model) = place(live, name).ok_or_else(|| not_found(name))?;
    let scripted = provider.dialect == Dialect::Sandbox;
    if scripted && !sandbox::MODELS.contains(&model) {
        return Err(not_found(name));
    }
    let rates = live.rates(provider, &[model], now_ms);
    let known = rates.is_some() || live.config.aliases.contains_key(model);
    permit(policy, model, false, known)?;
    let own = live
        .config
        .aliases
        .get(model)
        .and_then(|alias| alias.max_output_tokens);
    Ok(Target {
        provider: Arc::clone(provider),
        model: model.into(),
        rates,
        max_output: own,
    })
}

/// The models a key may use, as far as they have names: aliases, exact names of its allow list,
/// the sandbox's, and what providers told in `listed`.
pub fn usable(
    live: &Live,
    policy: &Policy,
    listed: &[Listed],
    now_ms: i64,
) -> Vec<(String, Target)> {
    let mut names: Vec<String> = live
        .config
        .aliases
        .keys()
        .map(ToString::to_string)
        .collect();
    let allowed = policy.models.allow.iter().flatten();
    names.extend(allowed.filter_map(|pattern| match pattern {
        Pattern::Exact(name) => Some(name.to_string()),
        Pattern::Prefix(_) => None,
    }));
    let providers = &live.config.providers;
    if providers.iter().any(|one| one.dialect == Dialect::Sandbox) {
        names.extend(sandbox::MODELS.iter().map(|name| (*name).to_owned()));
    }
    for one in listed {
        let public = |model| name_of(live, &one.provider, model);
        names.extend(one.names.iter().map(|model| public(model)));
    }
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter_map(|name| {
            let target = resolve(live, policy, &name, now_ms).ok()?;
            Some((name, target))
        })
        .collect()
}

/// What a client must write to reach this model of this provider.
fn name_of(live: &Live, provider: &Arc<Provider>, model: &str) -> String {
    let aliases = &live.config.aliases;
    let leads_elsewhere = aliases
        .get(model)
        .is_some_and(|alias| !alias.routes.is_empty());
    let found = place(live, model);
    let reached = found.is_some_and(|(at, name)| Arc::ptr_eq(at, provider) && name == model);
    if reached && !leads_elsewhere {
        model.to_owned()
    } else {
        format!("{}/{model}", provider.name)
    }
}

fn permit(policy: &Policy, name: &str, route_denied: bool, known: bool) -> Result<(), Rejection> {
    let model = name.to_owned();
    match judge(&policy.models, name) {
        Access::Allowed if !route_denied => Ok(()),
        // A name that exists nowhere is told as such; one that does is told to be forbidden.
        Access::NotListed if !known => Err(Rejection::ModelNotFound { model }),
        _ => Err(Rejection::ModelDenied { model }),
    }
}

fn deny_only(rules: &ModelRules) -> ModelRules {
    ModelRules {
        allow: None,
        deny: rules.deny.clone(),
    }
}

fn not_found(name: &str) -> Rejection {
    Rejection::ModelNotFound {
        model: name.to_owned(),
    }
}

/// `provider/model`, or a plain name and the first provider that takes it.
fn place<'a>(live: &'a Live, name: &'a str) -> Option<(&'a Arc<Provider>, &'a str)> {
    let providers = &live.config.providers;
    if let Some((prefix, model)) = name.split_once('/')
        && let Some(provider) = providers.iter().find(|provider| &*provider.name == prefix)
    {
        return Some((provider, model));
    }
    let claims = |provider: &&Arc<Provider>| {
        provider
            .models
            .iter()
            .flatten()
            .any(|pattern| pattern.matches(name))
    };
    let sandbox = |provider: &&Arc<Provider>| {
        provider.dialect == Dialect::Sandbox && name.starts_with("sandbox-")
    };
    let open = |provider: &&Arc<Provider>| {
        provider.dialect != Dialect::Sandbox && provider.models.is_none()
    };
    let found = providers
        .iter()
        .find(claims)
        .or_else(|| providers.iter().find(sandbox));
    found
        .or_else(|| providers.iter().find(open))
        .map(|provider| (provider, name))
}
