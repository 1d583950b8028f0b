use super::*;
use crate::store::{VolumeDeleted, VolumeRow, fixture};
use warren_proto::http::VolumeMount;
use warren_proto::node::CheckpointState;

const HOUR_MS: u64 = 3_600_000;

async fn volume(store: &Store, name: &str) -> VolumeRow {
    let row = VolumeRow {
        id: format!("v{name}"),
        scope: "user:u1".into(),
        name: name.into(),
        creator_id: "u1".into(),
        head: None,
        created_at_ms: 1,
    };
    assert!(store.volume_insert(&row, 10).await.unwrap());
    row
}

async fn sandbox(store: &Store, number: u128, read_only: bool) -> SandboxRow {
    let mut row = fixture::row(number);
    row.request.volumes = Some(vec![VolumeMount { name: "data".into(), mount_path: "/data".into(), read_only }]);
    store.sandbox_insert(&fixture::new(row.clone())).await.unwrap();
    row
}

async fn publish(store: &Store, id: &str, sandbox: &SandboxRow, force: bool) -> Publish {
    let id = CheckpointId::parse(id).unwrap();
    store.publish_insert(&NewPublish { id: &id, sandbox, volume: "data", force, now_ms: 5 }).await.unwrap()
}

async fn settle(store: &Store, id: &str, now_ms: u64) {
    let made =
        CheckpointMade { digest: format!("sha256:{id}"), disk_size_bytes: 3, stored_bytes: 1, occupied_bytes: 2 };
    store.checkpoint_settle(&CheckpointId::parse(id).unwrap(), &CheckpointState::Durable(made), now_ms).await.unwrap();
}

async fn end(store: &Store, sandbox: &SandboxRow) {
    let end = |row: &mut SandboxRow| row.ended_at_ms.replace(9).is_none();
    store.sandbox_update(&sandbox.id, crate::store::Durability::Power, 9, end).await.unwrap();
}

#[tokio::test]
async fn the_head_moves_when_a_version_is_durable_and_conflicts_are_told() {
    let (_dir, store) = fixture::store().await;
    volume(&store, "data").await;
    let (first, second, reader) =
        (sandbox(&store, 1, false).await, sandbox(&store, 2, false).await, sandbox(&store, 3, true).await);
    assert_eq!(publish(&store, "k0", &reader, true).await, Publish::ReadOnly);
    let other = fixture::row(4);
    store.sandbox_insert(&fixture::new(other.clone())).await.unwrap();
    assert_eq!(publish(&store, "k0", &other, true).await, Publish::NotAttached);
    assert!(matches!(publish(&store, "k1", &first, false).await, Publish::New(row, 0) if row.parent_id.is_none()));
    for sandbox in [&first, &second] {
        assert_eq!(publish(&store, "k2", sandbox, true).await, Publish::Pending("k1".into()));
    }
    assert_eq!(store.volume_get("user:u1", "data").await.unwrap().unwrap().head, None);
    settle(&store, "k1", 6).await;
    let head = store.volume_get("user:u1", "data").await.unwrap().unwrap().head.unwrap();
    assert_eq!((head.checkpoint_id.as_str(), head.digest.as_str(), head.bytes), ("k1", "sha256:k1", 2));
    // The same sandbox goes on from what it published; the other does not know of it.
    assert!(matches!(publish(&store, "k2", &first, false).await, Publish::New(row, 0) if row.depth == 1));
    settle(&store, "k2", 7).await;
    assert_eq!(publish(&store, "k3", &second, false).await, Publish::HeadMoved("k2".into()));
    assert!(matches!(publish(&store, "k3", &second, true).await, Publish::New(..)));
    // Its disk lies on what it always did.
    assert_eq!(store.attachments(&first.id).await.unwrap()[0].base_digest, None);
    // Checkpoints of the sandbox's root disk are others.
    assert_eq!(store.checkpoints_of(&first.id).await.unwrap(), []);
}

#[tokio::test]
async fn what_is_superseded_goes_after_an_hour_and_not_what_sandboxes_lie_on() {
    let (_dir, store) = fixture::store().await;
    volume(&store, "data").await;
    let writer = sandbox(&store, 1, false).await;
    for (id, at) in [("k1", 6), ("k2", 7)] {
        publish(&store, id, &writer, false).await;
        settle(&store, id, at).await;
    }
    assert_eq!(store.superseded_delete(6).await.unwrap(), 0, "too young");
    assert_eq!(store.superseded_delete(HOUR_MS).await.unwrap(), 1);
    let deleting = store.checkpoints_at(CheckpointStage::Deleting).await.unwrap();
    assert_eq!(deleting.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["k1"]);
    let on_head = sandbox(&store, 2, true).await;
    assert!(
        store.volume_image_needed("sha256:k2").await.unwrap() && !store.volume_image_needed("sha256:k1").await.unwrap()
    );
    assert!(store.is_head(&CheckpointId::parse("k2").unwrap()).await.unwrap());
    // In use; then a publish is pending; then it goes with its versions.
    assert!(matches!(store.volume_delete("vdata", 9).await.unwrap(), VolumeDeleted::Attached(_)));
    publish(&store, "k3", &writer, false).await;
    for sandbox in [&writer, &on_head] {
        end(&store, sandbox).await;
    }
    assert_eq!(store.volume_delete("vdata", 9).await.unwrap(), VolumeDeleted::Publishing("k3".into()));
    settle(&store, "k3", 8).await;
    assert_eq!(store.volume_delete("vdata", 9).await.unwrap(), VolumeDeleted::Gone);
    assert_eq!(store.checkpoints_at(CheckpointStage::Deleting).await.unwrap().len(), 3);
}

#[tokio::test]
async fn sandboxes_go_with_their_attachments() {
    let (_dir, store) = fixture::store().await;
    volume(&store, "data").await;
    let row = sandbox(&store, 1, false).await;
    let end = |row: &mut SandboxRow| {
        (row.placement, row.ended_at_ms) = (crate::store::Placement::Gone, Some(9));
        true
    };
    store.sandbox_update(&row.id, crate::store::Durability::Power, 9, end).await.unwrap();
    assert_eq!(store.purge(8 * 24 * HOUR_MS).await.unwrap(), 1);
    assert_eq!(store.attachments(&row.id).await.unwrap(), []);
}
