//! A moment of a disk: the guest's file system comes to rest, and QEMU writes to a new layer from then on.

use crate::channel::GuestSender;
use crate::guest::{AskError, ask};
use hyper::Method;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use warren_proto::guest::{RestDisk, limits, paths};
use warren_proto::shim::Layers;
use warren_vmm::Vm;

/// Longest time for the guest to write out what it has in memory.
const FREEZE_WAIT: Duration = Duration::from_secs(20);
/// Longest wait for the word that the guest goes on; it does by itself in the end.
const THAW_WAIT: Duration = Duration::from_secs(5);
/// The layer must be there so long after the freeze, or the guest may have gone on before.
const FROZEN_MAX: Duration = Duration::from_secs(limits::FREEZE_SECS_MAX - 2);

/// Brings the guest's file system to rest. Safe to drop: it goes on by itself.
pub(crate) async fn rest(guest: GuestSender, disk: &str) -> Result<Instant, AskError> {
    let body = RestDisk { disk: disk.to_owned() };
    let rested = ask::<Value>(guest, Method::POST, paths::FREEZE_DISK, Some(&body), FREEZE_WAIT).await;
    rested.map(|_| Instant::now())
}

/// Freezes the disk of a guest that rests since then, and lets it go on.
pub(crate) async fn freeze(vm: &mut Vm, guest: GuestSender, disk: &str, since: Instant) -> Result<Layers, String> {
    let successor = successor(vm, disk);
    // What an earlier try left that failed.
    let _ = std::fs::remove_file(&successor);
    let frozen = vm.freeze_disk(disk, &successor).await;
    let in_time = since.elapsed() < FROZEN_MAX;
    let thawed = ask::<Value>(guest, Method::POST, paths::THAW_DISK, Some(&json!({})), THAW_WAIT).await;
    if let Err(error) = thawed {
        tracing::warn!(%error, "the guest was not told to go on; it does by itself");
    }
    frozen.map_err(|error| crate::full(&error))?;
    // Without that the layer is no more than what a loss of power would leave.
    let late = || "freezing the disk took longer than the guest's file system may rest".to_owned();
    in_time.then(|| Layers { files: frozen_files(vm, disk) }).ok_or_else(late)
}

/// Name of the next overlay of a disk.
pub(crate) fn successor(vm: &Vm, disk: &str) -> PathBuf {
    let overlays = vm.overlays(disk);
    let lowest = overlays.first().and_then(|lowest| lowest.file_stem()).unwrap_or_default();
    PathBuf::from(format!("{}.{}.qcow2", lowest.to_string_lossy(), overlays.len()))
}

/// Overlays of a disk that are never written again, the lowest first.
pub(crate) fn frozen_files(vm: &Vm, disk: &str) -> Vec<String> {
    let layers = vm.overlays(disk).split_last().map_or(&[][..], |(_, frozen)| frozen);
    layers.iter().map(|layer| layer.to_string_lossy().into_owned()).collect()
}
