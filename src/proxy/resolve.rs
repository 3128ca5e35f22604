//! Which provider and which of its models a name means, and whether the key may use it.

use std::sync::Arc;

use super::{listings::Listed, live::Live, rejection::Rejection};
use crate::{
    config::{Alias, Dialect, Provider},
    engine::{
        guard::model_access::{Access, judge, judge_leading},
        policy::{Pattern, Policy, Role},
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

/// The places where a request may be answered, in the order in which they are tried.
#[derive(Debug, Clone)]
pub struct Routes {
    pub first: Target,
    pub further: Vec<Target>,
    /// The policy only observes; else the request would be refused.
    pub would_deny: bool,
}

impl Routes {
    fn only(target: Target) -> Self {
        Self {
            first: target,
            further: Vec::new(),
            would_deny: false,
        }
    }

    fn of(targets: impl IntoIterator<Item = Target>) -> Option<Self> {
        let mut targets = targets.into_iter();
        Some(Self {
            first: targets.next()?,
            further: targets.collect(),
            would_deny: false,
        })
    }

    fn observed(self, would_deny: bool) -> Self {
        Self { would_deny, ..self }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Target> {
        std::iter::once(&self.first).chain(&self.further)
    }

    pub fn count(&self) -> u32 {
        u32::try_from(self.further.len()).map_or(u32::MAX, |further| further.saturating_add(1))
    }

    /// Leaves those that `holds` is true of. `false`: of none, and nothing changes.
    pub fn retain(&mut self, holds: impl Fn(&Target) -> bool) -> bool {
        if !holds(&self.first) {
            let Some(at) = self.further.iter().position(&holds) else {
                return false;
            };
            self.first = self.further.remove(at);
            self.further.drain(..at);
        }
        self.further.retain(holds);
        true
    }

    /// Puts the first `count` last.
    pub fn pass_over(&mut self, count: u32) {
        for _ in 0..count.min(self.count() - 1) {
            let next = self.further.remove(0);
            let passed_over = std::mem::replace(&mut self.first, next);
            self.further.push(passed_over);
        }
    }

    /// Begins with the first that `holds` is true of, if it is true of any.
    pub fn prefer(&mut self, mut holds: impl FnMut(&Target) -> bool) {
        if self.further.is_empty() || holds(&self.first) {
            return;
        }
        if let Some(at) = self.further.iter().position(holds) {
            let preferred = self.further.remove(at);
            let passed_over = std::mem::replace(&mut self.first, preferred);
            self.further.push(passed_over);
        }
    }
}

/// # Errors
/// `ModelDenied` or `ModelNotFound`.
pub fn resolve(live: &Live, policy: &Policy, name: &str, now_ms: i64) -> Result<Routes, Rejection> {
    // A pattern is not a name, though it would match itself.
    if name.contains('*') {
        return Err(not_found(name));
    }
    let aliases = &live.config.aliases;
    if let Some(alias) = aliases.get(name).filter(|one| !one.routes.is_empty()) {
        return resolve_alias(live, policy, name, alias, now_ms);
    }
    let (provider, model) = place(live, name).ok_or_else(|| not_found(name))?;
    let scripted = provider.dialect == Dialect::Sandbox;
    if scripted && !sandbox::MODELS.contains(&model) {
        return Err(not_found(name));
    }
    let rates = live.rates(provider, &[model], now_ms);
    let known = rates.is_some() || live.config.aliases.contains_key(model);
    let access = judge(&policy.models, model);
    let would_deny = permit(policy, model, access, known)?;
    let known_as = aliases.get(model);
    let target = Target {
        provider: Arc::clone(provider),
        model: model.into(),
        rates,
        max_output: known_as.and_then(|alias| alias.max_output_tokens),
    };
    Ok(Routes::only(target).observed(would_deny))
}

/// Where requests in this role go. The model that the request names must be allowed all the
/// same, and so must each to which it is sent instead.
///
/// # Errors
/// `ModelDenied` or `ModelNotFound`.
pub fn of_role(
    live: &Live,
    policy: &Policy,
    (role, name): (&Role, &str),
    now_ms: i64,
) -> Result<Routes, Rejection> {
    let models = role.routes.iter().map(|route| &*route.model);
    let access = judge_leading(&policy.models, name, models);
    let would_deny = permit(policy, name, access, true)?;
    let targets = role.routes.iter().filter_map(|route| {
        let mut providers = live.config.providers.iter();
        let provider = providers.find(|one| one.name == route.provider)?;
        let known_as = live.config.aliases.get(&route.model);
        Some(Target {
            rates: live.rates(provider, &[&route.model], now_ms),
            provider: Arc::clone(provider),
            model: (*route.model).into(),
            max_output: known_as.and_then(|alias| alias.max_output_tokens),
        })
    });
    let routes = Routes::of(targets).ok_or_else(|| not_found(name))?;
    Ok(routes.observed(would_deny))
}

fn resolve_alias(
    live: &Live,
    policy: &Policy,
    name: &str,
    alias: &Alias,
    now_ms: i64,
) -> Result<Routes, Rejection> {
    let models = alias.routes.iter().map(|route| &*route.model);
    let access = judge_leading(&policy.models, name, models);
    let would_deny = permit(policy, name, access, true)?;
    let targets = alias.routes.iter().map(|route| Target {
        rates: live.rates(&route.provider, &[name, &route.model], now_ms),
        provider: Arc::clone(&route.provider),
        model: (*route.model).into(),
        max_output: alias.max_output_tokens,
    });
    let routes = Routes::of(targets).ok_or_else(|| not_found(name))?;
    Ok(routes.observed(would_deny))
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
            let routes = resolve(live, policy, &name, now_ms).ok()?;
            Some((name, routes.first))
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

/// Whether only observing lets it pass.
fn permit(policy: &Policy, name: &str, access: Access, known: bool) -> Result<bool, Rejection> {
    let model = || name.to_owned();
    match access {
        Access::Allowed => Ok(false),
        _ if policy.models.observe => Ok(true),
        // A name that exists nowhere is told as such; one that does is told to be forbidden.
        Access::NotListed if !known => Err(Rejection::ModelNotFound { model: model() }),
        _ => Err(Rejection::ModelDenied { model: model() }),
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
