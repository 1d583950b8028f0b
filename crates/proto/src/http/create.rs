use super::EgressLists;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use utoipa::ToSchema;

/// Body of `POST /sandbox`.
#[derive(Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CreateSandbox {
    /// For people.
    pub name: String,
    /// Image reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docker_image: Option<String>,
    /// Checkpoint to start from instead of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<String>,
    /// `amd64` or `arm64`; the server's own, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// Runs at start instead of the image's entrypoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_command: Option<StartCommand>,
    /// vCPUs; fractions round up.
    #[serde(default = "one")]
    pub cpu_cores: f64,
    /// Memory, GiB.
    #[serde(default = "one")]
    pub memory_gb: f64,
    /// Disk, GiB; 5 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_size_gb: Option<f64>,
    /// Must be 0.
    #[serde(default)]
    pub gpu_count: u32,
    /// Must be absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// Only these may be reached; empty closes everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_allowlist: Option<Vec<String>>,
    /// All but these may be reached; empty opens everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_denylist: Option<Vec<String>>,
    /// Lifetime from RUNNING, minutes; 0 and less is unlimited.
    #[serde(default = "sixty")]
    pub timeout_minutes: i64,
    /// End after so many minutes without an active operation; absent is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_minutes: Option<i64>,
    /// Environment of every command, shown in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_vars: Option<BTreeMap<String, String>>,
    /// Environment of every command, never shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<BTreeMap<String, String>>,
    /// For filters.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Team that owns it; the caller, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_id: Option<String>,
    /// Kept and shown; one machine has one region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Kept and shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advanced_configs: Option<serde_json::Map<String, serde_json::Value>>,
    /// Volumes to mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<VolumeMount>>,
    /// The same key again answers the same sandbox, for 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// An argv, without a shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartCommand {
    /// Program, looked up in the guest's PATH.
    pub executable: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
}

/// A volume in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeMount {
    /// Its name in the owner's scope.
    pub name: String,
    /// Absolute path in the guest.
    pub mount_path: String,
    /// Whether the guest may write.
    #[serde(default)]
    pub read_only: bool,
}

/// Disk if the client does not say, GiB.
pub const DISK_GB_DEFAULT: f64 = 5.0;

fn one() -> f64 {
    1.0
}

fn sixty() -> i64 {
    60
}

impl fmt::Debug for CreateSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Environment and secrets stay out of logs.
        let image = self.docker_image.as_deref().unwrap_or("-");
        write!(f, "CreateSandbox({:?} from {image:?})", self.name)
    }
}

impl Default for CreateSandbox {
    /// What a client that says nothing asks for; name and image are still missing.
    fn default() -> Self {
        CreateSandbox {
            name: String::new(),
            docker_image: None,
            checkpoint_id: None,
            arch: None,
            start_command: None,
            cpu_cores: one(),
            memory_gb: one(),
            disk_size_gb: None,
            gpu_count: 0,
            gpu_type: None,
            network_allowlist: None,
            network_denylist: None,
            timeout_minutes: sixty(),
            idle_timeout_minutes: None,
            environment_vars: None,
            secrets: None,
            labels: Vec::new(),
            team_id: None,
            region: None,
            advanced_configs: None,
            volumes: None,
            idempotency_key: None,
        }
    }
}

impl CreateSandbox {
    /// The two egress lists.
    pub fn egress(&self) -> EgressLists {
        EgressLists { allowlist: self.network_allowlist.clone(), denylist: self.network_denylist.clone() }
    }

    /// Disk as asked for, GiB.
    pub fn disk_gb(&self) -> f64 {
        self.disk_size_gb.unwrap_or(DISK_GB_DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let request = CreateSandbox {
            secrets: Some(BTreeMap::from([("K".to_owned(), "hunter2".to_owned())])),
            ..CreateSandbox::default()
        };
        assert!(!format!("{request:?}").contains("hunter2"));
    }
}
