//! `tallygate keys new`: a fresh key for its owner, its digest for the file.

use std::process::ExitCode;

use sha2::{Digest as _, Sha256};

use super::print;
use crate::clock::Clock;

pub fn new(name: &str, tenant: &str, policy: &str) -> anyhow::Result<ExitCode> {
    let key = format!("tg-{}", Clock::system().fresh_secret());
    let digest = hex::encode(Sha256::digest(key.as_bytes()));
    print(&format!(
        "The key, shown only now; give it to its owner:\n\n  {key}\n"
    ));
    print("The lines for the configuration:\n");
    print(&format!(
        "[[keys]]\nname = {name:?}\ntenant = {tenant:?}\nsha256 = \"{digest}\"\npolicy = {policy:?}"
    ));
    Ok(ExitCode::SUCCESS)
}
