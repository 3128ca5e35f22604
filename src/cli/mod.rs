//! The command line: one file a command.

mod approvals;
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
mod spend;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand, builder::PossibleValuesParser};

use crate::{
    approval::Wish,
    config::{Config, StoreUrl},
    engine::record::Event,
    store::export::Form,
};

/// Exit codes that scripts can use: 0 well, 1 it did not work, 2 wrong usage.
#[derive(Parser)]
#[command(
    name = "tallygate",
    version,
    about,
    after_help = "Example:\n  tallygate serve --config config/tallygate.toml"
)]
struct Arguments {
    /// The configuration file
    #[arg(
        long,
        global = true,
        env = "TALLYGATE_CONFIG",
        default_value = "config/tallygate.toml"
    )]
    config: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve (the default)
    #[command(after_help = "Example:\n  tallygate serve --config config/tallygate.toml")]
    Serve,
    /// Read the configuration and tell every mistake in it
    #[command(after_help = "Example:\n  tallygate check --json")]
    Check {
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// Client keys
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Which models each key may use, where they lead and what they cost
    #[command(after_help = "Example:\n  tallygate models --json")]
    Models {
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// What each key has used and has left
    #[command(after_help = "Example:\n  tallygate spend --json")]
    Spend {
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// Tool calls that wait for a person
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// What agents did over whole tasks
    #[command(subcommand)]
    Runs(RunsCommand),
    /// The versions of policies, and their life
    #[command(subcommand)]
    Policies(PoliciesCommand),
    /// What happened
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Bring the database to this version's form, as `serve` does at its start
    #[command(after_help = "Example:\n  tallygate migrate --config config/tallygate.toml")]
    Migrate,
    /// Ask a serving Tallygate whether it is ready
    #[command(after_help = "Example:\n  tallygate health")]
    Health,
}

#[derive(Subcommand)]
enum KeysCommand {
    /// Print a fresh key and the lines for the configuration
    #[command(
        after_help = "Example:\n  tallygate keys new --name research --tenant acme --policy demo\n  tallygate keys new --operator --name dana --role approver"
    )]
    New {
        #[arg(long)]
        name: String,
        #[arg(long, default_value = "default")]
        tenant: String,
        #[arg(long, default_value = "demo")]
        policy: String,
        /// A token for the console instead of a client key
        #[arg(long, conflicts_with_all = ["tenant", "policy"])]
        operator: bool,
        /// viewer (looks), approver (also decides about calls) or operator (also reloads, exports)
        #[arg(long, requires = "operator", default_value = "viewer", value_parser = ["viewer", "approver", "operator"])]
        role: String,
    },
}

#[derive(Subcommand)]
enum ApprovalsCommand {
    /// Those that wait, newest first
    #[command(after_help = "Example:\n  tallygate approvals list --json")]
    List {
        /// Also those that are decided
        #[arg(long)]
        all: bool,
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// One of them, with the call's arguments while it waits
    #[command(after_help = "Example:\n  tallygate approvals show apr_0123")]
    Show {
        id: String,
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// Let the call pass, once
    #[command(after_help = "Example:\n  tallygate approvals approve apr_0123 --reason 'checked'")]
    Approve(Decision),
    /// Turn the call down; the client is told the reason
    #[command(
        after_help = "Example:\n  tallygate approvals reject apr_0123 --reason 'wrong account'"
    )]
    Reject(Decision),
}

