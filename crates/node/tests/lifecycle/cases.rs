use crate::world::{assert_clean, id, kill, open, running, shims, spec, until, with_image};
use crate::{images, snapshots};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use warren_model::{EndReason, Status};
use warren_proto::node::{CreateError, NodeApi, NodeError};

type Case = fn() -> Pin<Box<dyn Future<Output = ()>>>;

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_life_leaves_nothing", || Box::pin(a_life_leaves_nothing())),
    ("a_delete_wins_at_every_moment_of_a_create", || Box::pin(a_delete_wins_at_every_moment_of_a_create())),
    ("a_delete_before_its_create_wins_too", || Box::pin(a_delete_before_its_create_wins_too())),
    ("a_restart_adopts_what_runs", || Box::pin(a_restart_adopts_what_runs())),
    ("a_killed_shim_is_an_infrastructure_fault", || Box::pin(a_killed_shim_is_an_infrastructure_fault())),
    ("a_shim_that_died_unwatched_is_told_at_the_next_start", || Box::pin(died_unwatched())),
    ("a_lifetime_ends", || Box::pin(a_lifetime_ends())),
    ("no_secret_touches_the_disk", || Box::pin(no_secret_touches_the_disk())),
    ("one_unseen_image", || Box::pin(images::one_unseen_image_is_pulled_and_converted_once())),
    ("many_tags", || Box::pin(images::many_tags_cause_one_request_a_digest())),
    ("a_snapshot_stays", || Box::pin(snapshots::a_snapshot_stays_while_something_lies_on_it())),
    ("a_fork_of_nothing", || Box::pin(snapshots::a_fork_of_what_is_not_there_fails_by_name())),
    ("a_reset", || Box::pin(snapshots::a_reset_gives_another_machine_and_the_next_generation())),
    ("a_pause", || Box::pin(snapshots::a_paused_sandbox_has_no_process_and_goes_on())),
    ("a_death_at_any_moment", || Box::pin(snapshots::a_death_at_any_moment_leaves_what_agrees())),
    ("many_at_once", || Box::pin(many_at_once())),
];

async fn a_life_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_image(dir.path()).await;
    let id = running(&node, 1).await;
    node.create(id.clone(), spec()).await.unwrap();
    assert_eq!(shims(dir.path()).len(), 1, "a second create of the same id starts nothing");
    node.terminate(&id, EndReason::Deleted, "done").await.unwrap();
    let seen = until(&node, &id, |o| o.status.is_terminal()).await;
    assert_eq!((seen.status, seen.end.unwrap().reason), (Status::Terminated, EndReason::Deleted));
    assert_clean(dir.path());
    assert!(matches!(node.logs(&id).await, Ok(logs) if logs.is_empty()));
    node.forget(&id).await;
    assert_eq!(node.logs(&id).await, Err(NodeError::NotFound(id)));
}

async fn a_delete_wins_at_every_moment_of_a_create() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_image(dir.path()).await;
    for delay_ms in 0..25 {
        let id = id(100 + u128::from(delay_ms));
        node.create(id.clone(), spec()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        node.terminate(&id, EndReason::Deleted, "changed my mind").await.unwrap();
        until(&node, &id, |o| o.status == Status::Terminated).await;
    }
    assert_clean(dir.path());
    assert_eq!(node.info().sandboxes, 0);
}

async fn a_delete_before_its_create_wins_too() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_image(dir.path()).await;
    node.terminate(&id(5), EndReason::Deleted, "early").await.unwrap();
    assert_eq!(node.create(id(5), spec()).await, Err(CreateError::Deleted(id(5))));
    assert_clean(dir.path());
}

async fn a_restart_adopts_what_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (id(1), id(2));
    // A runtime of its own, dropped without a farewell: the node's tasks end where they stand.
    let path = dir.path().to_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let node = with_image(&path).await;
            running(&node, 1).await;
            running(&node, 2).await;
        });
        runtime.shutdown_background();
    })
    .join()
    .unwrap();
    let before = shims(dir.path());
    let node = open(dir.path()).await;
    for id in [&first, &second] {
        until(&node, id, |o| o.status == Status::Running && o.image_digest.is_some()).await;
    }
    assert_eq!(shims(dir.path()), before, "the same shims go on");
    for id in [first, second] {
        node.terminate(&id, EndReason::Deleted, "done").await.unwrap();
    }
    assert_clean(dir.path());
}

async fn a_killed_shim_is_an_infrastructure_fault() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_image(dir.path()).await;
    let id = running(&node, 1).await;
    kill(shims(dir.path())[0]);
    let seen = until(&node, &id, |o| o.status.is_terminal()).await;
    assert_eq!(seen.status, Status::Error);
    assert!(seen.end.unwrap().reason.infra_fault());
    assert_clean(dir.path());
}

async fn died_unwatched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async { drop(running(&with_image(&path).await, 1).await) });
        runtime.shutdown_background();
    })
    .join()
    .unwrap();
    kill(shims(dir.path())[0]);
    let node = open(dir.path()).await;
    let seen = until(&node, &id(1), |o| o.status.is_terminal()).await;
    assert!(seen.end.unwrap().reason.infra_fault());
    assert_clean(dir.path());
}

async fn a_lifetime_ends() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_image(dir.path()).await;
    let mut short = spec();
    short.timeout = Some(Duration::from_millis(300));
    node.create(id(1), short).await.unwrap();
    let seen = until(&node, &id(1), |o| o.status.is_terminal()).await;
    assert_eq!((seen.status, seen.end.unwrap().reason), (Status::Timeout, EndReason::Timeout));
    assert!(seen.started_at_ms.is_some());
    assert_clean(dir.path());
}

async fn no_secret_touches_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_image(dir.path()).await;
    let id = running(&node, 1).await;
    let mut open = vec![dir.path().to_owned()];
    let mut read = 0;
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() && entry.metadata().unwrap().len() < 1 << 20 {
                let bytes = std::fs::read(entry.path()).unwrap();
                assert!(!bytes.windows(11).any(|w| w == b"canary-5f1c"), "{:?}", entry.path());
                read += 1;
            }
        }
    }
    assert!(read > 3);
    node.terminate(&id, EndReason::Deleted, "done").await.unwrap();
}

async fn many_at_once() {
    const SANDBOXES: u128 = 60;
    let dir = tempfile::tempdir().unwrap();
    let node = with_image(dir.path()).await;
    for bits in 0..SANDBOXES {
        node.create(id(bits), spec()).await.unwrap();
    }
    for bits in 0..SANDBOXES {
        until(&node, &id(bits), |o| o.status == Status::Running).await;
    }
    assert_eq!(shims(dir.path()).len(), SANDBOXES as usize);
    for bits in 0..SANDBOXES {
        node.terminate(&id(bits), EndReason::Deleted, "done").await.unwrap();
    }
    assert_clean(dir.path());
}
