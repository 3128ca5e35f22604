//! The policy files, and what a key's `policy` leads to.

use std::{fs, path::Path, sync::Arc};

use toml::de::DeValue;

use super::{
    Config, ConfigError, PolicyFile, budget, digest,
    loading::{Document, Loading, cannot_read},
    providers::Providers,
    reader::{Place, Table},
    runs,
    text::suggestion,
    tools::{self, MODES},
    unenforced,
    values::{
        check_name, count, flag, needle, one_of, pattern, policy_id, positive, text, timeout,
    },
};
use crate::engine::{
    contract::Contracts,
    failover::RetryRules,
    policy::{
        Binding, InputRules, ModelRules, Pattern, Policy, RateLimits, Role, RoleRoute, Status,
    },
};

/// All policy versions there are.
pub(super) struct Policies {
    pub all: Vec<Arc<Policy>>,
    /// The same with their files.
    pub files: Vec<PolicyFile>,
    /// Whether each file told at least its id, version and status.
    complete: bool,
}

impl Policies {
    /// Reads every `*.toml` of the directory that is named at `place`, in the order of the names.
    pub fn read(
        place: &Place<'_>,
        directory: &str,
        providers: &Providers<'_>,
        contracts: &Contracts,
    ) -> Self {
        let loading = place.document().loading;
        let directory = place.document().beside(Path::new(directory));
        loading.source(&directory);
        let files = toml_files(&directory).map_err(|error| {
            place.mistake(format!("{} {}", directory.display(), cannot_read(&error)));
        });
        let mut policies = Self {
            all: Vec::new(),
            files: Vec::new(),
            complete: files.is_ok(),
        };
        let files = files.unwrap_or_default();
        for file in files {
            let read = Document::open(loading, &file).and_then(|document| {
                let policy = document
                    .read(|table| policy(table, &policies, providers, contracts))
                    .flatten()?;
                Some(PolicyFile {
                    policy: Arc::new(policy),
                    file: file.clone(),
                    sha256: digest::of_policy(document.text(), &[])?,
                    text: document.text().into(),
                })
            });
            match read {
                Some(read) => {
                    policies.all.push(Arc::clone(&read.policy));
                    policies.files.push(read);
                }
                None => policies.complete = false,
            }
        }
        policies
    }

    /// `id`: the newest published version; `id@2`: that one.
    pub fn bind(&self, reference: &str) -> Result<Binding, String> {
        let (id, pin) = match reference.split_once('@') {
            None => (reference, None),
            Some((id, version)) => (
                id,
                Some(version.parse().map_err(|_| {
                    format!("{reference:?} is no policy; write \"ID\" or \"ID@VERSION\"")
                })?),
            ),
        };
        let mut versions: Vec<_> = self.all.iter().filter(|policy| &*policy.id == id).collect();
        versions.sort_by_key(|policy| policy.version);
        let found = match pin {
            Some(pin) => versions.iter().find(|policy| policy.version == pin),
            None => versions
                .iter()
                .rfind(|policy| policy.status == Status::Published),
        };
        match found {
            Some(policy) => Ok(binding(policy)),
            None if !self.complete => Ok(Binding::Unusable("its file has mistakes".into())),
            None if versions.is_empty() => Err(self.no_policy(id)),
            None => no_version(id, pin, &versions),
        }
    }

    fn no_policy(&self, id: &str) -> String {
        let mut ids: Vec<&str> = self.all.iter().map(|policy| &*policy.id).collect();
        ids.dedup();
        format!("no policy {id:?} in policies_dir{}", suggestion(id, ids))
    }
}

/// Reads a policy that need not stand in `policies_dir`, beside the rest of this configuration.
pub(super) fn of_file(config: &Config, file: &Path) -> Result<Policy, ConfigError> {
    let loading = Loading::new(&|_| None);
    let providers = Providers {
        all: config.providers.clone(),
        names: config.providers.iter().map(|one| &*one.name).collect(),
    };
    let none = Policies {
        all: Vec::new(),
        files: Vec::new(),
        complete: true,
    };
    let read = Document::open(&loading, file).and_then(|document| {
        let read = |table: &mut Table<'_>| policy(table, &none, &providers, &config.contracts);
        document.read(read).flatten()
    });
    loading.checked(read)
}

fn binding(policy: &Arc<Policy>) -> Binding {
    let state = match policy.status {
        Status::Published => return Binding::To(policy.clone()),
        Status::Draft => "a draft",
        Status::Archived => "archived",
    };
    Binding::Unusable(format!("policy {}@{} is {state}", policy.id, policy.version).into())
}

fn no_version(id: &str, pin: Option<u32>, versions: &[&Arc<Policy>]) -> Result<Binding, String> {
    let Some(pin) = pin else {
        return Ok(Binding::Unusable(
            format!("policy {id} has no published version").into(),
        ));
    };
    let known: Vec<String> = versions
        .iter()
        .map(|policy| policy.version.to_string())
        .collect();
    Err(format!(
        "policy {id:?} has no version {pin}; known: {}",
        known.join(", ")
    ))
}

