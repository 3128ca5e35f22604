//! `tallygate migrate`: the database's form, without serving.

use std::{path::Path, process::ExitCode};

use super::{block_on, print};
use crate::{
    config::{Config, StoreUrl},
    store::sqlite,
};

pub fn migrate(file: &Path) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    let StoreUrl::Sqlite(path) = &config.store.url;
    let (from, to) = block_on(async { Ok(sqlite::migrate(path).await?) })?;
    let place = path.display();
    print(&match from {
        0 => format!("{place}: made, version {to}"),
        from if from == to => format!("{place}: is of version {to} already"),
        from => format!("{place}: brought from version {from} to {to}"),
    });
    Ok(ExitCode::SUCCESS)
}
