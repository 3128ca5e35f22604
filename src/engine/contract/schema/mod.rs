//! JSON Schemas, the operator's and those that requests offer, bounded in size, depth and work,
//! never leading out of their own text.

mod compile;
mod patterns;
mod shape;

pub use self::compile::{Schema, SchemaFault};
