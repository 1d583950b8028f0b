use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of `DELETE /sandbox`: which sandboxes to delete. Ids alone, or a selection by label, user or team.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkDelete {
    /// Exactly these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_ids: Option<Vec<String>>,
    /// Those that have all of these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// Those of this team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_id: Option<String>,
    /// Those of this user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Those of everybody in the scope; administrators only.
    #[serde(default)]
    pub all_users: bool,
}

/// Answer of `DELETE /sandbox`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkDeleteAnswer {
    /// Deleted now or before.
    pub succeeded: Vec<String>,
    /// Not deleted, with the reason.
    pub failed: Vec<BulkDeleteFailure>,
    /// For people.
    pub message: String,
}

/// One sandbox that was not deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkDeleteFailure {
    /// Which.
    pub sandbox_id: String,
    /// Why.
    pub error: String,
}

/// Answer of `DELETE /sandbox/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deleted {
    /// Which.
    pub id: String,
    /// Its status now.
    pub status: String,
}
