use super::Pair;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// Start a command in an image once; creates like it then go on from where it was ready
    #[command(after_help = "\
Examples:
  warren template create --image app:v1 --start \"serve -p 80\" --ready \"curl -sf localhost\" --wait
  warren sandbox create app:v1 -- serve -p 80    # goes on from it

A create uses it if image, start command, size, disk and environment are the same.")]
    Create(Box<TemplateCreateArgs>),
    /// List templates: one's own, or a team's
    #[command(visible_alias = "ls")]
    List(TemplateListArgs),
    /// Show one template
    Get(TemplateIdArgs),
    /// Make a template anew, for instance of what its image's tag leads to now; the old one serves until then
    #[command(after_help = "Example:\n  warren template rebuild TEMPLATE --wait")]
    Rebuild(RebuildArgs),
    /// Delete templates; sandboxes that went on from them stay
    #[command(visible_alias = "rm")]
    Delete(TemplateDeleteArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TemplateCreateArgs {
    /// Image to boot
    #[arg(long, value_name = "REF")]
    pub(crate) image: String,
    /// What to start in it, split into words as a shell would, without one [default: the image's own]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) start: Option<String>,
    /// Run again and again until it exits with 0: then all is ready [default: at once]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) ready: Option<String>,
    /// It fails if it is not ready after so many seconds [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ready_within: Option<u64>,
    /// CPU cores; fractions round up
    #[arg(long, visible_alias = "cpu", value_name = "N", default_value_t = 1.0)]
    pub(crate) cpu_cores: f64,
    /// Memory in GiB, at least 0.25
    #[arg(long, visible_alias = "memory", value_name = "GB", default_value_t = 1.0)]
    pub(crate) memory_gb: f64,
    /// Disk in GiB
    #[arg(long, visible_alias = "disk", value_name = "GB", default_value_t = 5.0)]
    pub(crate) disk_size_gb: f64,
    /// Environment of the start command (repeatable)
    #[arg(long, short, value_name = "KEY=VALUE")]
    pub(crate) env: Vec<Pair>,
    /// Name for people [default: the image]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Let it reach only this while it is made: host, address or CIDR, optionally with :PORT or :LOW-HIGH (repeatable)
    #[arg(long, visible_alias = "allow", value_name = "RULE", conflicts_with = "network_deny")]
    pub(crate) network_allow: Vec<String>,
    /// Let it reach everything but this while it is made (repeatable)
    #[arg(long, visible_alias = "deny", value_name = "RULE")]
    pub(crate) network_deny: Vec<String>,
    /// Let it reach nothing while it is made
    #[arg(long, conflicts_with_all = ["network_allow", "network_deny"])]
    pub(crate) no_network: bool,
    /// Team whose creates use it [env: PRIME_TEAM_ID] [default: you]
    #[arg(long, visible_alias = "team", value_name = "ID")]
    pub(crate) team_id: Option<String>,
    /// Wait until it is ready
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TemplateListArgs {
    /// Team [env: PRIME_TEAM_ID]
    #[arg(long, visible_alias = "team", value_name = "ID")]
    pub(crate) team_id: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TemplateIdArgs {
    /// Template
    #[arg(value_name = "TEMPLATE")]
    pub(crate) id: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RebuildArgs {
    /// Template
    #[arg(value_name = "TEMPLATE")]
    pub(crate) id: String,
    /// Wait until it is ready
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TemplateDeleteArgs {
    /// Templates, apart or with commas between them
    #[arg(value_name = "TEMPLATE", value_delimiter = ',', required = true)]
    pub(crate) ids: Vec<String>,
    /// Accepted, as by other commands that delete; nothing is asked
    #[arg(long, short, hide = true)]
    pub(crate) yes: bool,
}
