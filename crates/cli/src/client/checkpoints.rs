use super::{Api, ApiError};
use reqwest::Method;
use warren_proto::http::{
    Checkpoint, CheckpointAnswer, CheckpointDeleted, CheckpointQuery, Checkpoints, CheckpointsDeleted,
};

impl Api {
    /// Freezes the disk of a running sandbox.
    pub(crate) async fn create_checkpoint(&self, sandbox: &str) -> Result<Checkpoint, ApiError> {
        self.answer(self.request(Method::POST, &["sandbox", sandbox, "checkpoints"])).await
    }

    /// All of a sandbox, the oldest first.
    pub(crate) async fn list_checkpoints(&self, sandbox: &str) -> Result<Checkpoints, ApiError> {
        self.get(&["sandbox", sandbox, "checkpoints"]).await
    }

    /// One.
    pub(crate) async fn get_checkpoint(&self, id: &str) -> Result<Checkpoint, ApiError> {
        self.get(&["sandbox", "checkpoints", id]).await
    }

    /// Some; the server may hold the answer for a moment.
    pub(crate) async fn get_checkpoints(&self, ids: Vec<String>) -> Result<CheckpointAnswer, ApiError> {
        let query = CheckpointQuery { checkpoint_ids: ids };
        self.send(Method::POST, &["sandbox", "checkpoints:batchGet"], &query).await
    }

    /// Deletes one.
    pub(crate) async fn delete_checkpoint(&self, id: &str) -> Result<CheckpointDeleted, ApiError> {
        self.answer(self.request(Method::DELETE, &["sandbox", "checkpoints", id])).await
    }

    /// Deletes all of a sandbox that may be.
    pub(crate) async fn delete_checkpoints(&self, sandbox: &str) -> Result<CheckpointsDeleted, ApiError> {
        self.answer(self.request(Method::DELETE, &["sandbox", sandbox, "checkpoints"])).await
    }
}
