//! How long an answer may be, and how much of it is reserved for at once.

use std::sync::Arc;

use super::super::resolve::{Routes, Target};
use crate::{
    books::{Need, Reservation, STEP},
    config::{CapMember, Provider},
    engine::{
        call::{Api, ChatRequest},
        policy::{Budget, Enforcement},
    },
};

/// How long the answer may be, and how much of that is reserved for at once.
pub(super) enum Cap {
    /// All of it, and what fits the limits is what goes upstream.
    Whole(Option<u64>),
    /// A little; the rest as the answer comes. Limits do not lower what goes upstream.
    Growing { sent: Option<u64>, choices: u64 },
}

impl Cap {
    pub fn of(budget: &Budget, call: &ChatRequest, target: &Target, needed: bool) -> Self {
        if budget.enforcement == Enforcement::Elastic && call.stream && needed {
            Self::Growing {
                sent: output_cap(budget, call, target, false),
                choices: call.choices,
            }
        } else {
            Self::Whole(output_cap(budget, call, target, needed))
        }
    }

    /// `attempts`: how many may have to be paid.
    pub fn need(
        &self,
        budget: &Budget,
        call: &ChatRequest,
        routes: &Routes,
        (input, attempts): (u64, u64),
    ) -> Need {
        let rates = routes.iter().filter_map(|target| target.rates.as_ref());
        Need {
            input_tokens: input,
            output_cap: self.reserved(),
            min_output: budget.min_output_tokens,
            // What grows is counted over all choices together.
            choices: match self {
                Self::Whole(_) => call.choices,
                Self::Growing { .. } => 1,
            },
            audio: call.audio,
            rates: rates.map(|at| Arc::clone(&at.rates)).collect(),
            attempts,
        }
    }

    fn reserved(&self) -> Option<u64> {
        match self {
            Self::Whole(cap) => *cap,
            Self::Growing { .. } => Some(self.most().map_or(STEP, |most| most.min(STEP))),
        }
    }

    /// All answers of a growing reservation together.
    fn most(&self) -> Option<u64> {
        match self {
            Self::Growing {
                sent: Some(cap),
                choices,
            } => Some(cap.saturating_mul(*choices)),
            _ => None,
        }
    }

    /// The cap that goes upstream.
    pub fn settle(&self, reservation: &mut Reservation) -> Option<u64> {
        match self {
            Self::Whole(_) => reservation.output_cap,
            Self::Growing { sent, .. } => {
                reservation.let_grow(self.most());
                *sent
            }
        }
    }
}

/// What an answer may have at most: the least of what client, policy and model say.
fn output_cap(budget: &Budget, call: &ChatRequest, target: &Target, needed: bool) -> Option<u64> {
    let most = budget.max_output_tokens.map(u64::from);
    let asked = call.cap.map(|(_, cap)| cap);
    let default = budget.default_output_tokens.map(u64::from).or(most);
    let wanted = asked
        .or(default)
        .or(target.max_output)
        .or(needed.then_some(Budget::ASSUMED_OUTPUT));
    if !needed && most.is_none() {
        return None;
    }
    [wanted, most, target.max_output]
        .into_iter()
        .flatten()
        .min()
}

/// The member in which the cap goes upstream; `None` if it stands there already.
pub(super) fn cap_edit<'a>(
    call: &ChatRequest,
    provider: &Provider,
    cap: u64,
) -> Option<(&'a str, u64)> {
    let member = match (provider.cap_member, call.cap) {
        _ if call.api == Api::Responses => "max_output_tokens",
        (CapMember::MaxTokens, _) => "max_tokens",
        (CapMember::AsClient, Some((member, _))) if member != "max_output_tokens" => member,
        _ => "max_completion_tokens",
    };
    (call.cap != Some((member, cap)) || call.several_caps()).then_some((member, cap))
}
