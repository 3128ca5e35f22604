//! What stands behind the proxy: the providers' own forms, as bytes in and bytes out.
//!
//! Who opens connections is `proxy`.

pub mod openai;
pub mod sandbox;
