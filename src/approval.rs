//! Deciding about calls that wait: the same for everybody who may, on the command line, in the
//! console, by a link.

use crate::{
    config::Config,
    engine::{chain::is_wrapper, policy::Binding},
    store::approvals::{Approval, Status, Verdict},
};

/// What a person wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Approve,
    Reject,
}

/// The verdict that follows from what a person wants and from the rules of now: nobody can
/// approve what the rules have come to deny.
pub fn verdict(
    config: &Config,
    approval: &Approval,
    wish: Wish,
    (by, reason): (&str, &str),
    now_ms: i64,
) -> Verdict {
    let void = match wish {
        Wish::Approve => void_reason(config, approval),
        Wish::Reject => None,
    };
    let status = match (&void, wish) {
        (Some(_), _) => Status::Void,
        (None, Wish::Approve) => Status::Approved,
        (None, Wish::Reject) => Status::Rejected,
    };
    Verdict {
        approval: approval.id.clone(),
        status,
        by: by.to_owned(),
        reason: void.unwrap_or_else(|| reason.to_owned()),
        now_ms,
    }
}

/// Why the rules of now do not let the call pass, if so.
pub fn void_reason(config: &Config, approval: &Approval) -> Option<String> {
    let named = |key: &&std::sync::Arc<crate::engine::policy::Key>| key.name == approval.key;
    let Some(key) = config.keys.values().find(named) else {
        return Some(format!(
            "the key {} is not configured any more",
            approval.key
        ));
    };
    if key.disabled {
        return Some(format!("the key {} is disabled", approval.key));
    }
    let policy = match &key.policy {
        Binding::To(policy) => policy,
        Binding::Unusable(reason) => {
            return Some(format!("the key's policy cannot be used: {reason}"));
        }
    };
    if policy.label != approval.policy {
        return Some(format!(
            "the key is bound to the policy {} now, and this was asked for under {}",
            policy.label, approval.policy
        ));
    }
    let (rules, contracts) = (&policy.tools, &config.contracts);
    // What the calls in a wrapper may, and which server an item belongs to, the delivery sees.
    let elsewhere = is_wrapper(&approval.tool) || approval.tool.starts_with("type:");
    let denied = rules.denies(contracts, &approval.tool);
    (denied || !(elsewhere || rules.allows(contracts, &approval.tool))).then(|| {
        format!(
            "the policy {} does not allow this tool any more",
            policy.label
        )
    })
}
