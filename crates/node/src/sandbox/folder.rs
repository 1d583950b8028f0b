//! A sandbox's folder: the record that something of it may exist on this host.

use crate::ended::write_whole;
use crate::shim_client::ProcessName;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use warren_model::{SandboxId, SandboxSpec, Shape};
use warren_proto::shim::End;

const INTENT_FILE: &str = "spec.json";
/// Longest word of a shim on how it ended, bytes: 1 MiB of logs, escaped.
const END_LEN_MAX: u64 = 16 << 20;

/// What a restart must know of a sandbox; no secret, no environment.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Intent {
    pub(crate) id: String,
    pub(crate) image: String,
    pub(crate) image_digest: Option<String>,
    pub(crate) shape: Shape,
    pub(crate) timeout: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    /// SIGTERM first at a delete.
    pub(crate) has_start_command: bool,
    /// Its shim, once there is one.
    pub(crate) shim: Option<ProcessName>,
    /// The user that the shim and its VMM are, where they are locked in.
    #[serde(default)]
    pub(crate) uid: Option<u32>,
    /// Its image was still arriving at its start, so that its VMM reads through us.
    #[serde(default)]
    pub(crate) image_served: bool,
    /// Digests of what its volumes lie on.
    #[serde(default)]
    pub(crate) volumes: Vec<String>,
}

impl Intent {
    pub(crate) fn of(id: &SandboxId, spec: &SandboxSpec) -> Intent {
        Intent {
            id: id.to_string(),
            image: spec.image.clone(),
            image_digest: None,
            shape: spec.shape,
            timeout: spec.timeout,
            idle_timeout: spec.idle_timeout,
            has_start_command: spec.start_command.is_some(),
            shim: None,
            uid: None,
            image_served: false,
            volumes: Vec::new(),
        }
    }
}

/// The folder of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder and writes the intent: the first effect of a create.
    pub(crate) fn create(root: &Path, id: &SandboxId, intent: &Intent) -> std::io::Result<Folder> {
        use std::os::unix::fs::DirBuilderExt;
        let folder = Folder(root.join(id.as_str()));
        std::fs::DirBuilder::new().mode(0o700).create(&folder.0)?;
        std::fs::DirBuilder::new().mode(0o700).create(folder.vm())?;
        folder.write_intent(intent)?;
        Ok(folder)
    }

    /// Folders that a run before left, with their intents where they can be read.
    pub(crate) fn all(root: &Path) -> std::io::Result<Vec<(Folder, Option<Intent>)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(root)? {
            let folder = Folder(entry?.path());
            let intent = std::fs::read(folder.0.join(INTENT_FILE)).ok().and_then(|b| serde_json::from_slice(&b).ok());
            found.push((folder, intent));
        }
        Ok(found)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The folder in it that the shim and its VMM work in, see [`warren_shim::VM_DIR`].
    pub(crate) fn vm(&self) -> PathBuf {
        self.0.join(warren_shim::VM_DIR)
    }

    /// Gives the VM's folder with what is in it to the user that the shim becomes.
    pub(crate) fn give_vm_to(&self, uid: u32) -> std::io::Result<()> {
        let vm = self.vm();
        for entry in std::fs::read_dir(&vm)? {
            std::os::unix::fs::lchown(entry?.path(), Some(uid), Some(uid))?;
        }
        std::os::unix::fs::chown(&vm, Some(uid), Some(uid))
    }

    pub(crate) fn write_intent(&self, intent: &Intent) -> std::io::Result<()> {
        write_whole(&self.0.join(INTENT_FILE), &serde_json::to_vec(intent)?)
    }

    /// How the shim said that it ended, if it did.
    pub(crate) fn end(&self) -> Option<End> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(self.vm().join(warren_shim::END_FILE), flags, Mode::empty()).ok()?);
        serde_json::from_reader(BufReader::new(file.take(END_LEN_MAX))).ok()
    }

    /// Removes the folder: the last effect.
    pub(crate) fn remove(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::error!(folder = %self.0.display(), %error, "remove a sandbox's folder");
        }
    }
}
