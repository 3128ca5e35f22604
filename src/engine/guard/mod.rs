//! The questions that are put to a request, one file each.

pub mod input;
pub mod model_access;
pub mod tool_offers;
