//! What can be written on the command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, builder::PossibleValuesParser};

use crate::engine::record::Event;

/// Exit codes that scripts can use: 0 well, 1 it did not work, 2 wrong usage.
#[derive(Parser)]
#[command(
    name = "tallygate",
    version,
    about,
    after_help = "Example:\n  tallygate serve --config config/tallygate.toml"
)]
pub(super) struct Arguments {
    /// The configuration file
    #[arg(
        long,
        global = true,
        env = "TALLYGATE_CONFIG",
        default_value = "config/tallygate.toml"
    )]
    pub config: PathBuf,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Subcommand)]
pub(super) enum Command {
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
pub(super) enum KeysCommand {
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
pub(super) enum ApprovalsCommand {
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
pub(super) enum PoliciesCommand {
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
    /// What another version would have decided about what is on record; exit code 3 if anything
    #[command(
        after_help = "It reads the ledger and changes nothing. Without --key it looks at what any version of the same policy judged. Clients and models are taken to have done the same; what only content could tell is listed as not decidable.\n\nExample:\n  tallygate policies simulate demo@2 --since 7d\n  tallygate policies simulate strict.toml --key research --json"
    )]
    Simulate {
        /// A version such as demo@2, or a policy file
        policy: String,
        /// Not before: 2027-06-30T12:00:00Z, 2027-06-30 (UTC), or 7d, 24h, 30m before now; taken down to the full hour
        #[arg(long, default_value = "7d")]
        since: String,
        /// Before; written like --since
        #[arg(long)]
        until: Option<String>,
        /// Of this key, whatever policy it had then
        #[arg(long)]
        key: Option<String>,
        /// For machines
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand)]
pub(super) enum RunsCommand {
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
pub(super) struct Decision {
    pub id: String,
    /// Told to the client when the call is turned down
    #[arg(long, default_value = "")]
    pub reason: String,
    /// Who decides, for the record
    #[arg(long, env = "USER", default_value = "command line")]
    pub by: String,
}

#[derive(Subcommand)]
pub(super) enum LedgerCommand {
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
