//! Puts one call to the layers, and the calls in a wrapper each to all of them.

use sha2::{Digest, Sha256};

use super::{
    Block, Call, CallGuard, Content, Finding, FindingKind, GuardOutcome, GuardResult, Judgement,
    LAYERS, Layer, Proposal, whole, wrapper,
};
use crate::engine::{
    json::{Json, canonical},
    names::clean_name,
};

pub(super) fn judge(guard: &CallGuard, call: &Call) -> Judgement {
    let proposal = whole::read(call);
    let inner = match wrapper::open(guard, &proposal) {
        Ok(calls) => calls.iter().map(|call| judge_plain(guard, call)).collect(),
        Err(fault) => {
            let content = Err(fault);
            return ask(
                guard,
                &Proposal {
                    content,
                    ..proposal
                },
                Vec::new(),
            );
        }
    };
    ask(guard, &proposal, inner)
}

/// A call in a wrapper: no wrapper itself, which `wrapper::open` sees to.
fn judge_plain(guard: &CallGuard, call: &Call) -> Judgement {
    ask(guard, &whole::read(call), Vec::new())
}

fn ask(guard: &CallGuard, proposal: &Proposal<'_>, inner: Vec<Judgement>) -> Judgement {
    let mut results = Vec::with_capacity(LAYERS.len());
    let mut said = Said::Nothing;
    for layer in LAYERS {
        said = ask_layer(guard, layer, proposal, &mut results);
        if matches!(said, Said::No(_)) {
            break;
        }
    }
    let (blocked, paused) = match said {
        Said::No(block) => (Some(block), None),
        Said::Wait(rule) => (None, Some(rule)),
        Said::Nothing => (None, None),
    };
    let blocked = blocked.or_else(|| inner.iter().find_map(|inner| inner.blocked.clone()));
    let paused = paused.or_else(|| inner.iter().find_map(|inner| inner.paused.clone()));
    Judgement {
        tool: proposal.tool.clone(),
        results,
        arguments: whole::to_send(proposal),
        digest: digest(proposal),
        paused: paused.filter(|_| blocked.is_none()),
        blocked,
        approval: None,
        taken: None,
        inner,
    }
}

/// What a layer says against a call.
enum Said {
    Nothing,
    /// A person has to decide, by this rule. Only the last layer says so.
    Wait(String),
    No(Block),
}

/// Notes what the layer says.
fn ask_layer(
    guard: &CallGuard,
    layer: &Layer,
    proposal: &Proposal<'_>,
    results: &mut Vec<GuardResult>,
) -> Said {
    let code = layer.code;
    let mut note = |outcome, rule: &str| {
        results.push(GuardResult {
            code,
            outcome,
            rule: rule.to_owned(),
        });
    };
    for Finding {
        rule,
        message,
        kind,
    } in (layer.ask)(guard, proposal)
    {
        let observed = match kind {
            FindingKind::No | FindingKind::Pause => guard.rules.observes(code),
            FindingKind::Observed => true,
            FindingKind::Unavailable => false,
        };
        if observed {
            note(GuardOutcome::Warn, &rule);
            continue;
        }
        if kind == FindingKind::Pause {
            note(GuardOutcome::Paused, &rule);
            return Said::Wait(rule);
        }
        note(GuardOutcome::Blocked, &rule);
        let unavailable = kind == FindingKind::Unavailable;
        return Said::No(Block {
            code: if unavailable { UNAVAILABLE } else { code },
            tool: clean_name(&proposal.tool),
            rule,
            message,
            approval: None,
        });
    }
    if !results.iter().any(|result| result.code == code) {
        results.push(GuardResult {
            code,
            outcome: GuardOutcome::Passed,
            rule: code.to_owned(),
        });
    }
    Said::Nothing
}

/// The same for arguments as a conversation repeats them.
pub(super) fn of_arguments(text: &str) -> String {
    let text = if text.is_empty() { "{}" } else { text };
    let digest = match Json::parse(text) {
        Ok(json) => Sha256::digest(canonical(&json)),
        Err(_) => Sha256::digest(text),
    };
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What identifies the arguments in records, in loops and in approvals.
pub(super) fn digest(proposal: &Proposal<'_>) -> String {
    let digest = match &proposal.content {
        Ok(Content::Json(json)) => Sha256::digest(canonical(json)),
        Ok(Content::Text) | Err(_) => Sha256::digest(&proposal.call.arguments),
    };
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A layer could not decide.
const UNAVAILABLE: &str = "guard_unavailable";
