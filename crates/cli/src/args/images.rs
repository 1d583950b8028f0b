use super::pair::Pair;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum ImagesCommand {
    /// Fetch an image from its registry and make it ready to boot
    Pull(PullArgs),
    /// Take an OCI layout, a docker-archive or a root file system tar
    Import(ImportArgs),
    /// List the images on the server
    #[command(visible_alias = "ls")]
    List,
    /// Show the pulls and conversions under way: step, layers, bytes, and what they wait for
    Pulls,
    /// Build a Dockerfile on the server into an image of yours
    Build(BuildArgs),
    /// List your last builds
    Builds,
    /// Show what a build said
    BuildLogs(BuildIdArgs),
    /// End a build
    BuildCancel(BuildIdArgs),
    /// Remove a name; the bytes go when no sandbox uses them
    #[command(visible_aliases = ["rm", "delete"])]
    Remove(RemoveArgs),
    /// Remove images that no sandbox uses and registries can give again, the least recently used first
    Gc(GcArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PullArgs {
    /// Reference, such as `debian:12` or `localhost:5000/team/app@sha256:...`
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ImportArgs {
    /// File or directory on the server's machine
    pub(crate) path: PathBuf,
    /// Name for the image
    #[arg(long, value_name = "NAME:TAG")]
    pub(crate) name: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RemoveArgs {
    /// References as `images list` shows them
    #[arg(value_name = "REF", required = true)]
    pub(crate) references: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct GcArgs {
    /// Only show what would go
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// GiB of images that may stay; 0 removes all that may go [default: the server's quota]
    #[arg(long, value_name = "GIB")]
    pub(crate) keep: Option<u64>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BuildArgs {
    /// Folder that the Dockerfile may copy from
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) context: PathBuf,
    /// Name for the image
    #[arg(long, value_name = "NAME[:TAG]")]
    pub(crate) name: String,
    /// Path of the Dockerfile in the folder
    #[arg(long, short = 'f', value_name = "FILE", default_value = "Dockerfile")]
    pub(crate) file: String,
    /// Value for an ARG of the Dockerfile
    #[arg(long = "build-arg", value_name = "KEY=VALUE")]
    pub(crate) args: Vec<Pair>,
    /// Team that owns the image [default: you]
    #[arg(long, value_name = "ID")]
    pub(crate) team: Option<String>,
    /// Let everyone with a key use it
    #[arg(long)]
    pub(crate) public: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BuildIdArgs {
    /// Id of the build
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}
