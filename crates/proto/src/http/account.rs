use super::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Answer of `GET /user/whoami`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhoamiAnswer {
    /// The caller.
    pub data: Whoami,
}

/// Who calls, and within which limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    /// User id.
    pub id: String,
    /// For people.
    pub name: Option<String>,
    /// For people.
    pub email: Option<String>,
    /// Short name, used in image references.
    pub slug: Option<String>,
    /// What the key may do, by object name.
    pub scope: Option<BTreeMap<String, Permission>>,
    /// Limits of the account.
    pub account_limits: Option<AccountLimits>,
    /// Limits of the key.
    pub key_limits: Option<KeyLimits>,
}

/// What a key may do with one kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Permission {
    /// Read.
    pub read: bool,
    /// Make, change, delete.
    pub write: bool,
}

/// Limits of an account; absent is unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountLimits {
    /// Sandboxes alive at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_sandbox_limit: Option<u64>,
    /// vCPUs of all live sandboxes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_total_cpu_limit: Option<u64>,
    /// Creations in one burst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_sandbox_creation_burst_limit: Option<u64>,
}

/// Limits of an API key; absent is unlimited. Shown in snake case, and read in both cases, as a login sends them in camel case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyLimits {
    /// Sandboxes alive at once.
    #[serde(default, alias = "maxConcurrentSandboxes", skip_serializing_if = "Option::is_none")]
    pub max_concurrent_sandboxes: Option<u64>,
    /// Sandboxes made within an hour.
    #[serde(default, alias = "maxSandboxCreationsPerHour", skip_serializing_if = "Option::is_none")]
    pub max_sandbox_creations_per_hour: Option<u64>,
    /// vCPUs of all live sandboxes together.
    #[serde(default, alias = "maxSandboxCpuCores", skip_serializing_if = "Option::is_none")]
    pub max_sandbox_cpu_cores: Option<u64>,
    /// GPUs; kept and shown.
    #[serde(default, alias = "maxSandboxGpuCount", skip_serializing_if = "Option::is_none")]
    pub max_sandbox_gpu_count: Option<u64>,
    /// Tunnels at once; kept and shown.
    #[serde(default, alias = "maxConcurrentTunnels", skip_serializing_if = "Option::is_none")]
    pub max_concurrent_tunnels: Option<u64>,
    /// Tunnels made within an hour; kept and shown.
    #[serde(default, alias = "maxTunnelCreationsPerHour", skip_serializing_if = "Option::is_none")]
    pub max_tunnel_creations_per_hour: Option<u64>,
    /// Lifetime of a tunnel, hours; kept and shown.
    #[serde(default, alias = "maxTunnelTtlHours", skip_serializing_if = "Option::is_none")]
    pub max_tunnel_ttl_hours: Option<u64>,
}

/// Answer of `GET /user/teams`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Teams {
    /// The page.
    pub data: Vec<Team>,
    /// Teams on all pages.
    pub total_count: u64,
}

/// A team, seen by one of its members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Team {
    /// `c` and 24 characters of `a-z0-9`.
    pub team_id: String,
    /// For people.
    pub name: String,
    /// Short name.
    pub slug: String,
    /// The caller's role: `admin` or `member`.
    pub role: String,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// Answer of `GET /teams/{team_id}/members`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Members {
    /// All members, oldest first.
    pub data: Vec<Member>,
}

/// One member of a team.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// User id.
    pub user_id: String,
    /// For people.
    pub user_name: String,
    /// For people.
    pub user_email: String,
    /// `admin` or `member`.
    pub role: String,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub joined_at: Timestamp,
}

/// Answer of `GET /billing/wallet`: Warren takes no money, so all sums are zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Wallet {
    /// One wallet per scope.
    pub wallet_id: String,
    /// The team, if asked for one.
    pub team_id: Option<String>,
    /// Always 0.
    pub balance_usd: f64,
    /// Always `USD`.
    pub currency: String,
    /// Always 0.
    pub total_billings: u64,
    /// Always empty.
    pub recent_billings: Vec<Billing>,
}

/// One billed resource. Never sent by Warren.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Billing {
    /// Id.
    pub id: String,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it changed.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// When it was billed last.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_billed_at: Option<Timestamp>,
    /// Sum.
    pub amount_usd: f64,
    /// Currency.
    pub currency: String,
    /// Kind of resource.
    pub resource_type: String,
    /// The resource.
    pub resource_id: Option<String>,
}

/// Makes a user with one API key. Administrators only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NewUser {
    /// Short name, unique: 1 to 39 characters of `a-z0-9-`.
    pub slug: String,
    /// For people; the slug, if absent.
    #[serde(default)]
    pub name: Option<String>,
    /// For people.
    #[serde(default)]
    pub email: Option<String>,
    /// Whether the user administers this server.
    #[serde(default)]
    pub admin: bool,
}

/// A user was made. The only answer that ever shows the key.
#[derive(Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserCreated {
    /// User id.
    pub user_id: String,
    /// API key; the server keeps its hash only.
    pub api_key: String,
}

/// Makes a team, with the caller as its first administrator. Administrators of the server only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NewTeam {
    /// Short name, unique: 1 to 39 characters of `a-z0-9-`.
    pub slug: String,
    /// For people; the slug, if absent.
    #[serde(default)]
    pub name: Option<String>,
}

/// Adds a member to a team or changes the role. Administrators of the team or the server only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NewMember {
    /// The user.
    pub user_id: String,
    /// `admin` or `member`.
    pub role: String,
}
