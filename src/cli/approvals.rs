//! `tallygate approvals`: calls that wait for a person.

use std::{path::Path, process::ExitCode};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{block_on, database, ledger::reader, print};
use crate::{
    approval::{Wish, verdict},
    clock::Clock,
    config::Config,
    store::{
        approvals::{Approval, Listing, Recorded, Status},
        sqlite::Decider,
    },
};

/// More are not listed at once.
const MOST: u32 = 500;

pub fn list(file: &Path, all: bool, as_json: bool) -> anyhow::Result<ExitCode> {
    let now_ms = Clock::system().now_ms();
    block_on(async {
        let mut reader = reader(file).await?;
        let status = (!all).then_some(Status::Pending);
        let found = reader.approvals(Listing { status, most: MOST }).await?;
        let due = |approval: &&Approval| all || approval.expires_at_ms > now_ms;
        let found: Vec<&Approval> = found.iter().filter(due).collect();
        if as_json {
            let rows: Vec<Value> = found.iter().map(|approval| row(approval)).collect();
            print(&serde_json::to_string_pretty(&rows)?);
        } else if found.is_empty() {
            print("No call waits for a person.");
        } else {
            found.iter().for_each(|approval| line(approval, now_ms));
        }
        Ok(ExitCode::SUCCESS)
    })
}

pub fn show(file: &Path, id: &str, as_json: bool) -> anyhow::Result<ExitCode> {
    block_on(async {
        let approval = find(file, id).await?;
        if as_json {
            let mut row = row(&approval);
            if let Some(members) = row.as_object_mut() {
                let arguments = approval.arguments.as_deref();
                members.insert("arguments".to_owned(), arguments.map_or(Value::Null, read));
            }
            print(&serde_json::to_string_pretty(&row)?);
        } else {
            detail(&approval);
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Exit code 0: done as wished; 1: somebody was first, it has expired, or the rules have changed.
pub fn decide(
    file: &Path,
    id: &str,
    wish: Wish,
    (by, reason): (&str, &str),
) -> anyhow::Result<ExitCode> {
    let config = Config::load(file)?;
    block_on(async {
        let approval = find(file, id).await?;
        let now_ms = Clock::system().now_ms();
        let verdict = verdict(&config, &approval, wish, (by, reason), now_ms);
        let mut decider = Decider::open(&database(&config)).await?;
        let recorded = decider.decide(&verdict).await?;
        let (done, words) = match recorded {
            Recorded::Unknown => anyhow::bail!("there is no approval {id}"),
            Recorded::Late(known) => (false, late(&known)),
            Recorded::Done(known) => match known.status {
                Status::Void => (
                    false,
                    format!("{id} is void: {}. It lets nothing through.", verdict.reason),
                ),
                status => (true, format!("{id} is {}.", status.name())),
            },
        };
        print(&words);
        Ok(if done {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}

fn late(known: &Approval) -> String {
    let by = known.decision.as_ref().map(|decision| &*decision.by);
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    let state = known.status.name();
    format!("{} was {state}{by} before; nothing was changed.", known.id)
}

async fn find(file: &Path, id: &str) -> anyhow::Result<Approval> {
    let found = reader(file).await?.approval(id).await?;
    found.with_context(|| format!("there is no approval {id}"))
}

fn row(approval: &Approval) -> Value {
    let decision = approval.decision.as_ref();
    json!({
        "id": approval.id,
        "status": approval.status.name(),
        "key": approval.key,
        "tenant": approval.tenant,
        "run": approval.run,
        "policy": approval.policy,
        "tool": approval.tool,
        "rule": approval.rule,
        "arguments_sha256": approval.digest,
        "request_id": approval.request_id,
        "created_at": instant(approval.created_at_ms),
        "expires_at": instant(approval.expires_at_ms),
        "decided_at": decision.map(|decision| instant(decision.at_ms)),
        "decided_by": decision.map(|decision| &decision.by),
        "reason": decision.map(|decision| &decision.reason),
    })
}

/// The arguments as JSON where they are some.
fn read(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into())
}

fn line(approval: &Approval, now_ms: i64) {
    let left = (approval.expires_at_ms - now_ms).max(0) / 60_000;
    print(&format!(
        "{}  {:<9}  {:<24}  key {} (tenant {}), {} min left",
        approval.id,
        approval.status.name(),
        shown(&approval.tool),
        approval.key,
        approval.tenant,
        left,
    ));
}

fn detail(approval: &Approval) {
    print(&format!(
        "{}\n  status     {}\n  tool       {}\n  key        {} (tenant {})\n  policy     {}\n  \
         held by    {}\n  request    {}\n  asked at   {}\n  expires at {}",
        approval.id,
        approval.status.name(),
        shown(&approval.tool),
        approval.key,
        approval.tenant,
        approval.policy,
        approval.rule,
        approval.request_id,
        instant(approval.created_at_ms),
        instant(approval.expires_at_ms),
    ));
    if let Some(decision) = &approval.decision {
        let reason = shown(&decision.reason);
        print(&format!("  decided by {} {reason}", decision.by));
    }
    match &approval.arguments {
        Some(arguments) => {
            let pretty = serde_json::to_string_pretty(&read(arguments)).unwrap_or_default();
            print(&format!("  arguments\n{}", shown(&pretty)));
        }
        None => print("  arguments  gone since it was decided"),
    }
}

/// A model wrote it: nothing in it may command a terminal.
fn shown(text: &str) -> String {
    let harmless = |char: char| match char {
        '\n' => '\n',
        char if char.is_control() => '\u{fffd}',
        // They turn the order of what is read around.
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        char => char,
    };
    text.chars().map(harmless).collect()
}

fn instant(ms: i64) -> String {
    let at = jiff::Timestamp::from_millisecond(ms);
    at.map(|at| at.to_string()).unwrap_or_default()
}
