use super::*;
use crate::store::{NewSandbox, fixture};
use warren_proto::node::CheckpointMade;

fn id(text: &str) -> CheckpointId {
    CheckpointId::parse(text).unwrap()
}

async fn sandbox(store: &Store, number: u128, checkpoint_id: Option<&str>) -> SandboxRow {
    let mut row = fixture::row(number);
    row.request.checkpoint_id = checkpoint_id.map(str::to_owned);
    let new: NewSandbox = fixture::new(row.clone());
    store.sandbox_insert(&new).await.unwrap();
    row
}

async fn insert(store: &Store, text: &str, sandbox: &SandboxRow) -> CheckpointRow {
    let new = NewCheckpoint { id: &id(text), sandbox, count_max: 3, now_ms: 7 };
    match store.checkpoint_insert(&new).await.unwrap() {
        Taken::New(row) => *row,
        Taken::TooMany => panic!("too many"),
    }
}

fn durable() -> CheckpointState {
    let digest = "sha256:1".to_owned();
    CheckpointState::Durable(CheckpointMade { digest, disk_size_bytes: 3, stored_bytes: 1, occupied_bytes: 2 })
}

#[tokio::test]
async fn each_lies_on_the_one_before_and_a_restored_sandboxs_on_its_source() {
    let (_dir, store) = fixture::store().await;
    let source = sandbox(&store, 1, None).await;
    let first = insert(&store, "k1", &source).await;
    assert_eq!((first.parent_id, first.depth, first.docker_image.as_str()), (None, 0, "busybox"));
    let failed = CheckpointState::Failed { problem: "why".to_owned() };
    insert(&store, "k2", &source).await;
    store.checkpoint_settle(&id("k2"), &failed, 8).await.unwrap();
    let third = insert(&store, "k3", &source).await;
    assert_eq!((third.parent_id.as_deref(), third.depth), (Some("k1"), 1), "a failed one bears nothing");
    let child = sandbox(&store, 2, Some("k3")).await;
    let of_child = insert(&store, "k4", &child).await;
    assert_eq!((of_child.parent_id.as_deref(), of_child.depth), (Some("k3"), 2));
    let new = NewCheckpoint { id: &id("k5"), sandbox: &source, count_max: 3, now_ms: 7 };
    assert_eq!(store.checkpoint_insert(&new).await.unwrap(), Taken::TooMany);
    let listed: Vec<_> = store.checkpoints_of(&source.id).await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(listed.len(), 3);
    assert_eq!(listed[0], id("k1"));
}

#[tokio::test]
async fn a_life_in_order() {
    let (_dir, store) = fixture::store().await;
    let source = sandbox(&store, 1, None).await;
    insert(&store, "k1", &source).await;
    assert!(!store.checkpoint_delete(&id("k1"), 8).await.unwrap(), "not while it is pending");
    store.checkpoint_settle(&id("k1"), &durable(), 8).await.unwrap();
    store.checkpoint_settle(&id("k1"), &CheckpointState::Failed { problem: String::new() }, 9).await.unwrap();
    let row = store.checkpoint_get(&id("k1")).await.unwrap().unwrap();
    assert_eq!((row.stage, row.made.unwrap().occupied_bytes, row.updated_at_ms), (CheckpointStage::Durable, 2, 8));
    store.checkpoint_withdraw(&id("k1")).await.unwrap();
    assert!(store.checkpoint_delete(&id("k1"), 10).await.unwrap());
    assert!(store.checkpoints_of(&source.id).await.unwrap().is_empty());
    assert_eq!(store.checkpoints_at(CheckpointStage::Deleting).await.unwrap().len(), 1);
    store.checkpoint_deleted(&id("k1"), 11).await.unwrap();
    assert_eq!(store.checkpoint_get(&id("k1")).await.unwrap().unwrap().stage, CheckpointStage::Deleted);
    store.purge(8 * 24 * 3_600_000).await.unwrap();
    assert_eq!(store.checkpoint_get(&id("k1")).await.unwrap(), None);
}

#[tokio::test]
async fn an_image_is_needed_until_the_last_sandbox_of_it_has_ended() {
    let (_dir, store) = fixture::store().await;
    let mut row = fixture::row(1);
    row.node_image = Some("prime/_checkpoint/k1@sha256:1".to_owned());
    assert!(!store.image_needed("prime/_checkpoint/k1@sha256:1").await.unwrap());
    store.sandbox_insert(&fixture::new(row.clone())).await.unwrap();
    assert!(store.image_needed("prime/_checkpoint/k1@sha256:1").await.unwrap());
    let end = |row: &mut SandboxRow| {
        row.ended_at_ms = Some(9);
        true
    };
    store.sandbox_update(&row.id, crate::store::Durability::Power, 9, end).await.unwrap();
    assert!(!store.image_needed("prime/_checkpoint/k1@sha256:1").await.unwrap());
}
