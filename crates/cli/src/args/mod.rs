//! What was typed. Types for `clap` only: what the words mean is decided in [`crate::settings`] and in the commands.

mod checkpoint;
mod images;
mod pair;
mod registry;
mod sandbox;
mod serve;
mod snapshots;
mod templates;
mod volumes;

pub(crate) use checkpoint::{CheckpointCommand, CreateCheckpointArgs, DeleteCheckpointsArgs, RestoreArgs};
pub(crate) use images::{BuildArgs, GcArgs, ImagesCommand};
pub(crate) use pair::Pair;
pub(crate) use registry::{AddArgs, CheckImageArgs, ForgetArgs, OwnerArgs, RegistryCommand};
pub(crate) use sandbox::{
    CreateArgs, DeleteArgs, DownloadArgs, IdleAction, ListArgs, RunArgs, SandboxCommand, ShellArgs, UploadArgs,
};
pub(crate) use serve::{AccelChoice, LogFormat, ServeArgs, ShimArgs};
pub(crate) use snapshots::{ForkArgs, ResetArgs, SnapshotCommand, SnapshotListArgs, TakeArgs};
pub(crate) use templates::{RebuildArgs, TemplateCommand, TemplateCreateArgs, TemplateListArgs};
pub(crate) use volumes::{PublishArgs, VolumeArgs, VolumeAt, VolumeListArgs, VolumesArgs, VolumesCommand};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// MicroVM sandboxes from OCI images, on hardware you own.
#[derive(Debug, Parser)]
#[command(name = "warren", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Server [env: WARREN_URL, PRIME_API_BASE_URL] [default: http://127.0.0.1:8700]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// API key [env: WARREN_API_KEY, PRIME_API_KEY] [default for a local server: the key in its data directory]
    #[arg(long, global = true, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// PEM file with a certificate authority to trust beside the system's [env: WARREN_CA_CERT]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_cert: Option<PathBuf>,
    /// Form of the answer on stdout
    #[arg(long, short, global = true, value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
    /// Print ids only, and no progress
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// Form of the answer on stdout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Columns for people
    #[default]
    Table,
    /// One JSON document
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make, use and end sandboxes
    #[command(subcommand, visible_alias = "sandboxes")]
    Sandbox(SandboxCommand),
    /// List, use and delete snapshots of sandboxes
    #[command(subcommand, visible_alias = "snapshots")]
    Snapshot(SnapshotCommand),
    /// Have start commands run once, for all sandboxes that are started like that
    #[command(subcommand, visible_alias = "templates")]
    Template(TemplateCommand),
    /// Pull, import, list and remove images
    #[command(subcommand, visible_alias = "image")]
    Images(ImagesCommand),
    /// Make, list and delete volumes: disks that outlive sandboxes
    #[command(subcommand, visible_alias = "volume")]
    Volumes(VolumesCommand),
    /// Save logins for registries, and see whether an image can be had
    #[command(subcommand, visible_alias = "registries")]
    Registry(RegistryCommand),
    /// Run the server on this machine
    Serve(ServeArgs),
    /// Say what this machine can do, what is missing, and how to fix it
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Own one sandbox (started by the server)
    #[command(hide = true)]
    Shim(ShimArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DoctorArgs {
    /// Data directory to look at [env: WARREN_DATA_DIR]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests;
