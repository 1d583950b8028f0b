//! What a node says to a shim, over HTTP/2 on the sandbox's unix socket.
//!
//! `/v1/...` is the shim's own API (JSON). Everything under [`paths::GUEST`] is passed to the guest agent with that prefix
//! removed, and answered 503 `{"code":"unavailable"}` while the guest takes no requests.

mod flows;

pub use flows::{OpenFlows, OpenTcp};

use crate::guest::Init;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use warren_model::egress::EgressPolicy;
use warren_model::{EndReason, Shape};

/// Bounds of the shim protocol, each with its unit.
pub mod limits {
    /// A shim that got no [`super::Boot`] ends after this time, seconds.
    pub const BOOT_WAIT_SECS: u64 = 30;
    /// Longest hold of `/v1/state?seen=`, seconds.
    pub const STATE_HOLD_SECS: u64 = 60;
    /// Longest time that `/v1/state?fresh` waits for the guest, seconds.
    pub const FRESH_WAIT_SECS: u64 = 2;
    /// Most connections of a guest that a snapshot tells.
    pub const OPEN_FLOWS_MAX: usize = 4096;
}

/// Paths that a shim serves.
pub mod paths {
    /// `POST` [`super::Boot`]: starts the machine; answers [`super::ShimState`] as soon as it is accepted.
    pub const BOOT: &str = "/v1/boot";
    /// `GET ?seen=N`: answers [`super::ShimState`], held while its `version` is still N. `GET ?fresh`: asks the guest first.
    pub const STATE: &str = "/v1/state";
    /// `POST` [`super::Terminate`]: answers [`super::ShimState`] once machine and files of the shim are gone; the shim then exits.
    pub const TERMINATE: &str = "/v1/terminate";
    /// `PUT` [`super::SetEgress`].
    pub const EGRESS: &str = "/v1/egress";
    /// `POST` [`super::NewLayer`]: freezes a disk as it is now and lets the machine go on with a new layer; answers [`super::Layers`].
    pub const LAYER: &str = "/v1/layer";
    /// `POST` [`super::TakeSnapshot`]: takes a snapshot of the running machine; answers [`super::SnapshotTaken`] once all of it is in files,
    /// or a refusal after which the machine runs on.
    pub const SNAPSHOT: &str = "/v1/snapshot";
    /// `POST`, no body: a machine that stands still since a snapshot runs on; answers [`super::ShimState`].
    pub const GO_ON: &str = "/v1/go-on";
    /// Prefix of what is for the guest agent.
    pub const GUEST: &str = "/guest";
}

/// Which accelerator runs the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// Hardware virtualization.
    Kvm,
    /// Software emulation.
    Tcg,
}

/// Starts one machine. Carries secrets, therefore travels over the socket and is never written to disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Boot {
    /// QEMU, kernel, initramfs, tools disk, accelerator.
    pub machine: Machine,
    /// vCPUs and memory.
    pub shape: Shape,
    /// What the machine starts from; `None` boots cold.
    pub template: Option<Template>,
    /// What the disk lies on that the node has made.
    pub disk: DiskBase,
    /// What its volumes lie on, in the order of the guest's mounts; the node has made their disks, too.
    #[serde(default)]
    pub volumes: Vec<DiskBase>,
    /// What the guest may reach.
    pub egress: SetEgress,
    /// For the guest agent.
    pub init: Init,
}

/// What every machine of a node has in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// `qemu-system-x86_64`.
    pub qemu: PathBuf,
    /// Accelerator.
    pub accel: Accel,
    /// Kernel image.
    pub kernel: PathBuf,
    /// Initramfs with the agent.
    pub initramfs: PathBuf,
    /// Modules and stand-in tools, ext4, read-only.
    pub tools_disk: PathBuf,
    /// Rate of the host's time stamp counter, kHz: an emulated guest on a busy host fails to measure it, and hangs.
    pub tsc_khz: Option<u64>,
}

/// What a machine starts from: a base template's files, or a snapshot's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    /// Guest memory.
    pub memory: PathBuf,
    /// Device state.
    pub state: PathBuf,
    /// Of a snapshot, whose guest has its root already: what it had lent of its exchange disk. `None`: a base template.
    #[serde(default)]
    pub lent: Option<ExchangeLent>,
    /// Connections that its guest has open, and that nobody carries any more.
    #[serde(default)]
    pub flows: OpenFlows,
}

