//! Layer 6: are the values plausible? Valid is not the same as plausible.

use super::{CallGuard, Finding, Proposal};

pub(super) const CODE: &str = "argument_denied";

/// One rule about one place in the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentRule {
    pub at: super::Pointer,
}

pub(super) fn ask(_: &CallGuard, _: &Proposal<'_>) -> Vec<Finding> {
    Vec::new()
}
