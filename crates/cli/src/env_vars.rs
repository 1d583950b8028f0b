//! Every environment variable that the binary reads.

/// Server URL; wins over [`PRIME_API_BASE_URL`].
pub(crate) const WARREN_URL: &str = "WARREN_URL";
/// Server URL, as the `prime` clients know it.
pub(crate) const PRIME_API_BASE_URL: &str = "PRIME_API_BASE_URL";
/// API key; wins over [`PRIME_API_KEY`].
pub(crate) const WARREN_API_KEY: &str = "WARREN_API_KEY";
/// API key, as the `prime` clients know it.
pub(crate) const PRIME_API_KEY: &str = "PRIME_API_KEY";
/// PEM file with a certificate authority to trust.
pub(crate) const WARREN_CA_CERT: &str = "WARREN_CA_CERT";
/// Team, as the `prime` clients know it.
pub(crate) const PRIME_TEAM_ID: &str = "PRIME_TEAM_ID";
/// Data directory of the server.
pub(crate) const WARREN_DATA_DIR: &str = "WARREN_DATA_DIR";
/// Level and filters of the server's log, in the syntax of `tracing`; `info` if unset.
pub(crate) const WARREN_LOG: &str = "WARREN_LOG";
/// Where configuration of users lives; `~/.config` if unset.
pub(crate) const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// Where data of users lives; `~/.local/share` if unset.
pub(crate) const XDG_DATA_HOME: &str = "XDG_DATA_HOME";
/// Home directory.
pub(crate) const HOME: &str = "HOME";
