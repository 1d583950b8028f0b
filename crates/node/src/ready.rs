//! Runs one command in a sandbox, for the server itself.

use crate::builder::{Guest, run};
use crate::sandbox::Handle;
use crate::shim_client::ShimClient;
use std::time::Duration;

/// Runs `argv`, its output dropped, and gives the exit code. One that does not end in time runs on.
pub(crate) async fn exit_code(
    handle: &Handle,
    shim: ShimClient,
    argv: Vec<String>,
    wait: Duration,
) -> Result<i32, String> {
    let _operation = handle.activity.begin();
    let guest = Guest::new(shim);
    let ended = tokio::time::timeout(wait, run(&guest, argv, |_| {})).await;
    ended.map_err(|_| format!("the command did not end within {wait:?}"))?
}
