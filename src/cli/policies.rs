//! `tallygate policies`: the versions there are, what differs between them, and their life from
//! draft to published to archived.

use std::{fs, ops::Range, path::Path, process::ExitCode};

use anyhow::Context as _;
use serde_json::json;
use similar::{ChangeTag, TextDiff};
use toml::de::DeTable;

use super::{block_on, database, print};
use crate::{
    config::{Config, PolicyFile, Problem},
    engine::policy::{Binding, Edition, Seals, Status},
    store::sqlite::Reader,
};

pub fn list(file: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    let sealed = sealed(&config)?;
    let rows: Vec<_> = config
        .policy_files
        .iter()
        .map(|found| {
            let edition = found.edition();
            json!({
                "id": edition.id,
                "version": edition.version,
                "status": edition.status.name(),
                "sealed": sealed.iter().any(|seal| seal.label() == edition.label()),
                "sha256": edition.sha256,
                "file": found.file,
                "keys": keys_of(&config, &edition.label()),
            })
        })
        .collect();
    if as_json {
        print(&serde_json::to_string_pretty(&rows)?);
        return Ok(ExitCode::SUCCESS);
    }
    for found in &config.policy_files {
        let edition = found.edition();
        let keys = keys_of(&config, &edition.label());
        let used = match keys.len() {
            0 => "no key".to_owned(),
            _ => format!("keys: {}", keys.join(", ")),
        };
        let (label, status) = (edition.label(), edition.status.name());
        print(&format!("{label:<32} {status:<10} {used}"));
    }
    Ok(ExitCode::SUCCESS)
}

pub fn show(file: &Path, label: &str) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    let found = find(&config, label)?;
    print(fs::read_to_string(&found.file)?.trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Exit code 0: they say the same; 1: they differ.
pub fn diff(file: &Path, one: &str, other: &str) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    let (one, other) = (find(&config, one)?, find(&config, other)?);
    let texts = [
        fs::read_to_string(&one.file)?,
        fs::read_to_string(&other.file)?,
    ];
    let [before, after] = &texts;
    for change in TextDiff::from_lines(before, after).iter_all_changes() {
        let sign = match change.tag() {
            ChangeTag::Delete => "-",
            ChangeTag::Insert => "+",
            ChangeTag::Equal => " ",
        };
        print(format!("{sign}{}", change.value()).trim_end());
    }
    Ok(if one.sha256 == other.sha256 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// From draft to published: from then on the version never changes.
pub fn publish(file: &Path, label: &str) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    let found = find(&config, label)?;
    refuse_warnings(&config, found)?;
    turn(&config, found, Status::Draft, Status::Published)?;
    let bound = keys_of(&Config::load(file)?, &found.edition().label());
    let label = found.edition().label();
    print(&match bound.len() {
        0 => format!("{label} is published. No key is bound to it."),
        _ => format!("{label} is published, in force for: {}.", bound.join(", ")),
    });
    Ok(ExitCode::SUCCESS)
}

/// From published to archived: it serves nobody any more, and its history stays.
pub fn archive(file: &Path, label: &str) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    let found = find(&config, label)?;
    turn(&config, found, Status::Published, Status::Archived)?;
    let unusable: Vec<String> = Config::load(file)?
        .keys
        .values()
        .filter(|key| matches!(key.policy, Binding::Unusable(_)))
        .map(|key| key.name.to_string())
        .collect();
    let label = found.edition().label();
    print(&format!("{label} is archived."));
    if !unusable.is_empty() {
        let keys = unusable.join(", ");
        print(&format!("Keys without a usable policy now: {keys}."));
    }
    Ok(ExitCode::SUCCESS)
}

/// What a running product only warns about is no base for something that never changes.
fn refuse_warnings(config: &Config, found: &PolicyFile) -> anyhow::Result<()> {
    let own = |problem: &&Problem| problem.file == found.file;
    let warnings: Vec<String> = config
        .warnings
        .iter()
        .filter(own)
        .map(ToString::to_string)
        .collect();
    anyhow::ensure!(
        warnings.is_empty(),
        "nothing was published:\n{}",
        warnings.join("\n")
    );
    Ok(())
}

fn turn(config: &Config, found: &PolicyFile, from: Status, to: Status) -> anyhow::Result<()> {
    let edition = found.edition();
    let (label, status) = (edition.label(), edition.status);
    anyhow::ensure!(
        status == from,
        "{label} is {}, and only a {} version can be {}",
        status.name(),
        from.name(),
        to.name()
    );
    let seals = Seals::new(sealed(config)?);
    config.check_seals(&seals)?;
    let text = fs::read_to_string(&found.file)?;
    let place = status_place(&text).context("the file has no status")?;
    let (before, after) = (text.get(..place.start), text.get(place.end..));
    let (before, after) = before.zip(after).context("the file has no status")?;
    let fresh = format!("{before}\"{}\"{after}", to.name());
    replace(&found.file, &fresh)
}

/// Where the value of `status` stands.
fn status_place(text: &str) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?;
    let (_, value) = table
        .get_ref()
        .iter()
        .find(|(name, _)| name.get_ref() == "status")?;
    Some(value.span())
}

/// In one step: who reads meanwhile sees the old text or the new one.
fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let name = file.file_name().context("a file")?.to_string_lossy();
    let beside = file.with_file_name(format!(".{name}.new"));
    fs::write(&beside, text).with_context(|| format!("{} cannot be written", beside.display()))?;
    fs::rename(&beside, file).with_context(|| format!("{} cannot be replaced", file.display()))
}

/// What the store remembers; nothing before the first start.
fn sealed(config: &Config) -> anyhow::Result<Vec<Edition>> {
    let path = database(config);
    if !path.exists() {
        return Ok(Vec::new());
    }
    block_on(async {
        let mut reader = Reader::open(&path).await?;
        Ok(reader.seals().await?)
    })
}

pub(super) fn find<'c>(config: &'c Config, label: &str) -> anyhow::Result<&'c PolicyFile> {
    let found = config
        .policy_files
        .iter()
        .find(|found| *found.policy.label == *label);
    found.with_context(|| {
        let known = config.policy_files.iter().map(|found| &*found.policy.label);
        let known: Vec<&str> = known.collect();
        format!("there is no policy {label:?}; known: {}", known.join(", "))
    })
}

fn keys_of(config: &Config, label: &str) -> Vec<String> {
    let bound = |policy: &Binding| matches!(policy, Binding::To(to) if *to.label == *label);
    let keys = config.keys.values().filter(|key| bound(&key.policy));
    let mut names: Vec<String> = keys.map(|key| key.name.to_string()).collect();
    names.sort();
    names
}
