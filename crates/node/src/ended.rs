//! How sandboxes ended, kept until control has taken note: a crash between an end and its report loses nothing.

use std::io::Write;
use std::path::{Path, PathBuf};
use warren_model::SandboxId;
use warren_proto::shim::End;

/// What is kept of an ended sandbox.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Ended {
    pub(crate) id: String,
    pub(crate) image_digest: Option<String>,
    pub(crate) started_at_ms: Option<u64>,
    pub(crate) last_oom: Option<String>,
    pub(crate) end: End,
}

/// The folder of end records.
#[derive(Debug, Clone)]
pub(crate) struct EndedRecords(PathBuf);

impl EndedRecords {
    pub(crate) fn open(dir: PathBuf) -> std::io::Result<Self> {
        std::fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }

    fn path(&self, id: &SandboxId) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }

    /// Whole or not at all.
    pub(crate) fn put(&self, id: &SandboxId, record: &Ended) -> std::io::Result<()> {
        write_whole(&self.path(id), &serde_json::to_vec(record)?)
    }

    pub(crate) fn remove(&self, id: &SandboxId) {
        let _ = std::fs::remove_file(self.path(id));
    }

    /// All records that can be read.
    pub(crate) fn all(&self) -> Vec<Ended> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.filter_map(|e| serde_json::from_slice(&std::fs::read(e.path()).ok()?).ok()).collect()
    }
}

/// Writes a file so that a reader, also one after a crash, sees all of it or none.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let draft = path.with_extension("draft");
    let mut file = std::fs::File::create(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}
