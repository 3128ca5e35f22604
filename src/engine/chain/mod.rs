//! The questions put to every tool call that a model proposes, in their one order; the first
//! "no" ends it.
//!
//! Whoever takes calls out of an answer (chat, Responses) makes a `Call` of each, asks
//! `CallGuard::judge`, and sends on what passed, written from `Judgement::arguments`. One file
//! for each layer: `whole`, `offered`, `allowed`, `tenant`, `schema`, `arguments`; `wrapper` has
//! the calls that hold other calls.

mod allowed;
mod approval;
mod arguments;
mod facts;
mod judge;
mod loops;
mod notice;
mod offered;
mod order;
mod ruling;
mod schema;
mod tenant;
#[cfg(test)]
mod tests;
mod whole;
mod wrapper;

use std::sync::Arc;

use serde::Serialize;

pub use self::{
    facts::{Conversation, Facts},
    notice::{guard_object, notice},
    offered::{Offered, OfferedTool},
    ruling::{Docket, Paused, Ruled, Ruling},
    whole::is_tool_name,
    wrapper::is_name as is_wrapper,
};
use super::{
    contract::Contracts,
    json::Json,
    names::clean_name,
    policy::ToolRules,
    run::{Made, OnReplay, Token},
};

/// A call as the model proposed it, whole, decoded, not yet judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub kind: CallKind,
    /// As it will be sent on. Empty: the model gave none.
    pub id: String,
    pub name: String,
    /// Responses: a name is unique only within its namespace.
    pub namespace: Option<String>,
    /// Function calls: the JSON text of the arguments. Custom calls: free text. Items: the
    /// canonical JSON of the action.
    pub arguments: String,
    /// Why the pieces make no call, if they do not: it is blocked at the first layer.
    pub fault: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallKind {
    Function,
    Custom,
    /// A Responses item that is a call by its type, such as `local_shell`; judged by the name
    /// `type:local_shell`.
    Item(Box<str>),
}

/// Everything a judgement may know: the policy's rules, the contracts, and facts of one
/// authenticated request. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CallGuard {
    pub tenant: Arc<str>,
    /// `id@version`.
    pub policy: Arc<str>,
    pub rules: Arc<ToolRules>,
    pub contracts: Arc<Contracts>,
    pub offered: Arc<Offered>,
    pub facts: Arc<Facts>,
}

/// The answer to one call.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// What the call was judged as: `search.web`, `namespace.name`, `type:local_shell`.
    pub tool: String,
    /// One for each layer that was asked, in order, and one more for each finding in it that
    /// only warns.
    pub results: Vec<GuardResult>,
    /// What to send on: the text of a function's arguments as it came, since only texts that
    /// every reader reads alike get this far, and `{}` for none; other kinds as they came.
    pub arguments: String,
    /// SHA-256 of the arguments in canonical form, in hexadecimal; of the bytes if they have none.
    pub digest: String,
    pub blocked: Option<Block>,
    /// The rule by which a person has to decide, if nothing else speaks against the call.
    pub paused: Option<String>,
    /// The approval that decided.
    pub approval: Option<String>,
    /// Set once it counts in its run.
    pub taken: Option<Token>,
    /// The calls in a wrapper call, each judged as a call of its own.
    pub inner: Vec<Judgement>,
}

/// Why a call is not sent on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// `malformed_output`, `unknown_tool`, …; `guard_unavailable` if a layer could not decide.
    pub code: &'static str,
    /// What the call names, cut and cleaned so that it can stand in a text for people.
    pub tool: String,
    /// The rule that said no, as the configuration names it: `tools.allow` of the policy,
    /// `contract.schema` of the tool's contract. Without the name of the tool.
    pub rule: String,
    /// One sentence for people and models. Never a value out of the arguments.
    pub message: String,
    /// The approval that the call waits for, or that did not let it pass.
    pub approval: Option<String>,
}

