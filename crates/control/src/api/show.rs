//! A row as the public API shows it.

use crate::store::SandboxRow;
use std::collections::BTreeMap;
use warren_proto::http::{EgressLists, EgressStatus, ErrorContext, Sandbox, StatusSnapshot, Timestamp};

/// What stands in place of a secret's value.
pub(super) const MASK: &str = "***";

/// Where the disk is mounted: it is the root.
const DISK_MOUNT_PATH: &str = "/";

/// The same names, the values replaced.
pub(super) fn masked(secrets: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    secrets.keys().map(|name| (name.clone(), MASK.to_owned())).collect()
}

/// For create, get and list.
pub(super) fn sandbox(row: SandboxRow) -> Sandbox {
    // No list at all and an empty deny list mean the same and are shown as they were asked for.
    let egress = EgressLists::from(&row.egress);
    let request = row.request;
    Sandbox {
        id: row.id.to_string(),
        name: request.name,
        docker_image: request.docker_image.unwrap_or_default(),
        image_digest: row.image_digest,
        start_command: request.start_command,
        cpu_cores: request.cpu_cores,
        memory_gb: request.memory_gb,
        disk_size_gb: request.disk_size_gb.unwrap_or(warren_proto::http::DISK_GB_DEFAULT),
        disk_mount_path: DISK_MOUNT_PATH.to_owned(),
        gpu_count: request.gpu_count,
        gpu_type: request.gpu_type,
        vm: true,
        network_allowlist: egress.allowlist,
        network_denylist: egress.denylist.filter(|list| !list.is_empty() || request.network_denylist.is_some()),
        status: row.status.into(),
        timeout_minutes: request.timeout_minutes,
        idle_timeout_minutes: request.idle_timeout_minutes,
        termination_reason: row.termination_reason,
        environment_vars: request.environment_vars,
        secrets: request.secrets.as_ref().map(masked),
        advanced_configs: request.advanced_configs,
        labels: request.labels,
        created_at: Timestamp::from_ms(row.created_at_ms),
        updated_at: Timestamp::from_ms(row.updated_at_ms),
        started_at: row.started_at_ms.map(Timestamp::from_ms),
        terminated_at: row.ended_at_ms.map(Timestamp::from_ms),
        exit_code: row.exit_code,
        error_type: row.error_type,
        error_message: row.error_message,
        infra_fault: row.infra_fault,
        user_id: Some(row.user_id),
        team_id: row.team_id,
        region: request.region,
        pending_image_build_id: row.image_build_id,
        snapshot_id: row.snapshot_id.map(String::from),
        template_id: row.template_id.map(String::from),
        generation: row.generation,
    }
}

/// For `status:batchGet`.
pub(super) fn snapshot(row: SandboxRow) -> StatusSnapshot {
    StatusSnapshot {
        sandbox_id: row.id.to_string(),
        status: row.status.into(),
        error_type: row.error_type,
        error_message: row.error_message,
        pending_image_build_id: row.image_build_id,
    }
}

/// For `error-context`.
pub(super) fn error_context(row: SandboxRow) -> ErrorContext {
    ErrorContext {
        status: Some(row.status.into()),
        error_type: row.error_type,
        error_message: row.error_message,
        infra_fault: row.infra_fault,
    }
}

/// For the egress policy.
pub(super) fn egress(row: &SandboxRow) -> EgressStatus {
    EgressStatus {
        policy: EgressLists::from(&row.egress),
        generation: row.egress_generation,
        applied_generation: row.egress_applied,
        applied: row.egress_applied >= row.egress_generation,
    }
}
