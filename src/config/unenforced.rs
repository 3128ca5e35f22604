//! Settings that the product knows but does not enforce yet.
//!
//! They are refused, since a protective setting must never be silently idle. Whoever builds one
//! takes its name out here and reads it in its section.

pub(super) const IN_POLICY_FILES: &[&str] = &["output"];
