//! A checkpoint's folder: the record that something of it may exist on this node.

use crate::ended::write_whole;
use crate::snapshots::{open_folder, take};
use rustix::fs::{CWD, Mode, OFlags};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use warren_model::CheckpointId;
use warren_proto::node::CheckpointMade;

const RECORD_FILE: &str = "checkpoint.json";

/// What a restart must know of a checkpoint.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Record {
    /// Of whose disk.
    pub(super) sandbox: String,
    /// Digest of the image that the disk lies on.
    pub(super) base: String,
    /// The life of the host in which its layers were written: they are not forced onto the disk, and may be holes after a loss of power.
    #[serde(default)]
    pub(super) boot: String,
    pub(super) stage: Stage,
}

/// How far it is. Each is written down before anything of the next exists.
///
/// ```text
///  FREEZING ──► FROZEN ──► IMAGE ──► DURABLE
///      │           └─────────┴─────► FAILED
///      └─► nothing, after a restart
/// ```
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub(super) enum Stage {
    /// The disk is being frozen; nobody was told of it yet.
    Freezing,
    /// Its layers are linked into the folder.
    Frozen { layers: usize },
    /// It is an image of this node; the layers may go.
    Image { made: CheckpointMade },
    /// It is where it has to be.
    Durable { made: CheckpointMade },
    /// It will never be.
    Failed { problem: String },
}

/// The folder of one checkpoint.
#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

/// A folder that a run before left, and what is known of it.
pub(super) type Left = (Folder, Option<(CheckpointId, Record)>);

impl Folder {
    /// Makes the folder and writes the record: the first effect.
    pub(super) fn create(root: &Path, id: &CheckpointId, record: &Record) -> Result<Folder> {
        use std::os::unix::fs::DirBuilderExt;
        let folder = Folder::of(root, id);
        std::fs::DirBuilder::new().mode(0o700).create(&folder.0)?;
        folder.write(record).inspect_err(|_| folder.remove())?;
        File::open(root)?.sync_all()?;
        Ok(folder)
    }

    /// That of a checkpoint, which may be gone.
    pub(super) fn of(root: &Path, id: &CheckpointId) -> Folder {
        Folder(root.join(id.as_str()))
    }

    /// Folders that a run before left, with their records where they can be read.
    pub(super) fn all(root: &Path) -> Result<Vec<Left>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(root)? {
            let folder = Folder(entry?.path());
            let id = folder.0.file_name().and_then(|name| CheckpointId::parse(name.to_str()?).ok());
            let record = std::fs::read(folder.0.join(RECORD_FILE)).ok().and_then(|b| serde_json::from_slice(&b).ok());
            found.push((folder, id.zip(record)));
        }
        Ok(found)
    }

    /// Writes how far it is, for good.
    pub(super) fn write(&self, record: &Record) -> Result<()> {
        write_whole(&self.0.join(RECORD_FILE), &serde_json::to_vec(record)?)?;
        File::open(&self.0)?.sync_all()
    }

    /// Links layers into this folder, the lowest first: those of snapshots, then files of a VM's folder. They stay when those folders go.
    pub(super) fn link_layers(&self, below: &[PathBuf], vm: &Path, names: &[String]) -> Result<()> {
        for (number, path) in below.iter().enumerate() {
            std::fs::hard_link(path, self.layer(number))?;
        }
        let vm = open_folder(CWD, vm)?;
        for (number, name) in names.iter().enumerate() {
            take(&vm, name, &self.layer(below.len() + number))?;
        }
        File::open(&self.0)?.sync_all()
    }

    /// Opens the linked layers, the lowest first.
    pub(super) fn open_layers(&self, count: usize) -> Result<Vec<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |number| {
            let file = File::from(rustix::fs::open(self.layer(number), flags, Mode::empty())?);
            let is_file = file.metadata()?.is_file();
            is_file.then_some(file).ok_or_else(|| Error::new(ErrorKind::InvalidData, "a layer is no file"))
        };
        (0..count).map(open).collect()
    }

    /// Removes the layers, where there are any.
    pub(super) fn drop_layers(&self) -> Result<()> {
        for entry in std::fs::read_dir(&self.0)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "qcow2") {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Removes the folder: the last effect.
    pub(super) fn remove(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::error!(folder = %self.0.display(), %error, "remove a checkpoint's folder");
        }
    }

    fn layer(&self, number: usize) -> PathBuf {
        self.0.join(format!("{number}.qcow2"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> (tempfile::TempDir, Folder, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let vm = dir.path().join("vm");
        std::fs::create_dir(&vm).unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        std::fs::write(vm.join("disk.qcow2"), "d").unwrap();
        let record =
            Record { sandbox: "s1".into(), base: "sha256:1".into(), boot: String::new(), stage: Stage::Freezing };
        let folder = Folder::create(dir.path(), &CheckpointId::parse("k1").unwrap(), &record).unwrap();
        (dir, folder, vm)
    }

    #[test]
    fn layers_stay_when_the_vm_goes() {
        let (dir, folder, vm) = world();
        let below = dir.path().join("secret");
        folder.link_layers(&[below], &vm, &["disk.qcow2".to_owned()]).unwrap();
        std::fs::remove_dir_all(&vm).unwrap();
        assert_eq!(folder.open_layers(2).unwrap().len(), 2);
        folder.drop_layers().unwrap();
        assert!(folder.open_layers(1).is_err());
        assert!(Folder::all(dir.path()).unwrap().iter().any(|(_, known)| known.is_some()));
        folder.remove();
        assert!(!dir.path().join("k1").exists());
    }

    #[test]
    fn nothing_outside_of_the_vms_folder_is_reached() {
        let (dir, folder, vm) = world();
        std::os::unix::fs::symlink("../secret", vm.join("link")).unwrap();
        std::fs::create_dir(vm.join("dir")).unwrap();
        for bad in ["../secret", "link", "dir", "", ".", "..", "/etc/passwd", "dir/x", "missing"] {
            assert!(folder.link_layers(&[], &vm, &[bad.to_owned()]).is_err(), "{bad}");
            let _ = folder.drop_layers();
        }
        drop(dir);
    }
}
