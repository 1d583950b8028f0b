//! The end of the guest's work, in order.

use crate::agent::Agent;
use crate::http::Refusal;
use std::time::Duration;
use warren_proto::guest::Shutdown;

/// Longest grace period, milliseconds.
const GRACE_MS_MAX: u64 = 60_000;

/// `POST /warren/shutdown`: stops the start command, then writes everything out to the disk.
pub async fn shutdown(agent: &Agent, asked: Shutdown) -> Result<serde_json::Map<String, serde_json::Value>, Refusal> {
    agent.start_command.stop(Duration::from_millis(asked.grace_ms.min(GRACE_MS_MAX))).await;
    let synced = tokio::task::spawn_blocking(rustix::fs::sync).await;
    synced.map_err(|error| Refusal::internal("sync", error))?;
    Ok(serde_json::Map::new())
}
