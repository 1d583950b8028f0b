use super::{Api, ApiError, Gateway};
use reqwest::Method;
use warren_proto::http::{
    BulkDelete, BulkDeleteAnswer, CreateSandbox, Created, Deleted, ErrorContext, GatewayAuth, Logs, Sandbox,
    SandboxList, StatusAnswer, StatusQuery, WhoamiAnswer,
};

impl Api {
    /// Asks for a sandbox. Safe to repeat with the same idempotency key.
    pub(crate) async fn create_sandbox(&self, request: &CreateSandbox) -> Result<Created, ApiError> {
        self.send(Method::POST, &["sandbox"], request).await
    }

    /// One page.
    pub(crate) async fn list_sandboxes(&self, query: &[(&str, String)]) -> Result<SandboxList, ApiError> {
        self.answer(self.request(Method::GET, &["sandbox"]).query(query)).await
    }

    /// One sandbox, ended ones included.
    pub(crate) async fn get_sandbox(&self, id: &str) -> Result<Sandbox, ApiError> {
        self.get(&["sandbox", id]).await
    }

    /// Where sandboxes are in their life; the server may hold the answer for a moment.
    pub(crate) async fn statuses(&self, ids: Vec<String>) -> Result<StatusAnswer, ApiError> {
        self.send(Method::POST, &["sandbox", "status:batchGet"], &StatusQuery { sandbox_ids: ids }).await
    }

    /// Output of the start command.
    pub(crate) async fn sandbox_logs(&self, id: &str) -> Result<Logs, ApiError> {
        self.get(&["sandbox", id, "logs"]).await
    }

    /// Why it ended, if it did.
    pub(crate) async fn error_context(&self, id: &str) -> Result<ErrorContext, ApiError> {
        self.get(&["sandbox", id, "error-context"]).await
    }

    /// Ends one. Ending an ended one succeeds.
    pub(crate) async fn delete_sandbox(&self, id: &str) -> Result<Deleted, ApiError> {
        self.answer(self.request(Method::DELETE, &["sandbox", id])).await
    }

    /// Ends many.
    pub(crate) async fn delete_sandboxes(&self, which: &BulkDelete) -> Result<BulkDeleteAnswer, ApiError> {
        self.send(Method::DELETE, &["sandbox"], which).await
    }

    /// Who the key belongs to.
    pub(crate) async fn whoami(&self) -> Result<WhoamiAnswer, ApiError> {
        self.get(&["user", "whoami"]).await
    }

    /// A fresh way to exec and files of one sandbox.
    pub(crate) async fn gateway(&self, id: &str) -> Result<Gateway, ApiError> {
        let auth: GatewayAuth = self.answer(self.request(Method::POST, &["sandbox", id, "auth"])).await?;
        Gateway::new(self.http.clone(), id, auth)
    }
}
