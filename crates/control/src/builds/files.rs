//! What lies on disk of builds: `builds/<id>/` with the context, the log, and the result on its way.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use tokio::fs;

/// Name of the folder in the data directory.
const FOLDER: &str = "builds";

/// Paths of builds.
pub(crate) struct Files {
    dir: PathBuf,
}

impl Files {
    pub(super) fn new(data_dir: &Path) -> Self {
        Files { dir: data_dir.join(FOLDER) }
    }

    /// Makes the folder of a build, if need be.
    pub(crate) async fn make(&self, id: &str) -> io::Result<()> {
        fs::create_dir_all(self.dir.join(id)).await
    }

    /// The whole context.
    pub(crate) fn context(&self, id: &str) -> PathBuf {
        self.dir.join(id).join("context.tar.gz")
    }

    /// A context that still comes.
    pub(crate) fn part(&self, id: &str) -> PathBuf {
        self.dir.join(id).join("context.part")
    }

    /// What the build said.
    pub(crate) fn log(&self, id: &str) -> PathBuf {
        self.dir.join(id).join("log")
    }

    /// The result on its way into the image store.
    pub(super) fn archive(&self, id: &str) -> PathBuf {
        self.dir.join(id).join("image.tar")
    }

    /// Removes all but the log: the build is over.
    pub(crate) async fn settle(&self, id: &str) -> io::Result<()> {
        for path in [self.context(id), self.part(id), self.archive(id)] {
            gone(fs::remove_file(path).await)?;
        }
        Ok(())
    }

    /// Removes everything.
    pub(super) async fn remove(&self, id: &str) -> io::Result<()> {
        gone(fs::remove_dir_all(self.dir.join(id)).await)
    }

    /// Ids of builds that have a folder.
    pub(super) async fn all(&self) -> io::Result<HashSet<String>> {
        let mut ids = HashSet::new();
        let mut entries = match fs::read_dir(&self.dir).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ids),
            Err(error) => return Err(error),
        };
        while let Some(entry) = entries.next_entry().await? {
            ids.extend(entry.file_name().into_string());
        }
        Ok(ids)
    }
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
