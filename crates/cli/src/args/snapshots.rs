use super::Pair;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// List snapshots: one's own, a team's, or those of one sandbox
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  warren snapshot list\n  warren snapshot list --sandbox ID --output json"
    )]
    List(SnapshotListArgs),
    /// Show one snapshot
    Get(SnapshotIdArgs),
    /// Make sandboxes that go on from a snapshot, with all that ran in it
    #[command(after_help = "Example:\n  warren snapshot fork SNAPSHOT --count 4 --label try-2")]
    Fork(ForkArgs),
    /// Delete snapshots; what went on from them stays
    #[command(
        visible_alias = "rm",
        after_help = "Example:\n  warren snapshot list --sandbox ID --quiet | xargs warren snapshot delete"
    )]
    Delete(SnapshotDeleteArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SnapshotListArgs {
    /// Only those of this sandbox, which may be gone
    #[arg(long, value_name = "ID", conflicts_with = "team_id")]
    pub(crate) sandbox: Option<String>,
    /// Team [env: PRIME_TEAM_ID]
    #[arg(long, visible_alias = "team", value_name = "ID")]
    pub(crate) team_id: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SnapshotIdArgs {
    /// Snapshot
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) id: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SnapshotDeleteArgs {
    /// Snapshots, apart or with commas between them
    #[arg(value_name = "SNAPSHOT", value_delimiter = ',', required = true)]
    pub(crate) ids: Vec<String>,
    /// Accepted, as by other commands that delete; nothing is asked
    #[arg(long, short, hide = true)]
    pub(crate) yes: bool,
}

/// `sandbox fork` and `snapshot fork`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ForkArgs {
    /// What to go on from
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// How many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Name of each [default: the sandbox's, with -fork]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Label of each, in place of the sandbox's (repeatable)
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) label: Vec<String>,
    /// End each so many minutes after its own start; 0 or -1: never [default: as the sandbox]
    #[arg(long, visible_alias = "timeout", value_name = "MIN", allow_negative_numbers = true)]
    pub(crate) timeout_minutes: Option<i64>,
    /// More environment for new commands (repeatable)
    #[arg(long, short, value_name = "KEY=VALUE")]
    pub(crate) env: Vec<Pair>,
    /// More secrets for new commands, or other values of old ones (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) secret: Vec<Pair>,
    /// Give new commands none of the sandbox's secrets; what runs already may have read them
    #[arg(long)]
    pub(crate) drop_secrets: bool,
    /// Answer at once instead of waiting until all run
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Accepted for scripts written for `prime`; nothing is asked
    #[arg(long, short, hide = true)]
    pub(crate) yes: bool,
}

/// `sandbox snapshot`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TakeArgs {
    /// Sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Name for people
    #[arg(long)]
    pub(crate) name: Option<String>,
}

/// `sandbox reset`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ResetArgs {
    /// Sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Snapshot of this sandbox [default: its newest]
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) snapshot: Option<String>,
    /// Accepted, as by other commands that destroy something; nothing is asked
    #[arg(long, short, hide = true)]
    pub(crate) yes: bool,
}
