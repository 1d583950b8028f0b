use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files that are asked for at most; each exec of a client is a connection, and each sandbox has a few more.
const OPEN_FILES_WANTED: u64 = 1 << 20;

/// Raises this process's limit of open files as far as it may be raised.
pub(super) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES_WANTED, |hard| hard.min(OPEN_FILES_WANTED));
    if limit.current.is_some_and(|now| now < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, wanted, "the limit of open files stays as it is");
        }
    }
}
