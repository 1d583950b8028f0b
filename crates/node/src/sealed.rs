//! Memory of templates and snapshots that nobody can write to, and that all machines share that start from it.
//!
//! QEMU opens what its memory starts from for writing, though it never writes there. A VMM that a guest has taken over would, and spoil
//! every sandbox that starts from the template. So a VMM gets a copy in memory that the kernel guards with a seal.

use crate::host::joined;
use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, memfd_create, seek};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Copies that are kept while no sandbox uses them.
const IDLE_MAX: usize = 4;
/// Bytes copied at once.
const BLOCK_LEN: usize = 1 << 20;

/// The copies that there are.
#[derive(Default)]
pub(crate) struct SealedMemories {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    making: HashMap<PathBuf, Arc<tokio::sync::Mutex<Weak<File>>>>,
    recent: VecDeque<(PathBuf, Arc<File>)>,
}

impl SealedMemories {
    /// The memory of `name`, by `make` if there is none. It lives as long as somebody holds it.
    pub(crate) async fn get(
        &self,
        name: &Path,
        make: impl FnOnce() -> io::Result<File> + Send + 'static,
    ) -> io::Result<Arc<File>> {
        let cell = {
            let mut known = self.known();
            known.making.entry(name.to_owned()).or_default().clone()
        };
        // One maker a name; others wait for it, and nobody for those of other names.
        let mut made = cell.lock().await;
        let sealed = match made.upgrade() {
            Some(sealed) => sealed,
            None => {
                let sealing = || make().and_then(|memory| seal(&memory).map(|()| memory));
                let sealed = joined(tokio::task::spawn_blocking(sealing)).await?;
                let sealed = Arc::new(sealed);
                *made = Arc::downgrade(&sealed);
                sealed
            }
        };
        drop(made);
        let mut known = self.known();
        known.recent.retain(|(_, file)| !Arc::ptr_eq(file, &sealed));
        known.recent.push_front((name.to_owned(), sealed.clone()));
        known.recent.truncate(IDLE_MAX);
        drop(cell);
        // Those that nobody holds and nobody makes.
        known
            .making
            .retain(|_, cell| Arc::strong_count(cell) > 1 || cell.try_lock().is_ok_and(|made| made.strong_count() > 0));
        Ok(sealed)
    }

    /// The memory of a template's file.
    pub(crate) async fn of_file(&self, memory: &Path) -> io::Result<Arc<File>> {
        let path = memory.to_owned();
        self.get(memory, move || copy(&File::open(path)?)).await
    }

    /// Nobody will ask for `name` again.
    pub(crate) fn forget(&self, name: &Path) {
        let mut known = self.known();
        known.recent.retain(|(recent, _)| recent != name);
        known.making.remove(name);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy with the same holes, in memory.
pub(crate) fn copy(source: &File) -> io::Result<File> {
    let copy = File::from(memfd_create("warren-template", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    let len = source.metadata()?.len();
    copy.set_len(len)?;
    let mut block = vec![0; BLOCK_LEN];
    let mut at = 0;
    while at < len {
        let data = match seek(source, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let hole = seek(source, SeekFrom::Hole(data))?;
        at = data;
        while at < hole {
            let part = (hole - at).min(BLOCK_LEN as u64) as usize;
            source.read_exact_at(&mut block[..part], at)?;
            copy.write_all_at(&block[..part], at)?;
            at += part as u64;
        }
    }
    Ok(copy)
}

/// Nobody can write to it any more.
fn seal(memory: &File) -> io::Result<()> {
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    Ok(fcntl_add_seals(memory, seals)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[tokio::test]
    async fn a_copy_is_the_same_and_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        let file = File::create(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(b"some", 3 << 20).unwrap();
        file.write_all_at(b"last", (64 << 20) - 4).unwrap();
        let memories = SealedMemories::default();
        let sealed = memories.of_file(&path).await.unwrap();
        assert!(Arc::ptr_eq(&sealed, &memories.of_file(&path).await.unwrap()));
        let mut word = [0; 4];
        for (at, wanted) in [(3 << 20, b"some"), ((64 << 20) - 4, b"last"), (9 << 20, &[0; 4])] {
            sealed.read_exact_at(&mut word, at).unwrap();
            assert_eq!(&word, wanted);
        }
        let metadata = sealed.metadata().unwrap();
        assert!(metadata.len() == 64 << 20 && metadata.blocks() * 512 < 8 << 20, "{metadata:?}");
        assert!(sealed.write_all_at(b"x", 0).is_err() && sealed.set_len(1).is_err());
    }

    #[tokio::test]
    async fn few_copies_are_kept_that_nobody_uses() {
        let dir = tempfile::tempdir().unwrap();
        let memories = SealedMemories::default();
        let held = dir.path().join("held");
        std::fs::write(&held, b"held").unwrap();
        let kept = memories.of_file(&held).await.unwrap();
        for n in 0..2 * IDLE_MAX {
            let path = dir.path().join(n.to_string());
            std::fs::write(&path, b"some").unwrap();
            memories.of_file(&path).await.unwrap();
        }
        assert_eq!(memories.known().making.len(), IDLE_MAX + 1);
        assert!(Arc::ptr_eq(&kept, &memories.of_file(&held).await.unwrap()));
    }
}
