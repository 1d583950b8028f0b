//! A sandbox's folder: the record that something of it may exist on this host.

use crate::ended::write_whole;
use crate::shim_client::ProcessName;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use warren_model::{SandboxId, SandboxSpec, Shape, SnapshotId};
use warren_proto::shim::{End, SetEgress};

const INTENT_FILE: &str = "spec.json";
const EGRESS_FILE: &str = "egress.json";
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
    /// What its machine is about to do, or not to do.
    #[serde(default)]
    pub(crate) turn: Turn,
    /// How often its machine has been put back to a snapshot.
    #[serde(default)]
    pub(crate) generation: u64,
    /// Size of its disk, bytes; 0 before it is made.
    #[serde(default)]
    pub(crate) disk_bytes: u64,
    /// The base template that its memory lies on in the end.
    #[serde(default)]
    pub(crate) template: Option<String>,
    /// The snapshot that its memory lies on.
    #[serde(default)]
    pub(crate) memory_on: Option<SnapshotId>,
    /// The snapshot that its disk lies on.
    #[serde(default)]
    pub(crate) disk_on: Option<SnapshotId>,
    /// Of its machine's frozen layers, those that `disk_on` has.
    #[serde(default)]
    pub(crate) layers_had: usize,
    /// Pauses at its idle timeout, and does not end.
    #[serde(default)]
    pub(crate) idle_pauses: bool,
    /// A command that comes while it is paused lets it go on.
    #[serde(default)]
    pub(crate) resumes_by_itself: bool,
    /// When it first ran, milliseconds since 1970, known while it is paused.
    #[serde(default)]
    pub(crate) started_at_ms: Option<u64>,
    /// Its image was still arriving at its start, so that its VMM reads through us.
    #[serde(default)]
    pub(crate) image_served: bool,
    /// Digests of what its volumes lie on.
    #[serde(default)]
    pub(crate) volumes: Vec<String>,
}

/// What a sandbox's machine is about to do.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Turn {
    /// To run.
    #[default]
    Running,
    /// To be gone: the sandbox will go on from this snapshot some time.
    Paused(SnapshotId),
    /// To go on from this snapshot, where the sandbox was paused.
    Resuming(SnapshotId),
    /// To be put back to this snapshot.
    Resetting(SnapshotId),
}

impl Turn {
    /// The snapshot that it needs.
    pub(crate) fn snapshot(&self) -> Option<&SnapshotId> {
        match self {
            Turn::Running => None,
            Turn::Paused(id) | Turn::Resuming(id) | Turn::Resetting(id) => Some(id),
        }
    }
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
            turn: Turn::Running,
            generation: 0,
            disk_bytes: 0,
            template: None,
            memory_on: None,
            disk_on: None,
            layers_had: 0,
            idle_pauses: spec.idle_pauses,
            resumes_by_itself: spec.resumes_by_itself,
            started_at_ms: None,
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

    /// Writes down what the guest may reach, for its next machine.
    pub(crate) fn write_egress(&self, egress: &SetEgress) -> std::io::Result<()> {
        write_whole(&self.0.join(EGRESS_FILE), &serde_json::to_vec(egress)?)
    }

    /// What the guest may reach.
    pub(crate) fn egress(&self) -> std::io::Result<SetEgress> {
        Ok(serde_json::from_slice(&std::fs::read(self.0.join(EGRESS_FILE))?)?)
    }

    /// An empty folder for the next machine; the one before must be gone.
    pub(crate) fn renew_vm(&self) -> std::io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        match std::fs::remove_dir_all(self.vm()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::DirBuilder::new().mode(0o700).create(self.vm())
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
