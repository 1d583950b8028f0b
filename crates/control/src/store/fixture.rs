//! Rows for tests.

use super::{Intent, Placement, SandboxRow};
use warren_model::egress::EgressPolicy;
use warren_model::{SandboxId, Status};
use warren_proto::http::CreateSandbox;

/// A row of a sandbox that was just asked for.
pub(crate) fn row(number: u128) -> SandboxRow {
    SandboxRow {
        id: SandboxId::from_bits(number),
        user_id: "u1".into(),
        team_id: None,
        request: CreateSandbox { name: "test".into(), docker_image: Some("busybox".into()), ..CreateSandbox::default() },
        secrets: Some("x1.sealed".into()),
        intent: Intent::Run,
        placement: Placement::Queued,
        status: Status::Pending,
        image_build_id: None,
        image_digest: None,
        egress: EgressPolicy::Deny(vec![]),
        egress_generation: 1,
        egress_applied: 0,
        error_type: None,
        error_message: None,
        termination_reason: None,
        infra_fault: false,
        exit_code: None,
        logs: None,
        created_at_ms: 1,
        updated_at_ms: 1,
        started_at_ms: None,
        ended_at_ms: None,
        version: 1,
    }
}