/// What one layer said, for the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuardResult {
    /// The layer's code.
    pub code: &'static str,
    pub outcome: GuardOutcome,
    pub rule: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardOutcome {
    Passed,
    Blocked,
    Warn,
    Paused,
}

/// `tools.on_block`, `tools.batch` and what the request forces: how blocked calls are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delivery {
    /// The answer is an error: `on_block = "error"`, or the request forces a call or JSON.
    pub as_error: bool,
    /// `batch = "each"`: the allowed siblings of a blocked call go on.
    pub each: bool,
}

/// The layers in the order in which they are asked.
const LAYERS: &[Layer] = &[
    Layer {
        code: whole::CODE,
        ask: whole::ask,
    },
    Layer {
        code: offered::CODE,
        ask: offered::ask,
    },
    Layer {
        code: allowed::CODE,
        ask: allowed::ask,
    },
    Layer {
        code: tenant::CODE,
        ask: tenant::ask,
    },
    Layer {
        code: schema::CODE,
        ask: schema::ask,
    },
    Layer {
        code: arguments::CODE,
        ask: arguments::ask,
    },
    Layer {
        code: order::CODE,
        ask: order::ask,
    },
    Layer {
        code: loops::CODE,
        ask: loops::ask,
    },
    Layer {
        code: approval::CODE,
        ask: approval::ask,
    },
];

/// What the layers call themselves, in the order in which they are asked.
pub mod code {
    pub use super::{
        allowed::CODE as NOT_ALLOWED, approval::CODE as APPROVAL, arguments::CODE as ARGUMENTS,
        loops::CODE as LOOP, offered::CODE as UNKNOWN, order::CODE as ORDER,
        schema::CODE as SCHEMA, tenant::CODE as TENANT, whole::CODE as MALFORMED,
    };

    pub const ALL: &[&str] = &[
        MALFORMED,
        UNKNOWN,
        NOT_ALLOWED,
        TENANT,
        SCHEMA,
        ARGUMENTS,
        ORDER,
        LOOP,
        APPROVAL,
    ];
}

/// The layers that `tools.observe` may name, and the reason why the others are not among them.
pub const OBSERVABLE: &[&str] = &[
    offered::CODE,
    allowed::CODE,
    schema::CODE,
    arguments::CODE,
    order::CODE,
    loops::CODE,
    approval::CODE,
];
pub const NEVER_OBSERVED: &[(&str, &str)] = &[
    (
        whole::CODE,
        "what cannot be read cannot be judged, and clients would disagree about it",
    ),
    (
        tenant::CODE,
        "a call into another tenant's data is never let through",
    ),
];

struct Layer {
    code: &'static str,
    ask: fn(&CallGuard, &Proposal) -> Vec<Finding>,
}

/// A call as the layers see it: read once.
struct Proposal<'c> {
    call: &'c Call,
    /// What rules and contracts call it.
    tool: String,
    /// Why it is no whole call, if so; then only the first layer is asked.
    content: Result<Content, &'static str>,
}

/// What a call hands to its tool.
enum Content {
    /// Of a function: always an object. Of an item: what its action is.
    Json(Json),
    /// Of a custom tool: no rule looks into it.
    Text,
}

/// Something that speaks against a call. A layer without findings has passed it.
struct Finding {
    rule: String,
    message: String,
    kind: FindingKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FindingKind {
    No,
    /// A rule of its own mode `observe`.
    Observed,
    /// The layer could not decide.
    Unavailable,
    /// A person has to decide.
    Pause,
}

impl Finding {
    fn no(rule: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            rule: rule.into(),
            message: message.into(),
            kind: FindingKind::No,
        }
    }
}

impl CallGuard {
    /// `policy` is `Policy::label`, `tenant` that of the key, `offered` what this request offers.
    pub fn new(
        policy: Arc<str>,
        rules: Arc<ToolRules>,
        contracts: Arc<Contracts>,
        tenant: Arc<str>,
        offered: Arc<Offered>,
        facts: Arc<Facts>,
    ) -> Self {
        Self {
            tenant,
            policy,
            rules,
            contracts,
            offered,
            facts,
        }
    }

