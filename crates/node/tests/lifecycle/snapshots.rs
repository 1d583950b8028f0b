use crate::world::{assert_clean, id, kill, open, running, shims, spec, until, with_image};
use std::collections::BTreeSet;
use std::io::BufRead;
use std::path::Path;
use std::time::Duration;
use warren_model::{EndReason, SandboxId, SandboxSpec, SnapshotId, Status};
use warren_node::SharedNode;
use warren_proto::node::{NodeApi, SnapshotError};

fn snap(bits: u128) -> SnapshotId {
    SnapshotId::from_bits(bits)
}

/// Names of the folders of all snapshots.
fn folders(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir.join("snapshots")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn names(bits: &[u128]) -> BTreeSet<String> {
    bits.iter().map(|bits| snap(*bits).to_string()).collect()
}

async fn forked(node: &SharedNode, bits: u128, of: u128) -> SandboxId {
    node.create(id(bits), SandboxSpec { snapshot: Some(snap(of)), ..spec() }).await.unwrap();
    until(node, &id(bits), |o| o.status == Status::Running).await;
    id(bits)
}

/// Waits until these snapshots have folders, and no others: who reads one in the background keeps it for a moment.
async fn until_folders(dir: &Path, wanted: &[u128], context: &str) {
    let wait = async {
        while folders(dir) != names(wanted) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
    assert!(waited.is_ok(), "{context}: {:?}", folders(dir));
}

async fn end(node: &SharedNode, id: &SandboxId) {
    node.terminate(id, EndReason::Deleted, "done").await.unwrap();
    until(node, id, |o| o.status.is_terminal()).await;
}

pub(crate) async fn a_snapshot_stays_while_something_lies_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_image(dir.path()).await;
    let source = running(&node, 1).await;
    let taken = node.snapshot(&source, &snap(1)).await.unwrap();
    assert_eq!((taken.id, taken.sandbox, taken.usable), (snap(1), source.clone(), true));
    assert_eq!(node.snapshot(&source, &snap(1)).await.unwrap().id, snap(1), "a second call finds the first's");
    let child = forked(&node, 2, 1).await;
    node.snapshot(&child, &snap(2)).await.unwrap();
    node.delete_snapshot(&snap(1)).await.unwrap();
    end(&node, &source).await;
    end(&node, &child).await;
    assert_eq!(node.snapshots().await.iter().map(|s| s.id.clone()).collect::<Vec<_>>(), [snap(2)]);
    until_folders(dir.path(), &[1, 2], "the second lies on the first").await;
    let grandchild = forked(&node, 3, 2).await;
    node.delete_snapshot(&snap(2)).await.unwrap();
    until_folders(dir.path(), &[1, 2], "a sandbox lies on both").await;
    end(&node, &grandchild).await;
    until_folders(dir.path(), &[], "all are gone").await;
    assert_clean(dir.path());
}

pub(crate) async fn a_fork_of_what_is_not_there_fails_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_image(dir.path()).await;
    node.create(id(1), SandboxSpec { snapshot: Some(snap(9)), ..spec() }).await.unwrap();
    let seen = until(&node, &id(1), |o| o.status.is_terminal()).await;
    assert!(seen.end.unwrap().message.contains(snap(9).as_str()));
    let source = running(&node, 2).await;
    assert_eq!(node.reset(&source, &snap(9)).await, Err(SnapshotError::NoSnapshot(snap(9))));
    let other = running(&node, 3).await;
    node.snapshot(&other, &snap(3)).await.unwrap();
    assert!(matches!(node.reset(&source, &snap(3)).await, Err(SnapshotError::Conflict { .. })));
    assert_eq!(node.snapshot(&id(7), &snap(7)).await, Err(SnapshotError::NoSandbox(id(7))));
    node.delete_snapshot(&snap(3)).await.unwrap();
    for sandbox in [source, other] {
        end(&node, &sandbox).await;
    }
    until_folders(dir.path(), &[], "all are gone").await;
    assert_clean(dir.path());
}

pub(crate) async fn a_reset_gives_another_machine_and_the_next_generation() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_image(dir.path()).await;
    let sandbox = running(&node, 1).await;
    node.snapshot(&sandbox, &snap(1)).await.unwrap();
    let mut before = shims(dir.path());
    for generation in 1..=3 {
        node.reset(&sandbox, &snap(1)).await.unwrap();
        let seen = node.get(&sandbox).await.unwrap();
        assert_eq!((seen.status, seen.generation), (Status::Running, generation));
        let now = shims(dir.path());
        assert!(now.len() == 1 && now != before);
        before = now;
    }
    kill(before[0]);
    let seen = until(&node, &sandbox, |o| o.status.is_terminal()).await;
    assert!(seen.end.unwrap().reason.infra_fault());
    until_folders(dir.path(), &[1], "a named snapshot outlives its sandbox").await;
}

