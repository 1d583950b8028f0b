use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// Where everything is kept [env: WARREN_DATA_DIR] [default: /var/lib/warren as root, else ~/.local/share/warren]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8700")]
    pub(crate) listen: SocketAddr,
    /// PEM file with the certificate chain; makes the server speak HTTPS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// URL by which clients reach this server, for exec and files [default: the URL by which they came]
    #[arg(long, value_name = "URL")]
    pub(crate) advertise: Option<String>,
    /// TOML file with mirrors and logins of registries [default: registries.toml in the data directory, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) registries: Option<PathBuf>,
    /// Object store that images are kept in, too, and come from: `file:///folder`, `s3://bucket/prefix` (with the usual AWS_*
    /// variables), `https://host/prefix`; sandboxes start while their image still arrives
    #[arg(long, value_name = "URL", env = "WARREN_OBJECTS")]
    pub(crate) objects: Option<String>,
    /// GiB of images above which those that registries can give again and no sandbox uses go, the least recently used first
    /// [default: what leaves a tenth of the file system free]
    #[arg(long, value_name = "GIB")]
    pub(crate) image_quota: Option<u64>,
    /// For so many seconds a registry is not asked again what a tag means; `images pull` always asks
    #[arg(long, value_name = "SECS", default_value_t = 300)]
    pub(crate) tag_fresh_secs: u64,
    /// GiB of layers that are kept as registries gave them, so that images that share them fetch them once
    #[arg(long, value_name = "GB", default_value_t = 10)]
    pub(crate) layer_cache_gb: u64,
    /// Images that one person or team may have
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    pub(crate) images_per_owner: u64,
    /// Room that the images of one person or team may take, GB [default: unlimited]
    #[arg(long, value_name = "GB")]
    pub(crate) image_gb_per_owner: Option<u64>,
    /// How long the machine of a build keeps its layers for its owner's next build, minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 5, value_parser = clap::value_parser!(i64).range(1..=1440))]
    pub(crate) builder_idle_minutes: i64,
    /// How virtual machines run; `auto` boots the guest kernel once to find out
    #[arg(long, value_enum, default_value_t)]
    pub(crate) accel: AccelChoice,
    /// Form of the log on stderr; its level is set by WARREN_LOG
    #[arg(long, value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
}

/// How virtual machines run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccelChoice {
    /// Hardware virtualization if it can run the guest kernel, else emulation
    #[default]
    Auto,
    /// Hardware virtualization, or fail
    Kvm,
    /// Software emulation
    Tcg,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ShimArgs {
    /// Folder of the sandbox's VM
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// User and group to become, in a file system that holds little else than the folder
    #[arg(long, requires = "readable")]
    pub(crate) uid: Option<u32>,
    /// What of the host is seen there
    #[arg(long)]
    pub(crate) readable: Vec<PathBuf>,
}
