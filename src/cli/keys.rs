//! `tallygate keys new`: a fresh secret for its owner, its digest for the file.

use std::process::ExitCode;

use sha2::{Digest as _, Sha256};

use super::print;
use crate::{clock::Clock, config::check_name};

pub fn new(name: &str, tenant: &str, policy: &str) -> anyhow::Result<ExitCode> {
    let digest = fresh("tg", "key", "its owner");
    print(&format!(
        "[[keys]]\nname = {name:?}\ntenant = {tenant:?}\nsha256 = \"{digest}\"\npolicy = {policy:?}"
    ));
    Ok(ExitCode::SUCCESS)
}

/// A token for the console and `/admin/v1`.
pub fn new_operator(name: &str, role: &str) -> anyhow::Result<ExitCode> {
    check_name(name).map_err(anyhow::Error::msg)?;
    let digest = fresh("tgo", "token", name);
    print(&format!(
        "[[operators]]\nname = {name:?}\nrole = {role:?}\nsha256 = \"{digest}\""
    ));
    Ok(ExitCode::SUCCESS)
}

/// Prints a secret, and returns its digest.
fn fresh(prefix: &str, kind: &str, owner: &str) -> String {
    let secret = format!("{prefix}-{}", Clock::system().fresh_secret());
    print(&format!(
        "The {kind}, shown only now; give it to {owner}:\n\n  {secret}\n"
    ));
    print("The lines for the configuration:\n");
    hex::encode(Sha256::digest(secret.as_bytes()))
}
