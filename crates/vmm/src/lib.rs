//! One QEMU process: spec to argv, spawn, QMP, pause, save, load, reap.
//!
//! [`Vm`] is a concrete type: there is one VMM. Tests fake QEMU at its QMP socket.
#![deny(unsafe_code)]

mod chain;
mod cmdline;
mod delta;
mod disk;
mod memory;
mod overlay;
mod qmp;
mod snapshot;
mod state;
#[allow(unsafe_code)]
mod sys;
mod vm;

pub use cmdline::{MachineFiles, Memory, VmConfig, VolumeFile, machine_identity};
pub use delta::{Delta, DeltaError};
pub use overlay::{OVERLAY_PIECE, OverlayError, create_overlay};
pub use qmp::{Event, Qmp, QmpError};
pub use snapshot::{Snapshot, SnapshotFiles};
pub use vm::{GUEST_SOCKET, SpawnError, Vm, VmError};

/// Rate of the host's time stamp counter, kHz, for [`warren_proto::shim::Machine::tsc_khz`]. Takes 50 ms.
pub fn host_tsc_khz() -> Option<u64> {
    sys::tsc_khz()
}
