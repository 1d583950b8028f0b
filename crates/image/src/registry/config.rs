use std::collections::BTreeMap;
use std::fmt;

/// Which registries are reached how. Hosts are written as in references: `ghcr.io`, `localhost:5000`, `docker.io`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryConfig {
    /// Base URLs to try, in order, before the registry of a host itself: `https://mirror.example` or with a path.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Logins, by host of the registry or the mirror.
    pub credentials: BTreeMap<String, Credential>,
}

/// A login. Its password is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// User.
    pub user: String,
    /// Password or access token.
    pub password: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("user", &self.user).finish_non_exhaustive()
    }
}
