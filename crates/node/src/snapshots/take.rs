//! From what a shim left in its VM's folder to a snapshot of the node.

use super::{RECORD_FILE, Record, Snapshots, layer_file};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use warren_model::SnapshotId;
use warren_proto::guest::exchange;
use warren_proto::shim::{SnapshotTaken, files, limits};

/// Most layers that one machine freezes in its life.
const LAYERS_MAX: usize = 4096;

/// What a snapshot is taken from: the VM's folder, and what the machine in it started from.
pub(crate) struct TakenFrom<'a> {
    pub(crate) vm: &'a Path,
    /// Of the machine's layers, those that an earlier snapshot has.
    pub(crate) layers_had: usize,
}

impl Snapshots {
    /// Makes the snapshot's folder: the intent, which a start without a record undoes.
    pub(crate) fn begin(&self, id: &SnapshotId) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().mode(0o700).create(self.folder(id))
    }

    /// Undoes [`Snapshots::begin`].
    pub(crate) fn abandon(&self, id: &SnapshotId) {
        let folder = self.folder(id);
        if !folder.join(RECORD_FILE).exists()
            && let Err(error) = std::fs::remove_dir_all(&folder)
        {
            tracing::warn!(snapshot = %id, %error, "what is left of a snapshot cannot be removed; tried again at the next start");
        }
    }

    /// Takes the files over and writes the record, whose `layers`, `lent`, `flows` and `stored_bytes` are filled in. What the VM's folder holds may be
    /// the work of a VMM that a guest has taken over: no link is followed, and only plain files are taken.
    pub(crate) fn complete(&self, mut record: Record, from: &TakenFrom<'_>, taken: &SnapshotTaken) -> io::Result<()> {
        if taken.lent.len() > exchange::PIECES as usize || taken.layers.len() > LAYERS_MAX {
            return Err(io::Error::other("the shim names more parts than a snapshot can have"));
        }
        let folder = self.folder(&record.id);
        let vm = open_folder(CWD, from.vm)?;
        let snapshot = open_folder(&vm, Path::new(files::DIR))?;
        for name in [files::STATE, files::DELTA] {
            record.stored_bytes += take(&snapshot, name, &folder.join(name))?;
        }
        if !taken.lent.is_empty() {
            record.stored_bytes += take(&snapshot, files::LENT, &folder.join(files::LENT))?;
        }
        let new = taken.layers.get(from.layers_had..).unwrap_or_default();
        for (number, name) in new.iter().enumerate() {
            record.stored_bytes += take(&vm, name, &folder.join(layer_file(number)))?;
        }
        record.layers = new.len();
        record.lent = taken.lent.clone();
        record.flows = taken.flows.clone();
        record.flows.tcp.truncate(limits::OPEN_FLOWS_MAX);
        self.put(record)?;
        self.untended.notify_one();
        Ok(())
    }
}

/// Opens a folder that may be the work of a VMM, following no link.
pub(crate) fn open_folder(at: impl std::os::fd::AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, path, flags, Mode::empty())?)
}

/// Links a plain file of the VM's folder to `to`, readable by all who are shown it and writable by nobody. Its bytes on disk.
pub(crate) fn take(folder: &OwnedFd, name: &str, to: &Path) -> io::Result<u64> {
    if name.contains('/') {
        return Err(io::Error::other("a part of the machine has no plain name"));
    }
    let file = rustix::fs::openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let file = File::from(file);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other(format!("{name} is no plain file")));
    }
    // Of the file that was looked at, whatever its name leads to by now.
    let looked_at = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::linkat(CWD, looked_at.as_str(), CWD, to, AtFlags::SYMLINK_FOLLOW)?;
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own {
        std::os::unix::fs::chown(to, Some(own), Some(rustix::process::getegid().as_raw()))?;
    }
    std::fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o444))?;
    Ok(metadata.blocks() * 512)
}
