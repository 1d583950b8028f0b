//! A snapshot of the running machine, into files in the VM's folder.

use crate::channel::GuestSender;
use crate::exchange::Exchange;
use crate::guest::{self, AskError, Guest};
use crate::layer::{frozen_files, successor};
use hyper::Method;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use warren_net::NetworkHandle;
use warren_proto::guest::{NOT_YET, ROOT_DISK, paths};
use warren_proto::shim::{OpenFlows, SnapshotTaken, TakeSnapshot, files};
use warren_vmm::{SnapshotFiles, Vm};

/// Longest wait for the agent to freeze what runs, or to let it go on.
const AGENT_WAIT: Duration = Duration::from_secs(5);
/// Longest time for which an agent is asked again and again to let what runs go on.
const RESUME_WAIT: Duration = Duration::from_secs(60);
/// Time until an agent is asked again that still lets its programs stand still after a restore.
const NOT_YET_WAIT: Duration = Duration::from_millis(20);

/// Takes it. The guest's programs stand still from before the machine's stop on: in who goes on from the snapshot they run again
/// only once it has its own identity, and here at once, unless they are to `stay` so. Whatever fails, the machine and its programs run on.
pub(crate) async fn take(
    vm: &mut Vm,
    network: Option<&NetworkHandle>,
    guest: Option<Guest>,
    TakeSnapshot { stay }: TakeSnapshot,
) -> Result<SnapshotTaken, String> {
    let Guest { sender, exchange } = guest.ok_or("the guest takes no requests now")?;
    prepare().map_err(|e| format!("make room for the snapshot: {e}"))?;
    if let Err(error) = suspend(&sender).await {
        // It may have come about after we stopped to wait for it.
        resume(&sender).await;
        return Err(error.to_string());
    }
    let taken = snapshot(vm, network, exchange.as_ref(), stay).await;
    let stays = stay && taken.is_ok();
    if !stays {
        resume(&sender).await;
    }
    let written = match taken {
        Ok(taken) => write(vm, taken).await,
        Err(error) => Err(error),
    };
    if stays && written.is_err() {
        go_on(vm, &sender).await;
    }
    written
}

/// Lets a machine and its programs run on that stayed as they were.
pub(crate) async fn go_on(vm: &Vm, sender: &GuestSender) {
    if let Err(error) = vm.go_on().await {
        tracing::error!(%error, "the machine does not go on after a snapshot");
    }
    resume(sender).await;
}

/// Has the programs run, and asks again as long as the agent does not answer: without that no command would ever be.
pub(crate) async fn resume(sender: &GuestSender) {
    let asked = Instant::now();
    while asked.elapsed() < RESUME_WAIT {
        let resumed =
            guest::ask::<serde_json::Value>(sender.clone(), Method::POST, paths::RESUME, None::<&()>, AGENT_WAIT).await;
        match resumed {
            Ok(_) => return,
            // The next channel says it again.
            Err(AskError::Broken { .. }) => return,
            Err(error) => tracing::warn!(%error, "the guest does not go on yet after a snapshot"),
        }
    }
}

async fn write(vm: &Vm, taken: (warren_vmm::Snapshot, AtRest)) -> Result<SnapshotTaken, String> {
    let (snapshot, AtRest { lent: (lent, bytes), flows }) = taken;
    let (paused_ms, pages) = (snapshot.paused.as_secs_f64() * 1000.0, snapshot.pages);
    let written = tokio::task::spawn_blocking(move || {
        if !bytes.is_empty() {
            std::fs::write(path(files::LENT), bytes)?;
        }
        snapshot.write()
    });
    written.await.map_err(|e| e.to_string())?.map_err(|e| format!("write the snapshot: {e}"))?;
    tracing::info!(paused_ms, pages, "snapshot taken");
    Ok(SnapshotTaken { paused_ms, pages, lent, layers: frozen_files(vm, ROOT_DISK), flows })
}

/// Has all programs stand still, once they all run.
async fn suspend(sender: &GuestSender) -> Result<(), AskError> {
    let asked = Instant::now();
    loop {
        let path = paths::SUSPEND;
        match guest::ask::<serde_json::Value>(sender.clone(), Method::POST, path, None::<&()>, AGENT_WAIT).await {
            Err(AskError::Failed { code, .. }) if code == NOT_YET && asked.elapsed() < AGENT_WAIT => {
                tokio::time::sleep(NOT_YET_WAIT).await;
            }
            other => return other.map(drop),
        }
    }
}

/// What is ours while the machine stands still.
struct AtRest {
    lent: (Vec<u32>, Vec<u8>),
    flows: OpenFlows,
}

async fn snapshot(
    vm: &mut Vm,
    network: Option<&NetworkHandle>,
    exchange: Option<&Exchange>,
    stay: bool,
) -> Result<(warren_vmm::Snapshot, AtRest), String> {
    let (state, delta) = (path(files::STATE), path(files::DELTA));
    let successor = successor(vm, ROOT_DISK);
    // What an earlier try left that failed.
    let _ = std::fs::remove_file(&successor);
    let files = SnapshotFiles { state: &state, delta: &delta, successor: &successor };
    let at_rest = || {
        let lent = exchange.map_or_else(|| Ok((Vec::new(), Vec::new())), Exchange::lent)?;
        Ok(AtRest { lent, flows: network.map(NetworkHandle::open_flows).unwrap_or_default() })
    };
    vm.snapshot(files, stay, at_rest).await.map_err(|e| crate::full(&e))
}

fn path(name: &str) -> PathBuf {
    Path::new(files::DIR).join(name)
}

/// An empty folder.
fn prepare() -> io::Result<()> {
    match std::fs::remove_dir_all(files::DIR) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::create_dir(files::DIR)
}
