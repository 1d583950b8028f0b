//! What the operator may set.

/// Live sandboxes of one user, the queue included, if the operator sets no other limit.
const SANDBOXES_PER_USER_DEFAULT: u64 = 20_000;

/// Settings of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Most live sandboxes of one user; `None` is unlimited.
    pub sandboxes_per_user_max: Option<u64>,
    /// Architecture of the guests: `amd64` or `arm64`.
    pub arch: String,
    /// Whether a reverse proxy in front sets `X-Forwarded-Proto`, so that it may be believed.
    pub trust_forwarded_proto: bool,
}

impl Default for Config {
    fn default() -> Self {
        let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        Config {
            sandboxes_per_user_max: Some(SANDBOXES_PER_USER_DEFAULT),
            arch: arch.to_owned(),
            trust_forwarded_proto: false,
        }
    }
}
