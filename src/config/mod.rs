//! The configuration in force: what the TOML files say, checked as a whole.
//!
//! This file has the types. `file` reads the main file with one module for each kind of section;
//! `reader` walks tables and finds unknown members, `values` understands single values, `loading`
//! collects what was found. Reading them is all this does: prices are resolved, stores opened
//! and policies applied elsewhere.

mod budget;
mod digest;
mod file;
mod keys;
mod loading;
mod models;
mod operators;
mod policies;
mod providers;
mod reader;
mod runs;
mod secret;
mod server;
mod suspects;
mod telemetry;
mod text;
mod tools;
mod unenforced;
mod urls;
mod values;
mod webhook;

#[cfg(test)]
mod tests;

pub use self::{telemetry::Telemetry, values::check_name};

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::engine::{
    contract::Contracts,
    failover::BreakerRules,
    policy::{Broken, Budget, Edition, Key, Policy, Seals},
    pricing::OperatorPrice,
};

/// Everything the process runs by. Built whole or not at all; swapped in one step on reload.
#[derive(Debug)]
pub struct Config {
    /// The main file, as given.
    pub file: PathBuf,
    pub server: Server,
    pub store: Store,
    pub durability: Durability,
    pub approvals: Approvals,
    pub webhook: Option<Arc<Webhook>>,
    /// `None`: no traces are sent.
    pub telemetry: Option<Arc<Telemetry>>,
    /// In the order of the file.
    pub providers: Vec<Arc<Provider>>,
    pub aliases: HashMap<Box<str>, Alias>,
    pub keys: HashMap<[u8; 32], Arc<Key>>,
    /// By the SHA-256 of their tokens.
    pub operators: HashMap<[u8; 32], Arc<Operator>>,
    /// All versions found in `policies_dir`.
    pub policies: Vec<Arc<Policy>>,
    /// `[tools.…]`: what is known of tools, for all policies.
    pub contracts: Arc<Contracts>,
    pub tenant_budgets: HashMap<Arc<str>, Budget>,
    pub global_budget: Option<Budget>,
    /// The policies with the files that they stand in.
    pub policy_files: Vec<PolicyFile>,
    /// A newer price table (same form as the bundled one) instead of the bundled one.
    pub price_table: Option<PathBuf>,
    /// What is odd but no mistake: told at start and by `tallygate check`.
    pub warnings: Vec<Problem>,
    /// What was read or looked for, directories too: a change there may change this.
    pub sources: Vec<PathBuf>,
}

/// A policy version and its file.
#[derive(Debug, Clone)]
pub struct PolicyFile {
    pub policy: Arc<Policy>,
    pub file: PathBuf,
    /// What it says but for its status, as SHA-256 in hexadecimal.
    pub sha256: String,
    /// As written, for people.
    pub text: Box<str>,
}

impl PolicyFile {
    pub fn edition(&self) -> Edition {
        Edition {
            id: self.policy.id.to_string(),
            version: self.policy.version,
            status: self.policy.status,
            sha256: self.sha256.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub listen: SocketAddr,
    pub admin_listen: SocketAddr,
    pub max_request_body: u64,
    /// Data-plane threads, each with a runtime of its own. Default: one for each core.
    pub workers: usize,
    /// How long a drain waits for open requests after SIGTERM.
    pub drain_timeout: Duration,
    /// Origins that browsers may call from; empty: CORS is off.
    pub cors_origins: Vec<String>,
    /// Where people reach the console, if that is not `admin_listen`.
    pub console_url: Option<url::Url>,
    /// More names that the control plane answers to.
    pub admin_hosts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    pub url: StoreUrl,
    pub on_down: OnDown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    Sqlite(PathBuf),
}

/// While the store does not answer. In neither case is a budget passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDown {
    /// Every request that would be admitted is refused instead (503).
    Refuse,
    /// Budgets: what the store has written down as taken by this process may be used up, the
    /// next request is refused (503). Limits by the minute: each process goes on by its own
    /// count, so that N processes admit up to N times the limit. Keys without limits go on.
    /// Records wait in memory, up to a bound at which all is refused.
    Local,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Batched,
    BeforeRelease,
}

/// `[approvals]`: how long people have, and who is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approvals {
    /// How long a client may wait on the open connection; zero answers "pending" at once.
    pub wait: Duration,
    /// An approval that nobody decided by then is denied.
    pub expires: Duration,
}

/// `[approvals.webhook]`: who is told of calls that wait.
#[derive(Debug)]
pub struct Webhook {
    /// `Err`: where a URL was looked for in vain, such as `env APPROVALS_URL`.
    pub url: Result<url::Url, String>,
    /// Signs what is sent and the links in it. Without it nothing is sent and no link works.
    pub secret: ApiKey,
    /// Whether what a call would do is sent along.
    pub include_arguments: bool,
}

impl Webhook {
    /// For people and logs: the host alone, since the path may hold a secret.
    pub fn host(&self) -> &str {
        let url = self.url.as_ref().ok();
        url.and_then(url::Url::host_str).unwrap_or("nowhere")
    }
}

/// Somebody who may use the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    pub name: Arc<str>,
    pub role: Role,
}

