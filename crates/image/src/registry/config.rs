use std::collections::BTreeMap;
use std::time::Duration;
use warren_model::Login;

/// Longest time that one request waits in all while its registry limits the rate of requests, if the operator says nothing.
const RATE_WAIT_MAX_DEFAULT: Duration = Duration::from_secs(120);

/// Which registries are reached how. Hosts are written as in references: `ghcr.io`, `localhost:5000`, `docker.io`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryConfig {
    /// Base URLs to try, in order, before the registry of a host itself: `https://mirror.example` or with a path.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Logins for everybody, by host of the registry or the mirror. A saved login of whoever asks comes first.
    pub credentials: BTreeMap<String, Login>,
    /// Longest time that one request waits in all while its registry limits the rate of requests.
    pub rate_wait_max: Duration,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self { mirrors: BTreeMap::new(), credentials: BTreeMap::new(), rate_wait_max: RATE_WAIT_MAX_DEFAULT }
    }
}
