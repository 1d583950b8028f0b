//! Rows for tests.

use super::{BuildRow, Membership, NewSandbox, SandboxRow, Store, User};
use crate::builds::State;
use crate::images::Owner;
use crate::quota::Quota;
use warren_model::SandboxId;
use warren_model::egress::EgressPolicy;
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
    let request =
        CreateSandbox { name: "test".into(), docker_image: Some("busybox".into()), ..CreateSandbox::default() };
    let asked = SandboxRow::asked(SandboxId::from_bits(number), "u1".into(), None, request, EgressPolicy::open(), 1);
    SandboxRow { secrets: Some("x1.sealed".into()), ..asked }
}

/// A build of u1's image `name:v1` from a registry, in the queue.
pub(crate) fn build(id: &str, name: &str) -> BuildRow {
    BuildRow {
        id: id.to_owned(),
        image_id: String::new(),
        user_id: "u1".to_owned(),
        owner: Owner::User("u1".to_owned()),
        name: name.to_owned(),
        tag: "v1".to_owned(),
        visibility: None,
        source: Some("ghcr.io/o/app:v1".to_owned()),
        dockerfile: None,
        build_args: Default::default(),
        state: State::Queued,
        attempts: 0,
        error_code: None,
        error_message: None,
        digest: None,
        upload_by_ms: 1,
        created_at_ms: 1,
        queued_at_ms: Some(1),
        started_at_ms: None,
        ended_at_ms: None,
    }
}