#[derive(Subcommand)]
enum PoliciesCommand {
    /// All versions, their status, and the keys bound to them
    #[command(after_help = "Example:\n  tallygate policies list --json")]
    List {
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// The file of one version
    #[command(after_help = "Example:\n  tallygate policies show demo@1")]
    Show { version: String },
    /// What differs between two versions; exit code 1 if they say different things
    #[command(after_help = "Example:\n  tallygate policies diff demo@1 demo@2")]
    Diff { one: String, other: String },
    /// Turn a draft into a published version, which never changes
    #[command(after_help = "Example:\n  tallygate policies publish demo@2")]
    Publish { version: String },
    /// Turn a published version into one that serves nobody
    #[command(after_help = "Example:\n  tallygate policies archive demo@1")]
    Archive { version: String },
}

#[derive(Subcommand)]
enum RunsCommand {
    /// The last runs, newest first
    #[command(after_help = "Example:\n  tallygate runs list --tag agent --json")]
    List {
        /// Of this key
        #[arg(long)]
        key: Option<String>,
        /// With this tag (X-Run-Tag)
        #[arg(long)]
        tag: Option<String>,
        #[arg(long, short = 'n', default_value_t = 20)]
        lines: usize,
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// One run, step by step
    #[command(after_help = "Example:\n  tallygate runs show task-17 --key research")]
    Show {
        run: String,
        /// Where several keys have a run of this name
        #[arg(long)]
        key: Option<String>,
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// Groups of runs side by side: medians, spread, success rate
    #[command(
        after_help = "Example:\n  tallygate runs compare agent workflow\n  tallygate runs compare --by policy --json"
    )]
    Compare {
        /// Only these groups; without any, all there are
        groups: Vec<String>,
        /// What tells them apart
        #[arg(long, default_value = "tag", value_parser = ["tag", "policy", "model"])]
        by: String,
        /// Of this key
        #[arg(long)]
        key: Option<String>,
        /// For machines
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args)]
struct Decision {
    id: String,
    /// Told to the client when the call is turned down
    #[arg(long, default_value = "")]
    reason: String,
    /// Who decides, for the record
    #[arg(long, env = "USER", default_value = "command line")]
    by: String,
}

#[derive(Subcommand)]
enum LedgerCommand {
    /// The last records, oldest first
    #[command(after_help = "Example:\n  tallygate ledger tail --lines 50 --follow")]
    Tail {
        #[arg(long, short = 'n', default_value_t = 20)]
        lines: u32,
        /// Go on as records come
        #[arg(long, short)]
        follow: bool,
        /// JSON Lines
        #[arg(long)]
        json: bool,
    },
    /// Check the chain from its first record to its last
    #[command(
        after_help = "A tail that was cut off, or a ledger that was written anew, shows only against a head that was kept elsewhere.\n\nExample:\n  tallygate ledger verify --head heads.jsonl --public-key ledger.key.pub"
    )]
    Verify {
        /// A file with heads that were kept, one on each line
        #[arg(long)]
        head: Option<PathBuf>,
        /// All of them must be signed with this key
        #[arg(long, requires = "head")]
        public_key: Option<PathBuf>,
    },
    /// Make a key that signs heads, and beside it (.pub) the one that checks them
    #[command(after_help = "Example:\n  tallygate ledger keygen ledger.key")]
    Keygen { file: PathBuf },
    /// How far the ledger goes, as a line of JSON to be kept elsewhere
    #[command(
        after_help = "Example:\n  tallygate ledger head --signing-key ledger.key >> heads.jsonl"
    )]
    Head {
        /// Sign it with this key
        #[arg(long)]
        signing_key: Option<PathBuf>,
    },
    /// Records with their places in the chain, oldest first, to standard output
    #[command(
        after_help = "Example:\n  tallygate ledger export --format csv --since 7d --kind request_refused,call_judged > week.csv"
    )]
    Export {
        /// csv: a line each, the whole record in the last column
        #[arg(long, value_parser = ["jsonl", "csv"], default_value = "jsonl")]
        format: String,
        /// Not before: 2027-06-30T12:00:00Z, 2027-06-30 (UTC), or 7d, 24h, 30m before now
        #[arg(long)]
        since: Option<String>,
        /// Before; written like --since
        #[arg(long)]
        until: Option<String>,
        /// Name of a client key
        #[arg(long)]
        key: Option<String>,
        /// Kinds of records, with commas between
        #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Event::KINDS))]
        kind: Vec<String>,
    },
}

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
        Command::Policies(command) => match command {
            PoliciesCommand::List { json } => policies::list(file, json),
            PoliciesCommand::Show { version } => policies::show(file, &version),
            PoliciesCommand::Diff { one, other } => policies::diff(file, &one, &other),
            PoliciesCommand::Publish { version } => policies::publish(file, &version),
            PoliciesCommand::Archive { version } => policies::archive(file, &version),
        },
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