fn toml_files(directory: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        // Editors keep locks and half-written copies under names that begin with a dot.
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden
            && path
                .extension()
                .is_some_and(|extension| extension == "toml")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn policy(
    table: &mut Table<'_>,
    others: &Policies,
    providers: &Providers<'_>,
    contracts: &Contracts,
) -> Option<Policy> {
    table.refuse_idle(unenforced::IN_POLICY_FILES);
    let id = table.required("id", policy_id);
    let version = table.required("version", version);
    let status = table.required("status", one_of(Status::NAMES));
    let models = table.section("models", |table| model_rules(table, providers));
    let limits = table.section("limits", rate_limits);
    let budget = table.section("budget", budget::of_policy);
    let input = table.section("input", input_rules);
    let run = table.section("run", runs::run);
    let loops = table.section("loops", runs::loops);
    let retry = table.section("retry", retry_rules);
    let roles = table.named("roles", |name, table| role(name, table, providers));
    let tools = table.section("tools", |table| tools::rules(table, contracts));
    let (id, version) = (id?, version?);
    if others
        .all
        .iter()
        .any(|other| *other.id == *id && other.version == version)
    {
        let place = table.place_of("version");
        place.mistake(format!(
            "version {version} of {id:?} is in another file too; give a new one"
        ));
    }
    Some(Policy {
        label: format!("{id}@{version}").into(),
        id: id.into(),
        version,
        status: status?,
        models: models?,
        limits: limits?,
        budget: budget?,
        input: input?,
        tools: Arc::new(tools?),
        run: run?,
        loops: loops?,
        retry: retry?,
        roles: roles.into_iter().flatten().flatten().collect(),
    })
}

fn version(value: &DeValue<'_>) -> Result<u32, String> {
    u32::try_from(positive(value)?.get()).map_err(|_| format!("must be at most {}", u32::MAX))
}

fn model_rules(table: &mut Table<'_>, providers: &Providers<'_>) -> ModelRules {
    let rules = ModelRules {
        allow: table.list("allow", pattern),
        deny: table.list("deny", pattern).unwrap_or_default(),
        observe: table.or("mode", false, one_of(MODES)),
    };
    let patterns = [
        ("allow", rules.allow.as_deref()),
        ("deny", Some(&*rules.deny)),
    ];
    for (list, patterns) in patterns {
        for pattern in patterns.into_iter().flatten() {
            let (Pattern::Exact(name) | Pattern::Prefix(name)) = pattern;
            if let Some((provider, plain)) = providers.prefix_of(name) {
                table.place_of(list).warning(format!(
                    "{name:?} begins with the provider {provider:?}, which is taken off before a \
                     model is judged; {plain:?} may be meant"
                ));
            }
        }
    }
    rules
}

fn rate_limits(table: &mut Table<'_>) -> RateLimits {
    let limits = RateLimits {
        requests_per_minute: table.optional("requests_per_minute", positive),
        tokens_per_minute: table.optional("tokens_per_minute", positive),
        parallel_requests: table.optional("parallel_requests", positive),
        burst: table.optional("burst", positive),
        observe: table.or("mode", false, one_of(MODES)),
    };
    let complaint = match (limits.burst, limits.requests_per_minute) {
        (Some(_), None) if !table.has("requests_per_minute") => {
            Some("spreads requests_per_minute, which is missing")
        }
        (Some(burst), Some(minute)) if burst > minute => Some("is more than requests_per_minute"),
        _ => None,
    };
    if let Some(complaint) = complaint {
        table.place_of("burst").mistake(complaint);
    }
    limits
}

fn retry_rules(table: &mut Table<'_>) -> RetryRules {
    let default = RetryRules::default();
    let most = table.optional("max_retries", count);
    let backoff = table.optional("backoff", timeout);
    RetryRules {
        max_retries: most.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        backoff_ms: backoff.map_or(default.backoff_ms, |backoff| {
            u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX)
        }),
        after_timeout: table.or("after_timeout", default.after_timeout, flag),
    }
}

fn role(name: &str, table: &mut Table<'_>, providers: &Providers<'_>) -> Option<Role> {
    if let Err(message) = check_name(name) {
        table.place().mistake(message);
    }
    let empty = "an empty list leads nowhere";
    let routes = table.filled_list("routes", empty, |value| providers.route(text(value)?));
    if !table.has("routes") {
        table.place().mistake("routes are missing");
    }
    let routes = routes?.into_iter().flatten().map(|route| RoleRoute {
        provider: Arc::clone(&route.provider.name),
        model: route.model,
    });
    let role = Role {
        name: name.into(),
        routes: routes.collect(),
    };
    (!role.routes.is_empty()).then_some(role)
}

fn input_rules(table: &mut Table<'_>) -> InputRules {
    InputRules {
        max_chars: table.optional("max_chars", positive).map(u64::from),
        unsupported_patterns: table
            .list("unsupported_patterns", needle)
            .unwrap_or_default(),
        sensitive_patterns: table.list("sensitive_patterns", needle).unwrap_or_default(),
    }
}
