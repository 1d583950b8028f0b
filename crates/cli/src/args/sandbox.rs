use super::{CheckpointCommand, ForkArgs, Pair, ResetArgs, TakeArgs, VolumeAt};
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Make a sandbox from an image and wait until it runs
    Create(Box<CreateArgs>),
    /// List sandboxes
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show one sandbox
    Get(GetArgs),
    /// Run a command in a sandbox; exits with the command's exit code
    Run(RunArgs),
    /// Open a terminal in a sandbox
    Shell(ShellArgs),
    /// Copy a file into a sandbox
    Upload(UploadArgs),
    /// Copy a file out of a sandbox
    Download(DownloadArgs),
    /// Show what the start command and the boot said
    Logs(LogsArgs),
    /// Keep disks of sandboxes, and make sandboxes from them
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Make sandboxes that go on from a running one, with all that runs in it
    #[command(after_help = "\
Examples:
  warren sandbox fork ID --count 8
  warren sandbox fork ID --name try-2 --drop-secrets --secret TOKEN=of-try-2")]
    Fork(ForkArgs),
    /// Keep memory and disk of a running sandbox as they are at this moment; it goes on
    #[command(after_help = "Example:\n  warren sandbox snapshot ID --name ready")]
    Snapshot(TakeArgs),
    /// Put a sandbox back to a snapshot of its own; all that came after is lost
    #[command(after_help = "\
Examples:
  warren sandbox reset ID                        # to its newest snapshot
  warren sandbox reset ID --snapshot SNAPSHOT")]
    Reset(ResetArgs),
    /// Keep a sandbox without using CPU or memory, until it is resumed
    Pause(GetArgs),
    /// Let a paused sandbox go on
    Resume(GetArgs),
    /// End sandboxes
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CreateArgs {
    /// Image to boot
    pub(crate) image: String,
    /// Command to start instead of the image's own
    #[arg(trailing_var_arg = true)]
    pub(crate) command: Vec<String>,
    /// Name for people [default: from the image]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// CPU cores; fractions round up
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub(crate) cpu_cores: f64,
    /// Memory in GiB, at least 0.25
    #[arg(long, value_name = "GB", default_value_t = 1.0)]
    pub(crate) memory_gb: f64,
    /// Disk in GiB
    #[arg(long, value_name = "GB", default_value_t = 5.0)]
    pub(crate) disk_size_gb: f64,
    /// Architecture of the image
    #[arg(long, default_value = "amd64", value_parser = ["amd64", "arm64"])]
    pub(crate) arch: String,
    /// Let it reach only this host, address or CIDR, optionally with :PORT or :LOW-HIGH (repeatable)
    #[arg(long, value_name = "RULE", conflicts_with = "network_deny")]
    pub(crate) network_allow: Vec<String>,
    /// Let it reach everything but this host, address or CIDR (repeatable)
    #[arg(long, value_name = "RULE")]
    pub(crate) network_deny: Vec<String>,
    /// Let it reach nothing
    #[arg(long, conflicts_with_all = ["network_allow", "network_deny"])]
    pub(crate) no_network: bool,
    /// End it so many minutes after it began to run; 0 or -1: never
    #[arg(long, value_name = "MIN", default_value_t = 60, allow_negative_numbers = true)]
    pub(crate) timeout_minutes: i64,
    /// End it when no command or transfer was active for so many minutes
    #[arg(long, visible_alias = "idle-timeout", value_name = "MIN")]
    pub(crate) idle_timeout_minutes: Option<u32>,
    /// What happens then
    #[arg(long, value_enum, requires = "idle_timeout_minutes")]
    pub(crate) idle_action: Option<IdleAction>,
    /// Let it go on by itself when a command comes while it is paused [default: only with --idle-action pause]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) auto_resume: Option<bool>,
    /// Start the command anew, also if there is a template for it
    #[arg(long)]
    pub(crate) no_template: bool,
    /// Environment of every command (repeatable)
    #[arg(long, short, value_name = "KEY=VALUE")]
    pub(crate) env: Vec<Pair>,
    /// Environment of every command that is never shown again (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) secret: Vec<Pair>,
    /// Label for filters (repeatable)
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) label: Vec<String>,
    /// Volume to mount, with `:ro` only to be read (repeatable)
    #[arg(long, value_name = "NAME:/PATH[:ro]")]
    pub(crate) volume: Vec<VolumeAt>,
    /// Team [env: PRIME_TEAM_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) team_id: Option<String>,
    /// Answer at once instead of waiting until it runs
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Accepted for scripts written for `prime`; nothing is asked
    #[arg(long, short, hide = true)]
    pub(crate) yes: bool,
}

/// What happens at the idle timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IdleAction {
    /// It is kept without using CPU or memory
    Pause,
    /// It ends
    Terminate,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ListArgs {
    /// Only this status
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<String>,
    /// Only with this label (repeatable; all must match)
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) label: Vec<String>,
    /// Page, from 1
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) page: u32,
    /// Sandboxes on a page
    #[arg(long, short, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num: u32,
    /// Ended ones too
    #[arg(long)]
    pub(crate) all: bool,
    /// Team [env: PRIME_TEAM_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) team_id: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct GetArgs {
    /// Sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// Sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Command and its arguments; a single word with blanks is split as a shell would
    #[arg(required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<String>,
    /// Directory to start in [default: the image's]
    #[arg(long, short, value_name = "DIR")]
    pub(crate) working_dir: Option<String>,
    /// Environment of this command (repeatable)
    #[arg(long, short, value_name = "KEY=VALUE")]
    pub(crate) env: Vec<Pair>,
    /// Kill the command after so many seconds; the exit code is then 124
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: Option<u64>,
    /// Account in the guest [default: the image's]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Pass this terminal's or pipe's stdin to the command
    #[arg(long, short = 'i')]
    pub(crate) stdin: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ShellArgs {
    /// Sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Program to run on the terminal [default: bash, or sh where there is none]
    #[arg(trailing_var_arg = true)]
    pub(crate) command: Vec<String>,
    /// Directory to start in [default: the image's]
    #[arg(long, short, value_name = "DIR")]
    pub(crate) working_dir: Option<String>,
    /// Environment of the shell (repeatable)
    #[arg(long, short, value_name = "KEY=VALUE")]
    pub(crate) env: Vec<Pair>,
    /// Account in the guest [default: the image's]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) user: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct UploadArgs {
    /// Sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// File to read
    pub(crate) local_file: PathBuf,
    /// Path in the sandbox; its directories are made, a file is replaced
    pub(crate) remote_path: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DownloadArgs {
    /// Sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Path in the sandbox
    pub(crate) remote_path: String,
    /// File to write, or `-` for stdout
    pub(crate) local_file: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct LogsArgs {
    /// Sandbox
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DeleteArgs {
    /// Sandboxes, apart or with commas between them
    #[arg(value_name = "ID", value_delimiter = ',', required_unless_present_any = ["all", "label"], conflicts_with_all = ["all", "label"])]
    pub(crate) ids: Vec<String>,
    /// All of them
    #[arg(long, short)]
    pub(crate) all: bool,
    /// All with this label (repeatable; all must match)
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) label: Vec<String>,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Not only one's own, with --all or --label
    #[arg(long, short = 'A', action = ArgAction::SetTrue)]
    pub(crate) all_users: bool,
    /// Team [env: PRIME_TEAM_ID]
    #[arg(long, value_name = "ID")]
    pub(crate) team_id: Option<String>,
}