/// Pieces of an exchange disk that transfers had when a snapshot was taken: the guest may still use them, so that whoever goes on from the
/// snapshot gets them with their bytes and never lends them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeLent {
    /// Which.
    pub pieces: Vec<u32>,
    /// Their bytes, one after the other; `None` where there are no pieces.
    pub bytes: Option<PathBuf>,
}

/// What a sandbox's own disk lies on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskBase {
    /// At the bottom.
    pub image: ImageDisk,
    /// Frozen overlays on it, the lowest first.
    pub layers: Vec<PathBuf>,
}

/// A disk that is never written to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageDisk {
    /// A raw file.
    Raw(PathBuf),
    /// A qcow2 that starts somewhere within a file.
    Within {
        /// The file.
        file: PathBuf,
        /// Where its header is, bytes.
        offset: u64,
    },
    /// A raw disk that a server of network block devices has, on a unix socket; relative to the VM's folder. While the server is away, reads wait.
    Served(PathBuf),
}

/// Where a sandbox's machine is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waits for [`Boot`].
    Empty,
    /// The machine is being started.
    Starting,
    /// The guest takes requests.
    Running,
    /// The machine is gone.
    Ended,
}

/// What a shim knows of its sandbox. Also written to `end.json` when it ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShimState {
    /// Grows with each change.
    pub version: u64,
    /// Phase.
    pub phase: Phase,
    /// When it first was RUNNING, milliseconds since 1970.
    pub running_since_ms: Option<u64>,
    /// How it ended.
    pub end: Option<End>,
    /// Generation of the egress policy in force.
    pub egress_generation: u64,
    /// Processes killed for lack of memory in the guest, as last seen.
    pub oom_kills: u64,
    /// Text about the last of them.
    pub last_oom: Option<String>,
    /// Milliseconds of each step of the start, for measurements.
    pub steps_ms: std::collections::BTreeMap<String, f64>,
    /// The VMM's pid while there is one.
    pub vmm_pid: Option<u32>,
}

/// How a sandbox ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Why.
    pub reason: EndReason,
    /// What happened, for people.
    pub message: String,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// Exit code of the start command, if it had ended.
    pub exit_code: Option<i32>,
    /// Last output of the start command.
    pub logs: String,
}

/// Ends a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Terminate {
    /// Why.
    pub reason: EndReason,
    /// For people.
    pub message: String,
    /// Time for the start command between SIGTERM and SIGKILL, milliseconds; 0 kills at once.
    pub grace_ms: u64,
}

/// Files of the snapshot that was taken last, in [`files::DIR`] of the VM's folder.
pub mod files {
    /// The folder. The next snapshot empties it.
    pub const DIR: &str = "snapshot";
    /// Device state.
    pub const STATE: &str = "state";
    /// Memory that has changed since the machine's start.
    pub const DELTA: &str = "delta";
    /// Bytes of [`super::SnapshotTaken::lent`], if there are any.
    pub const LENT: &str = "lent";
}

/// Asks for a snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeSnapshot {
    /// The machine stands still from then on, so that nothing happens in it that the snapshot does not hold.
    pub stay: bool,
}

/// A snapshot is in files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotTaken {
    /// How long the machine stood still, milliseconds.
    pub paused_ms: f64,
    /// Pages of 4096 bytes that had changed since the machine's start.
    pub pages: u64,
    /// Pieces of the exchange disk that transfers had.
    pub lent: Vec<u32>,
    /// Names of all overlays that the machine has written to since its start and that are frozen now, the lowest first, in the VM's folder.
    pub layers: Vec<String>,
    /// Connections that the guest had open.
    #[serde(default)]
    pub flows: OpenFlows,
}

/// Replaces the egress policy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetEgress {
    /// The whole new policy.
    pub policy: EgressPolicy,
    /// Its generation.
    pub generation: u64,
}

/// Freezes a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewLayer {
    /// Its serial number: [`crate::guest::ROOT_DISK`] or a volume's.
    pub disk: String,
}

/// Layers of a disk that are never written again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// Names of files in the VM's folder, the lowest first. The last is what was frozen just now.
    pub files: Vec<String>,
}
