//! What a contract asks of values: ranges, lists, patterns, path and host prefixes.

mod hosts;
mod paths;
mod rule;
#[cfg(test)]
mod tests;

pub use self::{
    hosts::HostPattern,
    paths::is_plain as is_plain_path,
    rule::{ArgumentRule, Bound, Conditions, Scalar, WholePattern},
};