    /// Counts a call that may pass, and those in it, in its run; blocks it if the run has no room.
    pub fn take(&self, judgement: &mut Judgement) {
        let Some(run) = &self.facts.run else { return };
        if judgement.blocked.is_some() || judgement.paused.is_some() {
            return;
        }
        for inner in &mut judgement.inner {
            self.take(inner);
        }
        let mut blocked = judgement
            .inner
            .iter()
            .find_map(|inner| inner.blocked.clone());
        if judgement.inner.is_empty() {
            let contract = self.contracts.find(&judgement.tool);
            let order = contract.map(|contract| &contract.order);
            let replays = contract.and_then(|contract| contract.idempotent);
            let made = Made {
                tool: judgement.tool.clone(),
                digest: judgement.digest.clone(),
            };
            let key = self.idempotency_key(judgement);
            match run.take(order, (made, key), replays) {
                Ok(token) => judgement.taken = Some(token),
                Err(stop) => {
                    blocked = Some(Block {
                        code: stop.code,
                        tool: clean_name(&judgement.tool),
                        rule: stop.rule.to_owned(),
                        message: stop.message,
                        approval: None,
                    });
                }
            }
        }
        if blocked.is_some() {
            self.give_back(judgement);
            judgement.blocked = blocked;
        }
    }

    /// The client did not get the call after all.
    pub fn give_back(&self, judgement: &Judgement) {
        let Some(run) = &self.facts.run else { return };
        judgement
            .inner
            .iter()
            .for_each(|inner| self.give_back(inner));
        if let Some(token) = &judgement.taken {
            run.give_back(token);
        }
    }

    /// Whether a process that forgets this call would let one through later that may not pass.
    pub fn must_be_remembered(&self, judgement: &Judgement) -> bool {
        let Some(run) = &self.facts.run else {
            return false;
        };
        let contract = self.contracts.find(&judgement.tool);
        let bounded = contract.is_some_and(|contract| {
            contract.order.max_calls.is_some() || contract.idempotent == Some(false)
        });
        let rules = &run.rules;
        let counted = rules.max_tool_calls.is_some() || rules.on_replay == OnReplay::Withhold;
        let own = judgement.taken.is_some() && (bounded || counted);
        own || judgement
            .inner
            .iter()
            .any(|one| self.must_be_remembered(one))
    }

    /// What says that two calls are the same one: an argument of that name, else all arguments.
    fn idempotency_key(&self, judgement: &Judgement) -> String {
        let rules = self.facts.run.as_ref().map(|run| &run.rules);
        let named = rules.and_then(|rules| rules.idempotency_argument.as_deref());
        let named = named.unwrap_or(IDEMPOTENCY_ARGUMENT);
        let tool = &judgement.tool;
        let json = Json::parse(&judgement.arguments).ok();
        let members = json.as_ref().and_then(Json::members).unwrap_or_default();
        match members.iter().find(|(name, _)| name == named) {
            Some((_, value)) => {
                format!("{tool} {named}={}", judge::of_arguments(&value.to_string()))
            }
            None => format!("{tool} {}", judgement.digest),
        }
    }

    /// Asks the layers in order.
    pub fn judge(&self, call: &Call) -> Judgement {
        judge::judge(self, call)
    }
}

/// Where `run.idempotency_argument` names no other.
const IDEMPOTENCY_ARGUMENT: &str = "idempotency_key";

impl Call {
    /// What rules, contracts and records call the tool.
    pub fn tool(&self) -> String {
        match (&self.kind, &self.namespace) {
            (CallKind::Item(kind), _) => format!("type:{kind}"),
            (_, Some(namespace)) if !namespace.is_empty() => format!("{namespace}.{}", self.name),
            _ => self.name.clone(),
        }
    }
}
