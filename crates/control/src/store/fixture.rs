//! Rows for tests.

use super::{Intent, Membership, NewSandbox, Placement, SandboxRow, Store, User};
use crate::quota::Quota;
use warren_model::egress::EgressPolicy;
use warren_model::{SandboxId, Status};
use warren_proto::http::CreateSandbox;

/// A store in a directory that goes with the first value; it has the users u1 and u2 and the team c1.
pub(crate) async fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    for slug in ["u1", "u2"] {
        let [id, name, email] = [slug; 3].map(str::to_owned);
        let user = User { id, slug: slug.to_owned(), name, email, is_admin: false };
        store.user_insert(&user, &format!("hash of {slug}"), 1).await.unwrap();
    }
    let [team_id, slug, name] = ["c1"; 3].map(str::to_owned);
    let team = Membership { team_id, slug, name, role: "admin".to_owned(), created_at_ms: 1 };
    store.team_insert(&team, "u1").await.unwrap();
    (dir, store)
}

/// Ready to insert, without limits.
pub(crate) fn new(row: SandboxRow) -> NewSandbox {
    NewSandbox { row, idempotency: None, key_hash: "hash of u1".to_owned(), vcpus: 1, quota: Quota::default() }
}

/// A row of a sandbox that was just asked for.
pub(crate) fn row(number: u128) -> SandboxRow {
    SandboxRow {
        id: SandboxId::from_bits(number),
        user_id: "u1".into(),
        team_id: None,
        request: CreateSandbox {
            name: "test".into(),
            docker_image: Some("busybox".into()),
            ..CreateSandbox::default()
        },
        secrets: Some("x1.sealed".into()),
        intent: Intent::Run,
        placement: Placement::Queued,
        status: Status::Pending,
        image_build_id: None,
        image_digest: None,
        egress: EgressPolicy::Deny(vec![]),
        egress_generation: 0,
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
