use super::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// Body of `POST /secrets/`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewSecret {
    /// `A-Z` first, then `A-Z`, `0-9` and `_`.
    pub name: String,
    /// The value; base64 of the content, if it is a file.
    pub value: String,
    /// For people.
    #[serde(default)]
    pub description: Option<String>,
    /// Whether the value is a file.
    #[serde(default)]
    pub is_file: bool,
    /// Team that owns it; the caller, if absent.
    #[serde(default)]
    pub team_id: Option<String>,
}

/// Body of `PATCH /secrets/{id}`; what is absent stays.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeSecret {
    /// New name.
    #[serde(default)]
    pub name: Option<String>,
    /// New value.
    #[serde(default)]
    pub value: Option<String>,
    /// New description.
    #[serde(default)]
    pub description: Option<String>,
}

/// A secret without its value, which no answer ever shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Secret {
    /// Id.
    pub id: String,
    /// Name.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// Whether the value is a file.
    pub is_file: bool,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it changed last.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

/// Answer about one secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretAnswer {
    /// The secret.
    pub data: Secret,
}

/// Answer of `GET /secrets/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secrets {
    /// All of the scope, by name.
    pub data: Vec<Secret>,
}

impl fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewSecret({:?})", self.name)
    }
}

impl fmt::Debug for ChangeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChangeSecret(to {:?})", self.name)
    }
}
