//! `[budget]` tables: of a policy, of a tenant, of all.

use std::num::NonZeroU64;

use super::{
    reader::Table,
    tools::MODES,
    values::{count, money, one_of, positive, time_of_day, zone},
};
use crate::engine::policy::{Amounts, Budget, Calendar, Enforcement};

/// Limits that several keys share: amounts and when they begin anew.
pub(super) fn shared(table: &mut Table<'_>) -> Budget {
    Budget {
        daily: amounts(table, ["daily_cost_usd", "daily_tokens", "daily_requests"]),
        monthly: amounts(
            table,
            ["monthly_cost_usd", "monthly_tokens", "monthly_requests"],
        ),
        total: amounts(table, ["total_cost_usd", "total_tokens", "total_requests"]),
        calendar: calendar(table),
        observe: table.or("mode", false, one_of(MODES)),
        ..Budget::none()
    }
}

/// Limits of each key of a policy, and how its answers are kept within them.
pub(super) fn of_policy(table: &mut Table<'_>) -> Budget {
    let none = Budget::none();
    let shared = shared(table);
    let words = [
        ("exact", Enforcement::Exact),
        ("elastic", Enforcement::Elastic),
    ];
    let most = table.optional("max_output_tokens", positive);
    let default = table.optional("default_output_tokens", positive);
    let ceiling = [default, most]
        .into_iter()
        .flatten()
        .min()
        .map_or(u64::MAX, NonZeroU64::get);
    if default
        .zip(most)
        .is_some_and(|(default, most)| default > most)
    {
        table
            .place_of("default_output_tokens")
            .mistake("is more than max_output_tokens");
    }
    let floor = table
        .optional("min_output_tokens", positive)
        .map(NonZeroU64::get);
    if floor.is_some_and(|floor| floor > ceiling) {
        let place = table.place_of("min_output_tokens");
        place.mistake("is more than an answer may have (max_output_tokens, default_output_tokens)");
    }
    Budget {
        enforcement: table.or("enforcement", none.enforcement, one_of(&words)),
        max_output_tokens: most,
        default_output_tokens: default,
        min_output_tokens: floor.unwrap_or(none.min_output_tokens.min(ceiling)),
        ..shared
    }
}

fn amounts(table: &mut Table<'_>, [cost, tokens, requests]: [&'static str; 3]) -> Amounts {
    Amounts {
        cost: table.optional(cost, money),
        tokens: table.optional(tokens, count),
        requests: table.optional(requests, count),
    }
}

fn calendar(table: &mut Table<'_>) -> Calendar {
    let utc = Calendar::utc();
    Calendar {
        zone: table.or("timezone", utc.zone, zone),
        reset_at: table.or("reset_at", utc.reset_at, time_of_day),
    }
}
