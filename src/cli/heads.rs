//! `tallygate ledger keygen` and `head`, and the files that `verify` is given.

use std::{
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;

use super::{block_on, ledger::reader, print};
use crate::{
    clock::Clock,
    store::{
        Chain,
        head::{Head, Heads, PublicKey, SigningKey},
    },
};

/// Writes `file`, for its owner only, and beside it the public half with `.pub` after its name.
pub fn keygen(file: &Path) -> anyhow::Result<ExitCode> {
    let pem = SigningKey::pem(&Clock::system().fresh_seed());
    let public = PathBuf::from(format!("{}.pub", file.display()));
    write_new(file, &pem, 0o600)?;
    write_new(&public, &SigningKey::from_pem(&pem)?.public_pem(), 0o644)?;
    print(&format!(
        "{}: the key that signs; keep it secret\n{}: the key that checks; give it to auditors",
        file.display(),
        public.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// A key that is there is never written over: heads are signed with it.
fn write_new(file: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    let written = options
        .open(file)
        .and_then(|mut open| open.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", file.display()))
}

pub fn head(config: &Path, signing_key: Option<&Path>) -> anyhow::Result<ExitCode> {
    let key = signing_key
        .map(|file| told(file, SigningKey::from_pem(&text(file)?)))
        .transpose()?;
    block_on(async {
        let mut reader = reader(config).await?;
        let before = (reader.last_seq().await? - 1).max(0);
        let last = reader.lines_after(before, 1).await?;
        let chain = last.last().map_or_else(Chain::default, |line| Chain {
            seq: line.seq,
            digest: line.digest,
        });
        let mut head = Head::of(&chain, Clock::system().now_ms());
        if let Some(key) = &key {
            head.sign(key);
        }
        print(&serde_json::to_string(&head)?);
        Ok(ExitCode::SUCCESS)
    })
}

/// The heads to hold the ledger against, their signatures checked if there is a key.
pub(super) fn heads(head: Option<&Path>, public_key: Option<&Path>) -> anyhow::Result<Heads> {
    let Some(file) = head else {
        return Ok(Heads::default());
    };
    let heads = told(file, Heads::read(&text(file)?))?;
    if let Some(key) = public_key {
        let key = told(key, PublicKey::from_pem(&text(key)?))?;
        told(file, heads.check_signatures(&key))?;
    }
    Ok(heads)
}

fn text(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// With the file's name before the mistake.
fn told<T>(file: &Path, read: Result<T, crate::store::head::HeadFault>) -> anyhow::Result<T> {
    read.with_context(|| file.display().to_string())
}
