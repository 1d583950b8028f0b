//! What each command does, given plain values.

pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod images;
pub(crate) mod registry;
mod removed;
pub(crate) mod sandbox;
pub(crate) mod serve;
pub(crate) mod shim;
pub(crate) mod snapshot;
pub(crate) mod template;
pub(crate) mod volumes;

use crate::client::Api;
use crate::printer::Printer;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a client command works with.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The server.
    pub(crate) api: Api,
    /// Where answers go.
    pub(crate) printer: Printer,
    /// Team to use where the command names none.
    pub(crate) team_id: Option<String>,
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
