//! A moment of a disk: the guest's file system comes to rest, and QEMU writes to a new layer from then on.

use crate::channel::GuestSender;
use crate::guest::{AskError, ask};
use hyper::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use warren_proto::guest::{RestDisk, limits, paths};
use warren_vmm::{FrozenLayer, Vm, VmError};

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

/// Freezes the layer of a guest that rests, and lets it go on. Also whether the guest rested all the time: else the layer is there, and no more
/// than what a loss of power would leave.
pub(crate) async fn freeze(
    vm: &mut Vm,
    guest: GuestSender,
    disk: &str,
    since: Instant,
) -> Result<(FrozenLayer, bool), VmError> {
    let frozen = vm.new_layer(disk).await;
    let in_time = since.elapsed() < FROZEN_MAX;
    let thawed = ask::<Value>(guest, Method::POST, paths::THAW_DISK, Some(&json!({})), THAW_WAIT).await;
    if let Err(error) = thawed {
        tracing::warn!(%error, "the guest was not told to go on; it does by itself");
    }
    Ok((frozen?, in_time))
}
