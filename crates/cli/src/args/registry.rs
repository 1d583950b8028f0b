use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum RegistryCommand {
    /// Save a login for a registry; the password is read from the terminal, or from stdin
    #[command(
        visible_alias = "login",
        after_help = "Examples:\n  warren registry add ghcr.io --user ann\n  \
                      echo $TOKEN | warren registry add docker.io --user ann --password-stdin --team crew-id"
    )]
    Add(AddArgs),
    /// List the saved logins; passwords are never shown
    #[command(visible_alias = "ls", after_help = "Example:\n  warren registry list --output json")]
    List(OwnerArgs),
    /// Remove saved logins
    #[command(visible_aliases = ["rm", "logout"], after_help = "Example:\n  warren registry remove ghcr.io")]
    Remove(ForgetArgs),
    /// Say whether an image can be had with what is saved, or why not; nothing is fetched
    #[command(after_help = "Example:\n  warren registry check-image ghcr.io/org/app:v1")]
    CheckImage(CheckImageArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AddArgs {
    /// Registry as in references: `docker.io`, `ghcr.io`, `localhost:5000`
    pub(crate) host: String,
    /// User name
    #[arg(long, short, value_name = "NAME")]
    pub(crate) user: String,
    /// Read the password from stdin instead of the terminal
    #[arg(long)]
    pub(crate) password_stdin: bool,
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ForgetArgs {
    /// Registries as `registry list` shows them
    #[arg(value_name = "HOST", required = true)]
    pub(crate) hosts: Vec<String>,
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CheckImageArgs {
    /// Any reference that a sandbox could name
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct OwnerArgs {
    /// Team that it belongs to [env: PRIME_TEAM_ID] [default: your own]
    #[arg(long, value_name = "ID")]
    pub(crate) team: Option<String>,
}
