//! Volumes: disks of their own, mounted where the sandbox wants them.

use super::Steps;
use super::root::OPTIONS;
use crate::boot::LateDisk;
use crate::http::Refusal;
use rustix::mount::{MountFlags, mount};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use warren_proto::guest::Mount;

/// A volume that was mounted.
#[derive(Debug, Clone)]
pub struct Mounted {
    /// Name of its disk.
    pub disk: String,
    /// Where it was mounted.
    pub path: String,
    /// Number of its device, by which it is told from what may be there later.
    pub device: u64,
}

/// Mounts all of them, each path before those below it.
pub(super) fn mount_all(
    steps: &mut Steps,
    disks: &[(String, LateDisk)],
    mounts: &[Mount],
) -> Result<Vec<Mounted>, Refusal> {
    let mut mounted = Vec::with_capacity(mounts.len());
    for wanted in mounts {
        let (_, disk) = disks
            .iter()
            .find(|(name, _)| *name == wanted.disk)
            .ok_or_else(|| Refusal::bad_request(format!("mounts: this machine has no disk {}", wanted.disk)))?;
        let device = steps.run(&format!("find_{}", wanted.disk), || match wanted.read_only {
            true => disk.read_only_device(),
            false => disk.device(),
        })?;
        mounted.push(steps.run_or(
            &format!("mount_{}", wanted.disk),
            || mount_one(&device, wanted),
            |error| Refusal::volume_unusable(format!("a volume cannot be mounted at {}: {error}", wanted.path)),
        )?);
    }
    Ok(mounted)
}

fn mount_one(device: &Path, wanted: &Mount) -> io::Result<Mounted> {
    let (flags, options): (_, Option<&CStr>) = match wanted.read_only {
        true => (MountFlags::RDONLY, None),
        false => (MountFlags::empty(), Some(OPTIONS)),
    };
    fs::create_dir_all(&wanted.path)?;
    mount(device, &wanted.path, "ext4", flags, options)?;
    let device = fs::metadata(&wanted.path)?.dev();
    Ok(Mounted { disk: wanted.disk.clone(), path: wanted.path.clone(), device })
}
