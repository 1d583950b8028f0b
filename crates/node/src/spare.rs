//! A copy of a base template's memory, made ahead.
//!
//! The memory of a snapshot is laid out on a copy of its template's, more than 100 MB, which takes longer than all else that a fork does on the host.
//! Who forks once forks again, so the next copy is made once there is time.

use crate::host::joined;
use crate::sealed::copy;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time after the use of a copy until the next one is made: the machine that needed it has started.
const MAKE_AFTER: Duration = Duration::from_millis(500);
/// Time for which a copy is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(300);

/// At most one copy, of the template that was used last.
#[derive(Default)]
pub(crate) struct SpareMemory {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Grows with each use, so that who waits knows whether something happened meanwhile.
    uses: u64,
    copy: Option<(FileName, File)>,
}

/// A file, and not another one of the same path.
#[derive(Debug, PartialEq, Eq)]
struct FileName {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl FileName {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Ok(Self { device: metadata.dev(), inode: metadata.ino(), changed })
    }
}

impl SpareMemory {
    /// A copy of this memory that is the caller's alone, not sealed yet. Blocks, unless one was made ahead.
    pub(crate) fn take(&self, template: &Path) -> io::Result<File> {
        let template = File::open(template)?;
        let name = FileName::of(&template)?;
        let kept = {
            let mut kept = self.kept();
            kept.uses += 1;
            kept.copy.take_if(|(of, _)| *of == name)
        };
        kept.map_or_else(|| copy(&template), |(_, copy)| Ok(copy))
    }

    /// Makes the next copy of this memory in the background, unless another one is used meanwhile, and lets it go again when nobody needs it.
    pub(crate) fn make_ahead(self: &Arc<Self>, template: PathBuf) {
        let spare = Arc::downgrade(self);
        let uses = self.kept().uses;
        tokio::spawn(async move {
            tokio::time::sleep(MAKE_AFTER).await;
            let Some(this) = spare.upgrade().filter(|this| this.kept().uses == uses) else { return };
            let make = move || {
                let template = File::open(template)?;
                let copy = copy(&template)?;
                let mut kept = this.kept();
                if kept.uses == uses {
                    kept.copy = Some((FileName::of(&template)?, copy));
                }
                Ok::<_, io::Error>(())
            };
            if let Err(error) = joined(tokio::task::spawn_blocking(make)).await {
                tracing::debug!(%error, "no copy of the template's memory was made ahead");
            }
            tokio::time::sleep(IDLE).await;
            if let Some(this) = spare.upgrade() {
                let mut kept = this.kept();
                if kept.uses == uses {
                    kept.copy = None;
                }
            }
        });
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn word(file: &File) -> [u8; 4] {
        let mut word = [0; 4];
        file.read_exact_at(&mut word, 0).unwrap();
        word
    }

    async fn made(spare: &SpareMemory) {
        while spare.kept().copy.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_copy_is_there_before_it_is_asked_for_and_goes_unused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        std::fs::write(&path, b"some").unwrap();
        let spare = Arc::new(SpareMemory::default());
        let first = spare.take(&path).unwrap();
        first.write_all_at(b"mine", 0).unwrap();
        spare.make_ahead(path.clone());
        made(&spare).await;
        let second = spare.take(&path).unwrap();
        assert_eq!((word(&second), spare.kept().copy.is_none()), (*b"some", true));
        spare.make_ahead(path.clone());
        made(&spare).await;
        tokio::time::sleep(IDLE * 2).await;
        assert!(spare.kept().copy.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_template_that_was_made_anew_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        std::fs::write(&path, b"some").unwrap();
        let spare = Arc::new(SpareMemory::default());
        drop(spare.take(&path).unwrap());
        spare.make_ahead(path.clone());
        made(&spare).await;
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"else").unwrap();
        assert_eq!(word(&spare.take(&path).unwrap()), *b"else");
    }
}
