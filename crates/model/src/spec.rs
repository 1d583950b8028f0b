use crate::SnapshotId;
use crate::access::ImageAccess;
use crate::egress::EgressPolicy;
use crate::volume::VolumeMount;
use std::collections::BTreeMap;
use std::time::Duration;

/// Bounds of a spec, each with its unit.
pub mod limits {
    /// Least memory of a guest, MiB.
    pub const MEMORY_MIB_MIN: u64 = 256;
    /// Most memory of a guest, MiB.
    pub const MEMORY_MIB_MAX: u64 = 1 << 20;
    /// Most vCPUs of a guest.
    pub const VCPUS_MAX: u32 = 64;
    /// Smallest disk, MiB.
    pub const DISK_MIB_MIN: u64 = 64;
    /// Largest disk, MiB.
    pub const DISK_MIB_MAX: u64 = 16 << 20;
    /// Longest name, bytes.
    pub const NAME_LEN_MAX: usize = 256;
    /// Most labels, and longest label in bytes.
    pub const LABELS_MAX: usize = 64;
    /// Longest label, bytes.
    pub const LABEL_LEN_MAX: usize = 256;
    /// Most environment variables and secrets together.
    pub const ENV_MAX: usize = 1024;
    /// All environment names and values together, bytes.
    pub const ENV_BYTES_MAX: usize = 1 << 20;
    /// Volumes of one sandbox.
    pub const VOLUMES_MAX: usize = 8;
    /// Longest name of a volume, bytes.
    pub const VOLUME_NAME_LEN_MAX: usize = 128;
    /// Longest path that a volume is mounted at, bytes.
    pub const MOUNT_PATH_LEN_MAX: usize = 1024;
    /// Size of a volume as `df` shows it in the guest, MiB; what is not written takes no space on the host.
    pub const VOLUME_MIB: u64 = 64 << 10;
}

/// What a memory snapshot depends on besides its disk: vCPUs and memory (kernel and machine version are the node's).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Shape {
    /// Whole vCPUs, at least 1.
    pub vcpus: u32,
    /// Guest memory, MiB, at least [`limits::MEMORY_MIB_MIN`].
    pub memory_mib: u64,
}

/// An argv that replaces the image's entrypoint; no shell is involved.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StartCommand {
    /// Program, looked up in the guest's PATH.
    pub executable: String,
    /// Its arguments.
    pub args: Vec<String>,
}

/// Everything that was asked of one sandbox, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxSpec {
    /// Free text for people.
    pub name: String,
    /// The reference as the client gave it.
    pub image: String,
    /// Goes on from this snapshot, of which `shape`, `disk_mib` and `image` are copies, instead of starting anew.
    pub snapshot: Option<SnapshotId>,
    /// For whom that image is fetched.
    pub image_access: ImageAccess,
    /// vCPUs and memory.
    pub shape: Shape,
    /// Disk as `df` shows it in the guest, MiB; 0: exactly that of the image, which is the disk of an earlier sandbox.
    pub disk_mib: u64,
    /// Lifetime from RUNNING; `None` is unlimited.
    pub timeout: Option<Duration>,
    /// End after so long without an active operation; `None` is never.
    pub idle_timeout: Option<Duration>,
    /// Pauses at its idle timeout, and does not end.
    pub idle_pauses: bool,
    /// A command that comes while it is paused lets it go on.
    pub resumes_by_itself: bool,
    /// Goes on from an app template, if there is one for it.
    pub uses_templates: bool,
    /// Environment of every command, visible in the API.
    pub env: BTreeMap<String, String>,
    /// Environment of every command, never shown.
    pub secrets: BTreeMap<String, String>,
    /// Runs at start instead of the image's entrypoint.
    pub start_command: Option<StartCommand>,
    /// What the guest may reach.
    pub egress: EgressPolicy,
    /// For filters.
    pub labels: Vec<String>,
    /// Volumes, each of them once; at most [`limits::VOLUMES_MAX`].
    pub volumes: Vec<VolumeMount>,
}

/// A field of a spec is out of bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct BadSpec {
    /// The field, as the public API spells it.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl Shape {
    /// Whole vCPUs and MiB from the fractions of the public API: both round up.
    pub fn from_request(cpu_cores: f64, memory_gb: f64) -> Result<Shape, BadSpec> {
        let vcpus = whole("cpu_cores", cpu_cores, 1.0, 1.0, f64::from(limits::VCPUS_MAX))? as u32;
        let memory_mib =
            whole("memory_gb", memory_gb, 1024.0, limits::MEMORY_MIB_MIN as f64, limits::MEMORY_MIB_MAX as f64)?;
        // QEMU wants whole MiB; an even number keeps huge pages possible.
        Ok(Shape { vcpus, memory_mib: memory_mib.next_multiple_of(2) })
    }
}

impl SandboxSpec {
    /// Disk in MiB from the fraction of the public API, rounded up.
    pub fn disk_mib_from_request(disk_size_gb: f64) -> Result<u64, BadSpec> {
        whole("disk_size_gb", disk_size_gb, 1024.0, limits::DISK_MIB_MIN as f64, limits::DISK_MIB_MAX as f64)
    }
}

/// `value × unit`, rounded up; a positive value under `min` is raised only where it rounds up to 1 (vCPUs), else refused.
fn whole(field: &'static str, value: f64, unit: f64, min: f64, max: f64) -> Result<u64, BadSpec> {
    let scaled = (value * unit).ceil();
    if value.is_finite() && value > 0.0 && (min..=max).contains(&scaled) {
        Ok(scaled as u64)
    } else {
        Err(BadSpec { field, problem: format!("must be from {} to {}, got {value}", min / unit, max / unit) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_round_up() {
        assert_eq!(Shape::from_request(0.5, 0.25), Ok(Shape { vcpus: 1, memory_mib: 256 }));
        assert_eq!(Shape::from_request(1.2, 1.0), Ok(Shape { vcpus: 2, memory_mib: 1024 }));
    }

    #[test]
    fn nonsense_is_refused() {
        for (cpu, mem) in [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, 0.1), (1.0, f64::INFINITY), (1e9, 1.0)] {
            assert!(Shape::from_request(cpu, mem).is_err(), "{cpu} {mem}");
        }
    }
}
