use super::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where and with what a client reaches the data plane of one sandbox: `{gateway_url}/{user_ns}/{job_id}/<operation>`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GatewayAuth {
    /// Without a trailing slash.
    pub gateway_url: String,
    /// Opaque path segment of the owner.
    pub user_ns: String,
    /// Opaque path segment of the sandbox.
    pub job_id: String,
    /// Bearer token, bound to the one sandbox.
    pub token: String,
    /// After this the token is refused.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for GatewayAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A token in a log opens the sandbox.
        write!(f, "GatewayAuth({}/{}/{}, until {})", self.gateway_url, self.user_ns, self.job_id, self.expires_at)
    }
}
