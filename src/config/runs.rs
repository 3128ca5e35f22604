//! `[run]` and `[loops]` of a policy, and what contracts say of order.

use super::{
    reader::Table,
    values::{count, flag, money, one_of, positive, text, timeout},
};
use crate::engine::{
    chain::is_tool_name,
    run::{LoopRules, MissingRun, OnOpen, OnReplay, OrderRules, RunRules},
};

pub(super) fn run(table: &mut Table<'_>) -> RunRules {
    let missing = [
        ("conversation", MissingRun::Conversation),
        ("per_key", MissingRun::PerKey),
        ("refuse", MissingRun::Refuse),
        ("unlimited", MissingRun::Unlimited),
    ];
    let replay = [("pass", OnReplay::Pass), ("withhold", OnReplay::Withhold)];
    let runtime = table.optional("max_runtime", timeout);
    RunRules {
        max_cost: table.optional("max_cost_usd", money),
        max_tokens: table.optional("max_tokens", positive),
        max_runtime_ms: runtime.map(|most| i64::try_from(most.as_millis()).unwrap_or(i64::MAX)),
        max_iterations: table.optional("max_iterations", positive),
        max_tool_calls: table.optional("max_tool_calls", count),
        max_parallel_units: table.optional("max_parallel_units", positive),
        missing_run_id: table.or("missing_run_id", MissingRun::default(), one_of(&missing)),
        on_replay: table.or("on_replay", OnReplay::default(), one_of(&replay)),
        idempotency_argument: table
            .optional("idempotency_argument", |value| Ok(text(value)?.into())),
    }
}

pub(super) fn loops(table: &mut Table<'_>) -> LoopRules {
    let on_open = [
        ("stop", OnOpen::Stop),
        ("retry", OnOpen::Retry),
        ("fallback", OnOpen::Fallback),
        ("escalate", OnOpen::Escalate),
    ];
    let number = |table: &mut Table<'_>, name| table.optional(name, positive).map(u64::from);
    LoopRules {
        same_call: number(table, "same_call"),
        cycle_rounds: number(table, "cycle_rounds"),
        same_output: number(table, "same_output"),
        on_open: table.or("on_open", OnOpen::default(), one_of(&on_open)),
    }
}

pub(super) fn order(table: &mut Table<'_>) -> OrderRules {
    let nothing = "an empty list asks for nothing; remove it";
    let tool = |value: &toml::de::DeValue<'_>| {
        let name = text(value)?;
        match is_tool_name(name) {
            true => Ok(name.into()),
            false => Err(format!("{name:?} is no tool name")),
        }
    };
    OrderRules {
        after: table
            .filled_list("after", nothing, tool)
            .unwrap_or_default(),
        max_calls: table.optional("max_calls_per_run", positive).map(u64::from),
        never_after_untrusted: table.or("never_after_untrusted", false, flag),
    }
}
