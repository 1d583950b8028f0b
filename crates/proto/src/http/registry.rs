use super::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// Body of `PUT /registry/credentials`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewRegistryCredential {
    /// Registry host as in references: `docker.io`, `ghcr.io`, `localhost:5000`.
    pub server: String,
    /// User.
    pub username: String,
    /// Password or access token.
    pub password: String,
    /// Team that owns it; the caller, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_id: Option<String>,
}

/// A saved login without its password, which no answer ever shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryCredential {
    /// Id; another one after each change.
    pub id: String,
    /// For people; the registry host.
    pub name: String,
    /// Registry host.
    pub server: String,
    /// User.
    pub username: String,
    /// When it was saved first.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it was saved last.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// Whose it is, if a user's own.
    pub user_id: Option<String>,
    /// Whose it is, if a team's.
    pub team_id: Option<String>,
}

/// Answer of `GET /registry/credentials` and `GET /template/registry-credentials`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegistryCredentials {
    /// By server.
    pub credentials: Vec<RegistryCredential>,
}

/// Body of `POST /registry/check-image`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckImage {
    /// Any reference that a sandbox could name.
    pub reference: String,
    /// Team whose saved login is used; the caller's own, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_id: Option<String>,
}

/// Whether an image can be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageCheck {
    /// Whether it can.
    pub accessible: bool,
    /// Its digest for this machine, if it can.
    pub digest: Option<String>,
    /// Why not, from the closed list of codes.
    pub code: Option<String>,
    /// For people.
    pub details: String,
}

/// Body of `POST /template/check-docker-image`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckDockerImage {
    /// Any reference that a sandbox could name.
    pub image: String,
    /// Id of the saved login to use; the caller's own for the registry, if absent.
    #[serde(default)]
    pub registry_credentials_id: Option<String>,
}

/// Answer of `POST /template/check-docker-image`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DockerImageCheck {
    /// Whether it can be had.
    pub accessible: bool,
    /// For people.
    pub details: String,
}

impl fmt::Debug for NewRegistryCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewRegistryCredential({:?} at {:?})", self.username, self.server)
    }
}
