use super::endpoint::Endpoint;
use crate::progress::Progress;
use std::sync::Arc;
use std::time::Duration;
use warren_model::{ImageAccess, Login};

/// For whom registries are asked, and whom the asking keeps waiting.
#[derive(Debug, Clone)]
pub(crate) struct Errand {
    /// For whom.
    pub(crate) access: ImageAccess,
    /// Told of every wait and every byte.
    pub(crate) progress: Arc<Progress>,
    /// Longest time that one request waits in all while its registry limits the rate of requests.
    pub(crate) rate_wait_max: Duration,
}

impl Errand {
    /// The saved login of whoever asks, for the registry alone: no mirror is told it.
    pub(super) fn saved_login(&self, endpoint: &Endpoint) -> Option<&Login> {
        self.access.login.as_ref().filter(|_| !endpoint.is_mirror)
    }

    /// Whose the bytes are that come from an endpoint: those of whoever has a saved login there, whether it was
    /// needed or not; else everybody's.
    pub(super) fn scope(&self, endpoint: &Endpoint) -> Option<&str> {
        self.access.scope().filter(|_| !endpoint.is_mirror)
    }
}
