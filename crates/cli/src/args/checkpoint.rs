use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// Keep the disk of a running sandbox as it is now
    #[command(after_help = "Example:\n  warren sandbox checkpoint create ID --wait")]
    Create(CreateCheckpointArgs),
    /// List the checkpoints of a sandbox, the oldest first
    #[command(visible_alias = "ls")]
    List(CheckpointsOfArgs),
    /// Show one checkpoint
    Get(CheckpointArgs),
    /// Make a sandbox whose disk is that of a checkpoint, and wait until it runs
    #[command(after_help = "Example:\n  warren sandbox checkpoint restore CHECKPOINT --memory-gb 2")]
    Restore(RestoreArgs),
    /// Delete checkpoints; what was made from them keeps what it needs
    #[command(visible_alias = "rm")]
    Delete(DeleteCheckpointsArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CreateCheckpointArgs {
    /// Sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Wait until it is durable
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CheckpointsOfArgs {
    /// Sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CheckpointArgs {
    /// Checkpoint
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) id: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RestoreArgs {
    /// Checkpoint
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) id: String,
    /// Name for people [default: from the checkpoint]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// CPU cores; fractions round up
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub(crate) cpu_cores: f64,
    /// Memory in GiB, at least 0.25
    #[arg(long, value_name = "GB", default_value_t = 1.0)]
    pub(crate) memory_gb: f64,
    /// End it so many minutes after it began to run; 0 or -1: never
    #[arg(long, value_name = "MIN", default_value_t = 60, allow_negative_numbers = true)]
    pub(crate) timeout_minutes: i64,
    /// Team [env: PRIME_TEAM_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) team_id: Option<String>,
    /// Answer at once instead of waiting until it runs
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DeleteCheckpointsArgs {
    /// Checkpoints, apart or with commas between them
    #[arg(
        value_name = "CHECKPOINT",
        value_delimiter = ',',
        required_unless_present = "sandbox",
        conflicts_with = "sandbox"
    )]
    pub(crate) ids: Vec<String>,
    /// All of this sandbox
    #[arg(long, short, value_name = "ID")]
    pub(crate) sandbox: Option<String>,
}
