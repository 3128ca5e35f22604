//! The command line: one file a command.

mod approvals;
mod arguments;
mod check;
mod heads;
mod health;
mod instant;
mod keys;
mod ledger;
mod migrate;
mod models;
mod policies;
mod progress;
mod runs;
mod serve;
mod simulate;
mod spend;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser as _;

use self::arguments::{
    ApprovalsCommand, Arguments, Command, KeysCommand, LedgerCommand, PoliciesCommand, RunsCommand,
};
use crate::{
    approval::Wish,
    config::{Config, StoreUrl},
    store::export::Form,
};

/// Runs what was asked for.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let file = &arguments.config;
    let done = match arguments.command.unwrap_or(Command::Serve) {
        Command::Serve => serve::serve(file),
        Command::Check { json } => check::check(file, json),
        Command::Keys(KeysCommand::New {
            name,
            operator: true,
            role,
            ..
        }) => keys::new_operator(&name, &role),
        Command::Keys(KeysCommand::New {
            name,
            tenant,
            policy,
            ..
        }) => keys::new(&name, &tenant, &policy),
        Command::Models { json } => models::models(file, json),
        Command::Migrate => migrate::migrate(file),
        Command::Spend { json } => spend::spend(file, json),
        Command::Approvals(command) => approve(file, &command),
        Command::Runs(command) => look_at_runs(file, &command),
        Command::Policies(command) => change_rules(file, &command),
        Command::Ledger(command) => records(file, command),
        Command::Health => health::health(file),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tallygate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn change_rules(file: &Path, command: &PoliciesCommand) -> anyhow::Result<ExitCode> {
    match command {
        PoliciesCommand::List { json } => policies::list(file, *json),
        PoliciesCommand::Show { version } => policies::show(file, version),
        PoliciesCommand::Diff { one, other } => policies::diff(file, one, other),
        PoliciesCommand::Publish { version } => policies::publish(file, version),
        PoliciesCommand::Archive { version } => policies::archive(file, version),
        PoliciesCommand::Simulate {
            policy,
            since,
            until,
            key,
            json,
        } => {
            let asked = simulate::Asked {
                policy,
                since,
                until: until.as_deref(),
                key: key.as_deref(),
            };
            simulate::run(file, &asked, *json)
        }
    }
}

fn approve(file: &Path, command: &ApprovalsCommand) -> anyhow::Result<ExitCode> {
    let (decision, wish) = match command {
        ApprovalsCommand::List { all, json } => return approvals::list(file, *all, *json),
        ApprovalsCommand::Show { id, json } => return approvals::show(file, id, *json),
        ApprovalsCommand::Approve(decision) => (decision, Wish::Approve),
        ApprovalsCommand::Reject(decision) => (decision, Wish::Reject),
    };
    let said = (&*decision.by, &*decision.reason);
    approvals::decide(file, &decision.id, wish, said)
}

fn records(file: &Path, command: LedgerCommand) -> anyhow::Result<ExitCode> {
    match command {
        LedgerCommand::Tail {
            lines,
            follow,
            json,
        } => ledger::tail(file, lines, follow, json),
        LedgerCommand::Verify { head, public_key } => {
            let heads = heads::heads(head.as_deref(), public_key.as_deref())?;
            ledger::verify(file, heads)
        }
        LedgerCommand::Keygen { file } => heads::keygen(&file),
        LedgerCommand::Head { signing_key } => heads::head(file, signing_key.as_deref()),
        LedgerCommand::Export {
            format,
            since,
            until,
            key,
            kind,
        } => {
            let form = match format.as_str() {
                "csv" => Form::Csv,
                _ => Form::Jsonl,
            };
            let wish = ledger::Wish {
                form,
                kinds: kind,
                key,
                since: since.as_deref(),
                until: until.as_deref(),
            };
            ledger::export(file, wish)
        }
    }
}

fn look_at_runs(file: &Path, command: &RunsCommand) -> anyhow::Result<ExitCode> {
    match command {
        RunsCommand::List {
            key,
            tag,
            lines,
            json,
        } => {
            let listed = runs::Listed {
                key: key.as_deref(),
                tag: tag.as_deref(),
                most: *lines,
            };
            runs::list(file, &listed, *json)
        }
        RunsCommand::Show { run, key, json } => runs::show(file, run, key.as_deref(), *json),
        RunsCommand::Compare {
            groups,
            by,
            key,
            json,
        } => runs::side_by_side(file, (by, groups), key.as_deref(), *json),
    }
}

/// Where the store's file is.
fn database(config: &Config) -> PathBuf {
    let StoreUrl::Sqlite(path) = &config.store.url;
    path.clone()
}

/// A small runtime for commands that read the store.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

fn print(text: &str) {
    use std::io::Write as _;
    // A reader that has gone (`| head`) is no mistake.
    let _ = writeln!(std::io::stdout(), "{text}");
}