/// What an operator may do. Each may do what the ones before may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Looks at everything but what calls hold.
    Viewer,
    /// Sees the arguments of calls that wait, and decides.
    Approver,
    /// Changes how the process runs.
    Operator,
}

impl Role {
    pub const NAMES: &[(&'static str, Self)] = &[
        ("viewer", Self::Viewer),
        ("approver", Self::Approver),
        ("operator", Self::Operator),
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Operator => "operator",
        }
    }
}

#[derive(Debug)]
pub struct Provider {
    pub name: Arc<str>,
    pub dialect: Dialect,
    /// Without a final slash. Empty for the sandbox.
    pub base_url: Option<url::Url>,
    pub api_key: ApiKey,
    pub connect_timeout: Duration,
    pub first_byte_timeout: Duration,
    pub idle_timeout: Duration,
    /// Lower-case names of client headers that are let through.
    pub forward_headers: Vec<http::HeaderName>,
    /// Plain model names that go to this provider; `None`: any that no other provider claims.
    pub models: Option<Vec<crate::engine::policy::Pattern>>,
    /// Whether a stream may be asked for `stream_options.include_usage` (some servers answer 400).
    pub stream_usage: bool,
    /// The request member in which this upstream obeys an output cap.
    pub cap_member: CapMember,
    pub http: HttpVersion,
    pub breaker: BreakerRules,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    OpenAi,
    Sandbox,
}

/// The member that carries the output cap upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapMember {
    /// The one the client used; `max_completion_tokens` when it named none.
    AsClient,
    MaxTokens,
    MaxCompletionTokens,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/2 where TLS negotiates it, else HTTP/1.1.
    Auto,
    Http1,
    /// HTTP/2 also without TLS (prior knowledge).
    Http2,
}

/// A provider's credential, as found when the configuration was loaded.
#[derive(Debug)]
pub enum ApiKey {
    /// The provider takes none.
    None,
    Found(Secret),
    /// Named in the file but not there: requests are answered 503 `provider_unavailable`.
    /// Holds what was looked for, such as `env OPENAI_API_KEY`.
    Missing(String),
}

/// A text that must not be shown. `Debug` is masked.
pub struct Secret(String);

impl Secret {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// `[models.NAME]`: an alias with its routes in order, or a priced plain name without routes.
#[derive(Debug)]
pub struct Alias {
    pub routes: Vec<Route>,
    pub price: Option<OperatorPrice>,
    /// The model's own longest answer, in tokens.
    pub max_output_tokens: Option<u64>,
}

/// `provider/model`, the provider being one of the configuration's.
#[derive(Debug, Clone)]
pub struct Route {
    pub provider: Arc<Provider>,
    pub model: Box<str>,
}

/// Every mistake that was found, ready to print: one line each.
#[derive(Debug)]
pub struct ConfigError {
    pub problems: Vec<Problem>,
    /// What was read or looked for until then.
    pub sources: Vec<PathBuf>,
}

/// One mistake or oddity: where, what, and how it would be right. Displayed as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub file: PathBuf,
    /// 1-based; absent where the mistake has no place, as in a file that is not there.
    pub position: Option<(usize, usize)>,
    /// Such as `keys[0].polcy`.
    pub path: String,
    pub message: String,
}

impl Config {
    /// Checks published versions against what they said when they were published; gives those
    /// that are new or have another status since.
    ///
    /// # Errors
    /// Every published version whose file says something else now, with the fix.
    pub fn check_seals(&self, seals: &Seals) -> Result<Vec<Edition>, ConfigError> {
        let editions: Vec<Edition> = self.policy_files.iter().map(PolicyFile::edition).collect();
        seals.check(&editions).map_err(|broken| ConfigError {
            problems: broken
                .iter()
                .map(|broken| self.seal_problem(broken))
                .collect(),
            sources: self.sources.clone(),
        })
    }

    fn seal_problem(&self, broken: &Broken) -> Problem {
        let Broken { id, version, free } = broken;
        let of = |file: &&PolicyFile| *file.policy.id == **id && file.policy.version == *version;
        let file = self.policy_files.iter().find(of);
        Problem {
            file: file.map(|found| found.file.clone()).unwrap_or_default(),
            position: None,
            path: "version".to_owned(),
            message: format!(
                "version {version} of {id:?} was published with other content, and a published \
                 version never changes; bump version to {free}"
            ),
        }
    }

    /// Reads a policy that stands anywhere, as if it belonged to this configuration.
    ///
    /// # Errors
    /// All mistakes in it.
    pub fn policy_in(&self, file: &Path) -> Result<Arc<Policy>, ConfigError> {
        policies::of_file(self, file).map(Arc::new)
    }

    /// Reads the file and everything it names.
    ///
    /// # Errors
    /// All mistakes at once; never a half configuration.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::load_with(file, &|name| std::env::var(name).ok())
    }

    /// The same with an environment handed in, of which the same files make the same
    /// configuration.
    ///
    /// # Errors
    /// As `load`.
    pub fn load_with(
        file: &Path,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        file::load(file, environment)
    }
}

impl Provider {
    /// The URL of a path such as `chat/completions`. `None` for the sandbox.
    pub fn url(&self, path: &str) -> Option<String> {
        let base = self.base_url.as_ref()?.as_str().trim_end_matches('/');
        Some(format!("{base}/{path}"))
    }
}
