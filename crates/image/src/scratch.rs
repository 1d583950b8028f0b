//! Files of the store's `tmp` folder.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A file that goes unless it was moved away.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Looks after the file at `path`, which need not be there yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(path = ?self.0, %error, "temporary file stays until the next start");
        }
    }
}
