//! What a policy and a key say, as plain checked data.
//!
//! `config` builds these from TOML; a value that would make no sense cannot be
//! expressed. Nothing here reads a file, a clock or the network.

mod seals;
mod tools;

use std::{num::NonZeroU64, sync::Arc};

use super::{
    failover::RetryRules,
    money::Money,
    run::{LoopRules, RunRules},
};

pub use self::seals::{Broken, Edition, Seals};
pub use self::tools::{ALLOW, Batch, DENY, OnBlock, OnOffer, ToolRules};

/// The rules one or more keys are bound to: one file in `policies_dir`.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub id: Arc<str>,
    pub version: u32,
    /// `id@version`, as records and answers name it.
    pub label: Arc<str>,
    pub status: Status,
    pub models: ModelRules,
    pub limits: RateLimits,
    pub budget: Budget,
    pub input: InputRules,
    pub tools: Arc<ToolRules>,
    pub run: RunRules,
    pub loops: LoopRules,
    pub retry: RetryRules,
    pub roles: Vec<Role>,
}

impl Policy {
    pub fn role(&self, name: &str) -> Option<&Role> {
        self.roles.iter().find(|role| &*role.name == name)
    }

    /// Whether it bounds what a run may do.
    pub fn bounds_runs(&self) -> bool {
        self.run != RunRules::default() || !self.loops.is_empty()
    }
}

/// `[roles.NAME]`: where requests of an agent in this role go, whatever model they name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    pub name: Box<str>,
    /// In the order in which they are tried. Not empty.
    pub routes: Vec<RoleRoute>,
}

/// A model of a provider, both by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleRoute {
    pub provider: Arc<str>,
    pub model: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Draft,
    Published,
    Archived,
}

impl Status {
    pub const NAMES: &[(&'static str, Self)] = &[
        ("draft", Self::Draft),
        ("published", Self::Published),
        ("archived", Self::Archived),
    ];

    pub fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(_, status)| *status == self);
        named.map_or("", |(name, _)| name)
    }

    pub fn of(name: &str) -> Option<Self> {
        let named = Self::NAMES.iter().find(|(known, _)| *known == name);
        named.map(|(_, status)| *status)
    }
}

/// Which models a key may name. `deny` wins over `allow`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelRules {
    /// `None`: every configured model. `Some([])`: none.
    pub allow: Option<Vec<Pattern>>,
    pub deny: Vec<Pattern>,
    /// Record what would be refused, and let it pass.
    pub observe: bool,
}

/// An exact name, or `prefix-*`: everything that begins with `prefix-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    Exact(Box<str>),
    Prefix(Box<str>),
}

impl Pattern {
    /// Reads `name` or `prefix*`. `None` for an empty text, a lone `*` inside a name, or
    /// surrounding white space.
    pub fn parse(text: &str) -> Option<Self> {
        let (stem, prefix) = match text.strip_suffix('*') {
            Some(stem) => (stem, true),
            None => (text, false),
        };
        if stem.contains('*') || stem.trim() != stem || (stem.is_empty() && !prefix) {
            return None;
        }
        Some(if prefix {
            Self::Prefix(stem.into())
        } else {
            Self::Exact(stem.into())
        })
    }

    /// The same in lower case, for rules that must catch every spelling.
    pub fn folded(&self) -> Self {
        match self {
            Self::Exact(exact) => Self::Exact(exact.to_lowercase().into()),
            Self::Prefix(prefix) => Self::Prefix(prefix.to_lowercase().into()),
        }
    }

    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => &**exact == name,
            Self::Prefix(prefix) => name.starts_with(&**prefix),
        }
    }
}

/// `[limits]`: each counts for one key. Absent: no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RateLimits {
    pub requests_per_minute: Option<NonZeroU64>,
    pub tokens_per_minute: Option<NonZeroU64>,
    pub parallel_requests: Option<NonZeroU64>,
    /// How many requests may arrive at once before they are spread over the minute (governor).
    pub burst: Option<NonZeroU64>,
    /// Record what would be refused, and let it pass.
    pub observe: bool,
}

