use super::KeyLimits;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of `POST /auth_challenge/generate`: a client that has no key begins a login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewChallenge {
    /// RSA public key of the client, PEM, for the key that it will get.
    #[serde(rename = "encryptionPublicKey")]
    pub encryption_public_key: String,
    /// Limits of that key.
    #[serde(default)]
    pub limits: KeyLimits,
}

/// A login waits for approval.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Challenge {
    /// Code that a user approves.
    pub challenge: String,
    /// Bearer token of the client, for asking how it stands.
    pub status_auth_token: String,
}

/// Answer of `GET /auth_challenge/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChallengeStatus {
    /// `pending` or `approved`.
    pub status: String,
    /// Base64 of the API key, encrypted by RSA-OAEP with SHA-256; once approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// Body of `POST /auth_challenge/approve`: the caller lets the login act for him.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApproveChallenge {
    /// The code that the client shows.
    pub challenge: String,
}
