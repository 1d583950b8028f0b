use super::OwnerArgs;
use clap::{Args, Subcommand};
use std::str::FromStr;

#[derive(Debug, Subcommand)]
pub(crate) enum VolumesCommand {
    /// Make an empty volume
    #[command(after_help = "Example:\n  warren volumes create datasets")]
    Create(VolumeArgs),
    /// List volumes
    #[command(visible_alias = "ls")]
    List(VolumeListArgs),
    /// Show one volume
    Get(VolumeArgs),
    /// Make what a sandbox wrote the content that new sandboxes start from
    #[command(after_help = "Example:\n  warren volumes publish datasets --sandbox ID")]
    Publish(PublishArgs),
    /// Delete volumes with their data; one that a sandbox has stays
    #[command(visible_alias = "rm")]
    Delete(VolumesArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct VolumeArgs {
    /// Letters, digits and . _ - /
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PublishArgs {
    /// As `volumes list` shows it
    pub(crate) name: String,
    /// Sandbox that publishes
    #[arg(long, value_name = "ID")]
    pub(crate) sandbox: String,
    /// Also if another sandbox has published since this one was created: in place of that
    #[arg(long)]
    pub(crate) force: bool,
    /// Answer at once instead of waiting until it is durable
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct VolumesArgs {
    /// As `volumes list` shows them
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
    /// Accepted for scripts written for `prime`; nothing is asked
    #[arg(long, short, hide = true)]
    pub(crate) yes: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct VolumeListArgs {
    /// Page, from 1
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) page: u32,
    /// Volumes on a page
    #[arg(long, short, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num: u32,
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
}

/// `NAME:/mount/path[:ro]` from the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeAt {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) read_only: bool,
}

impl FromStr for VolumeAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let (path, read_only) = rest.strip_suffix(":ro").map_or((rest, false), |path| (path, true));
        if name.is_empty() || path.is_empty() {
            return Err("expected NAME:/mount/path[:ro]".to_owned());
        }
        Ok(Self { name: name.to_owned(), path: path.to_owned(), read_only })
    }
}