pub(crate) async fn a_paused_sandbox_has_no_process_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_image(dir.path()).await;
    let sandbox = running(&node, 1).await;
    for bits in 1..=20 {
        node.pause(&sandbox, &snap(bits)).await.unwrap();
        assert_eq!(node.get(&sandbox).await.unwrap().status, Status::Paused);
        assert_eq!((shims(dir.path()).len(), node.info().memory_mib_promised), (0, 0));
        assert!(node.snapshots().await.is_empty(), "it is the sandbox's own");
        assert!(matches!(node.pause(&sandbox, &snap(99)).await, Err(SnapshotError::Conflict { .. })));
        assert!(matches!(node.snapshot(&sandbox, &snap(99)).await, Err(SnapshotError::Conflict { .. })));
        node.resume(&sandbox).await.unwrap();
        node.resume(&sandbox).await.unwrap();
        let seen = node.get(&sandbox).await.unwrap();
        assert_eq!((seen.status, seen.generation), (Status::Running, 0));
    }
    node.pause(&sandbox, &snap(50)).await.unwrap();
    end(&node, &sandbox).await;
    until_folders(dir.path(), &[], "all are gone").await;
    assert_clean(dir.path());
}

/// Operations that are cut off, by the names that a process of this binary takes as its argument.
const DEEDS: [&str; 5] = ["snapshot", "reset", "pause", "resume", "fork"];
/// What it says when all is ready for the deed.
const READY: &str = "ready";

/// The process that will be killed: a node of its own in `dir`, that does one deed and waits.
pub(crate) async fn victim(dir: &Path, deed: &str) {
    let node = with_image(dir).await;
    let sandbox = running(&node, 1).await;
    node.snapshot(&sandbox, &snap(1)).await.unwrap();
    if deed == "resume" {
        node.pause(&sandbox, &snap(2)).await.unwrap();
    }
    println!("{READY}");
    match deed {
        "snapshot" => drop(node.snapshot(&sandbox, &snap(3)).await),
        "reset" => drop(node.reset(&sandbox, &snap(1)).await),
        "pause" => drop(node.pause(&sandbox, &snap(3)).await),
        "resume" => drop(node.resume(&sandbox).await),
        _ => drop(forked(&node, 2, 1).await),
    }
    std::future::pending().await
}

/// Kills such a process some time after it has begun.
fn cut_off(dir: &Path, deed: &str, delay: Duration) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.arg("victim").arg(dir).arg(deed).stdout(std::process::Stdio::piped());
    let mut victim = command.spawn().unwrap();
    let mut said = std::io::BufReader::new(victim.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == READY));
    std::thread::sleep(delay);
    victim.kill().unwrap();
    victim.wait().unwrap();
}

/// A node that dies at any moment of an operation: the next one finds files and processes that agree, finishes or undoes.
pub(crate) async fn a_death_at_any_moment_leaves_what_agrees() {
    for deed in DEEDS {
        for delay_ms in [1, 6, 20] {
            let dir = tempfile::tempdir().unwrap();
            cut_off(dir.path(), deed, Duration::from_millis(delay_ms));
            let node = open(dir.path()).await;
            let context = format!("{deed} cut off after {delay_ms} ms");
            let seen = until(&node, &id(1), |o| {
                matches!(o.status, Status::Running | Status::Paused) || o.status.is_terminal()
            })
            .await;
            assert!(!seen.status.is_terminal(), "{context}: {seen:?}");
            let live = usize::from(seen.status == Status::Running);
            if seen.status == Status::Paused {
                node.resume(&id(1)).await.unwrap();
            }
            let fork = node.get(&id(2)).await;
            if let Some(fork) = &fork {
                // One that was on its way starts no more, and says that it was no fault of its own.
                let seen = until(&node, &fork.id, |o| o.status == Status::Running || o.status.is_terminal()).await;
                assert!(
                    seen.status == Status::Running || seen.end.is_some_and(|e| e.reason.infra_fault()),
                    "{context}"
                );
            }
            assert!(live <= 1, "{context}");
            node.reset(&id(1), &snap(1)).await.unwrap();
            for sandbox in [id(1), id(2)] {
                let _ = node.terminate(&sandbox, EndReason::Deleted, "done").await;
            }
            for snapshot in node.snapshots().await {
                node.delete_snapshot(&snapshot.id).await.unwrap();
            }
            until_folders(dir.path(), &[], &context).await;
            assert_clean(dir.path());
        }
    }
}
