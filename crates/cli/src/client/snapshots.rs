use super::{Api, ApiError};
use reqwest::Method;
use warren_proto::http::{Fork, Forked, NewSnapshot, Reset, Sandbox, Snapshot, SnapshotDeleted, Snapshots};

/// What forks go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForkOf<'a> {
    /// A running sandbox, by its id.
    Sandbox(&'a str),
    /// A snapshot, by its id.
    Snapshot(&'a str),
}

impl<'a> ForkOf<'a> {
    /// Its id.
    pub(crate) fn id(self) -> &'a str {
        match self {
            ForkOf::Sandbox(id) | ForkOf::Snapshot(id) => id,
        }
    }
}

impl Api {
    /// Takes a snapshot of a running sandbox.
    pub(crate) async fn take_snapshot(&self, sandbox: &str, name: Option<String>) -> Result<Snapshot, ApiError> {
        self.send(Method::POST, &["sandbox", sandbox, "snapshots"], &NewSnapshot { name }).await
    }

    /// Snapshots of one sandbox.
    pub(crate) async fn snapshots_of(&self, sandbox: &str) -> Result<Snapshots, ApiError> {
        self.get(&["sandbox", sandbox, "snapshots"]).await
    }

    /// Snapshots of the caller, or of a team.
    pub(crate) async fn snapshots(&self, team_id: Option<&str>) -> Result<Snapshots, ApiError> {
        self.answer(self.request(Method::GET, &["snapshots"]).query(&[("teamId", team_id)])).await
    }

    /// One snapshot.
    pub(crate) async fn snapshot(&self, id: &str) -> Result<Snapshot, ApiError> {
        self.get(&["snapshots", id]).await
    }

    /// Lets a snapshot go.
    pub(crate) async fn delete_snapshot(&self, id: &str) -> Result<SnapshotDeleted, ApiError> {
        self.answer(self.request(Method::DELETE, &["snapshots", id])).await
    }

    /// Makes sandboxes that go on from a sandbox or a snapshot. Not safe to repeat: each call makes others.
    pub(crate) async fn fork(&self, of: ForkOf<'_>, wanted: &Fork) -> Result<Forked, ApiError> {
        let path = match of {
            ForkOf::Sandbox(id) => ["sandbox", id, "fork"],
            ForkOf::Snapshot(id) => ["snapshots", id, "fork"],
        };
        self.send(Method::POST, &path, wanted).await
    }

    /// Puts a sandbox back to a snapshot of its own.
    pub(crate) async fn reset_sandbox(&self, id: &str, snapshot_id: Option<String>) -> Result<Sandbox, ApiError> {
        self.send(Method::POST, &["sandbox", id, "reset"], &Reset { snapshot_id }).await
    }

    /// Pauses a running sandbox.
    pub(crate) async fn pause_sandbox(&self, id: &str) -> Result<Sandbox, ApiError> {
        self.answer(self.request(Method::POST, &["sandbox", id, "pause"])).await
    }

    /// Lets a paused sandbox go on.
    pub(crate) async fn resume_sandbox(&self, id: &str) -> Result<Sandbox, ApiError> {
        self.answer(self.request(Method::POST, &["sandbox", id, "resume"])).await
    }
}
