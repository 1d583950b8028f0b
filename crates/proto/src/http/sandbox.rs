use super::{GatewayAuth, StartCommand, StatusWord, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A sandbox as create, get and list show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    /// Unique for all time.
    pub id: String,
    /// For people.
    pub name: String,
    /// The reference as the client gave it.
    pub docker_image: String,
    /// Digest of the image it runs, once known.
    pub image_digest: Option<String>,
    /// Runs at start instead of the image's entrypoint.
    pub start_command: Option<StartCommand>,
    /// vCPUs as asked for; the machine has the next whole number.
    pub cpu_cores: f64,
    /// Memory, GiB.
    #[serde(rename = "memoryGB")]
    pub memory_gb: f64,
    /// Disk, GiB.
    #[serde(rename = "diskSizeGB")]
    pub disk_size_gb: f64,
    /// Where that disk is mounted.
    pub disk_mount_path: String,
    /// Always 0.
    pub gpu_count: u32,
    /// Always null.
    pub gpu_type: Option<String>,
    /// Always true.
    pub vm: bool,
    /// Only these may be reached.
    pub network_allowlist: Option<Vec<String>>,
    /// All but these may be reached.
    pub network_denylist: Option<Vec<String>>,
    /// Status.
    pub status: StatusWord,
    /// Lifetime from RUNNING, minutes, as asked for; 0 and less is unlimited.
    pub timeout_minutes: i64,
    /// End after so many minutes without an active operation.
    pub idle_timeout_minutes: Option<i64>,
    /// How it ended, for people.
    pub termination_reason: Option<String>,
    /// In clear.
    pub environment_vars: Option<BTreeMap<String, String>>,
    /// Names, with `***` for each value.
    pub secrets: Option<BTreeMap<String, String>>,
    /// As given.
    pub advanced_configs: Option<serde_json::Map<String, serde_json::Value>>,
    /// For filters.
    pub labels: Vec<String>,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When anything of this changed last.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// First RUNNING.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub terminated_at: Option<Timestamp>,
    /// Exit code of the start command, if it had ended by the end of the sandbox.
    pub exit_code: Option<i32>,
    /// From the closed list of error types.
    pub error_type: Option<String>,
    /// For people.
    pub error_message: Option<String>,
    /// Whether the platform failed, so that the episode says nothing about the task.
    #[serde(rename = "infra_fault", default)]
    pub infra_fault: bool,
    /// Who made it.
    pub user_id: Option<String>,
    /// Team that owns it.
    pub team_id: Option<String>,
    /// As given.
    pub region: Option<String>,
    /// Set while its image is being made ready.
    pub pending_image_build_id: Option<String>,
    /// The snapshot that it went on from, if it is a fork.
    #[serde(default)]
    pub snapshot_id: Option<String>,
    /// The app template's snapshot that it went on from, if there was one for it.
    #[serde(default)]
    pub template_id: Option<String>,
    /// How often it was put back to a snapshot.
    #[serde(default)]
    pub generation: u64,
}

/// Answer of `POST /sandbox`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Created {
    /// The sandbox.
    #[serde(flatten)]
    pub sandbox: Sandbox,
    /// Spares the client the first `POST /sandbox/{id}/auth`.
    #[serde(rename = "gatewayAuth", skip_serializing_if = "Option::is_none")]
    pub gateway_auth: Option<GatewayAuth>,
}