/// `[budget]`: each counts for one key (tenant, or all). Absent: no limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    pub daily: Amounts,
    pub monthly: Amounts,
    pub total: Amounts,
    pub calendar: Calendar,
    pub enforcement: Enforcement,
    /// No answer is longer than this, in tokens.
    pub max_output_tokens: Option<NonZeroU64>,
    /// The cap when the client names none. Absent: `max_output_tokens`.
    pub default_output_tokens: Option<NonZeroU64>,
    /// If less than this still fits, the request is refused.
    pub min_output_tokens: u64,
    /// Record what its amounts would refuse, and let it pass. Output caps hold all the same.
    pub observe: bool,
}

/// The limits of one window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amounts {
    pub cost: Option<Money>,
    pub tokens: Option<u64>,
    pub requests: Option<u64>,
}

/// When a budget day begins: a time zone and an hour of reset.
#[derive(Debug, Clone, PartialEq)]
pub struct Calendar {
    pub zone: jiff::tz::TimeZone,
    pub reset_at: jiff::civil::Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcement {
    /// The whole worst case is reserved before anything is sent.
    Exact,
    /// Streams begin with a small reservation that grows as their text comes, and are cut where a
    /// limit leaves no more. Whole answers are reserved for as by `Exact`: they cannot be cut.
    Elastic,
}

/// `[input]`: what a request may hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InputRules {
    /// Characters in all message texts together.
    pub max_chars: Option<u64>,
    pub unsupported_patterns: Vec<Box<str>>,
    /// Found: warned about and recorded, not refused.
    pub sensitive_patterns: Vec<Box<str>>,
}

/// A client key, known by its digest alone.
#[derive(Debug, Clone)]
pub struct Key {
    pub name: Arc<str>,
    pub tenant: Arc<str>,
    /// SHA-256 of the key text.
    pub sha256: [u8; 32],
    pub policy: Binding,
    pub disabled: bool,
    pub expires: Option<jiff::Timestamp>,
    /// Empty: from anywhere.
    pub allow_from: Vec<ipnet::IpNet>,
    /// Empty: every served endpoint.
    pub endpoints: Vec<Endpoint>,
}

/// What the key's `policy` member resolved to when the configuration was loaded.
#[derive(Debug, Clone)]
pub enum Binding {
    To(Arc<Policy>),
    /// Archived, a draft, or not there: every request is refused with this reason.
    Unusable(Box<str>),
}

/// The endpoints a key can be held to, by the names used in `endpoints = [...]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    Chat,
    Responses,
    Models,
}

impl Endpoint {
    pub const NAMES: &[(&'static str, Self)] = &[
        ("chat", Self::Chat),
        ("responses", Self::Responses),
        ("models", Self::Models),
    ];
}

impl Amounts {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Budget {
    /// The longest answer where a limit needs one and neither client nor policy names any. Tokens.
    pub const ASSUMED_OUTPUT: u64 = 4096;

    /// No limit at all; what a policy without a `[budget]` table says.
    pub fn none() -> Self {
        Self {
            daily: Amounts::default(),
            monthly: Amounts::default(),
            total: Amounts::default(),
            calendar: Calendar::utc(),
            enforcement: Enforcement::Exact,
            max_output_tokens: None,
            default_output_tokens: None,
            min_output_tokens: 16,
            observe: false,
        }
    }

    pub fn limits_cost(&self) -> bool {
        [&self.daily, &self.monthly, &self.total]
            .iter()
            .any(|amounts| amounts.cost.is_some())
    }

    pub fn limits_tokens(&self) -> bool {
        [&self.daily, &self.monthly, &self.total]
            .iter()
            .any(|amounts| amounts.tokens.is_some())
    }
}

impl Calendar {
    pub fn utc() -> Self {
        Self {
            zone: jiff::tz::TimeZone::UTC,
            reset_at: jiff::civil::Time::midnight(),
        }
    }
}
