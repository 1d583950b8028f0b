use super::sink::Sink;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Links followed to the file that is really written.
const LINKS_MAX: usize = 40;
/// Mode of a file that did not exist.
const MODE_NEW: u32 = 0o644;
/// Names tried for the file beside the target.
const NAMES_MAX: usize = 100;

/// A file that is being written: nothing is seen at its path until [`Upload::commit`], and nothing is left if it is dropped
/// before. (A device or pipe is written directly.) Synchronous; to be run with the rights of the file's user.
#[derive(Debug)]
pub(super) struct Upload {
    sink: Sink,
    target: PathBuf,
    /// The file beside the target; `None` once it is in place, or where the target is written directly.
    beside: Option<PathBuf>,
    /// The regular file that is replaced.
    replaced: Option<Metadata>,
    /// Folders that were made for it, outermost first.
    made: Vec<PathBuf>,
}

impl Upload {
    /// Opens it: follows links, makes missing folders, checks that an existing file may be written. For `by_blocks` see [`Sink`].
    pub(super) fn open(path: &Path, by_blocks: bool) -> io::Result<Self> {
        let target = follow_links(path)?;
        let is_folder_name = target.as_os_str().as_encoded_bytes().ends_with(b"/");
        let replaced = match std::fs::metadata(&target) {
            Ok(found) if found.is_dir() => return Err(Errno::ISDIR.into()),
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_folder_name => None,
            Err(_) if is_folder_name => return Err(Errno::ISDIR.into()),
            Err(error) => return Err(error),
        };
        if replaced.is_some() {
            let existing = open_existing(&target)?;
            if !replaced.as_ref().is_some_and(Metadata::is_file) {
                let sink = Sink::new(existing.ok_or(Errno::TXTBSY)?, false);
                return Ok(Self { sink, target, beside: None, replaced: None, made: Vec::new() });
            }
        }
        let folder = target.parent().unwrap_or(Path::new("/"));
        let mut made = Vec::new();
        match make_folders(folder, &mut made).and_then(|()| create_beside(folder)) {
            Ok((file, beside)) => {
                let sink = Sink::new(file, by_blocks);
                Ok(Self { sink, target, beside: Some(beside), replaced, made })
            }
            Err(error) => {
                remove_folders(&made);
                Err(error)
            }
        }
    }

    /// Appends.
    pub(super) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.sink.write(data)
    }

    /// Appends what starts at `at` of the exchange disk.
    pub(super) fn take(&mut self, disk: &File, at: u64, len: usize) -> io::Result<()> {
        self.sink.take(disk, at, len)
    }

    /// Puts it in its place, with mode and owner of the file that was there.
    pub(super) fn commit(mut self) -> io::Result<()> {
        self.sink.finish()?;
        let Some(beside) = &self.beside else { return Ok(()) };
        let file = self.sink.file();
        let mode = match &self.replaced {
            Some(old) => {
                let (uid, gid) = (old.uid(), old.gid());
                let now = file.metadata()?;
                if (now.uid(), now.gid()) != (uid, gid) {
                    std::os::unix::fs::fchown(file, Some(uid), Some(gid))?;
                }
                old.mode() & 0o7777
            }
            None => MODE_NEW,
        };
        file.set_permissions(Permissions::from_mode(mode))?;
        std::fs::rename(beside, &self.target)?;
        self.beside = None;
        self.made.clear();
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(beside) = self.beside.take() {
            // If even that fails, there is nothing more to be done about it here.
            let _ = std::fs::remove_file(beside);
            remove_folders(&self.made);
        }
    }
}

fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match std::fs::read_link(&path) {
            // An absolute link replaces the whole path.
            Ok(link) => path = path.parent().unwrap_or(Path::new("/")).join(link),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => return Ok(path),
            Err(error) => return Err(error),
        }
    }
    Err(Errno::LOOP.into())
}

/// Checks that what exists may be written. `None` for a program that runs: it can be replaced, though not written.
fn open_existing(target: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    match rustix::fs::open(target, flags, Mode::empty()) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::TXTBSY) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn make_folders(folder: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    for folder in missing.into_iter().rev() {
        match std::fs::create_dir(folder) {
            Ok(()) => made.push(folder.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Those that something else has used by now stay.
fn remove_folders(made: &[PathBuf]) {
    for folder in made.iter().rev() {
        let _ = std::fs::remove_dir(folder);
    }
}

fn create_beside(folder: &Path) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..NAMES_MAX {
        let name = format!(".warren-upload-{:08x}", NEXT.fetch_add(1, Ordering::Relaxed));
        let beside = folder.join(OsStr::new(&name));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::open(&beside, flags, Mode::from(0o600)) {
            Ok(file) => return Ok((file.into(), beside)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn put(path: &Path, data: &[u8]) -> io::Result<()> {
        let mut upload = Upload::open(path, false)?;
        upload.write(data)?;
        upload.commit()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_file_has_its_folders_and_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c.bin");
        put(&path, b"\x00\xff").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"\x00\xff");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o644);
        assert_eq!(names(path.parent().unwrap()), ["c.bin"]);
    }

    #[test]
    fn a_replaced_file_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        put(&path, b"old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o4751)).unwrap();
        put(&path, b"new").unwrap();
        assert_eq!(
            (std::fs::read(&path).unwrap(), path.metadata().unwrap().mode() & 0o7777),
            (b"new".to_vec(), 0o4751)
        );
    }

    #[test]
    fn links_are_followed_also_into_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("link");
        symlink("other/file", &path).unwrap();
        put(&path, b"x").unwrap();
        assert_eq!(std::fs::read(dir.path().join("other/file")).unwrap(), b"x");
        assert!(path.is_symlink());
        symlink("circle", dir.path().join("circle")).unwrap();
        assert_eq!(put(&dir.path().join("circle"), b"x").unwrap_err().raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn a_dropped_upload_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut upload = Upload::open(&dir.path().join("a/b"), true).unwrap();
        upload.write(b"half").unwrap();
        drop(upload);
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn folders_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("new/")] {
            assert_eq!(put(&path, b"").unwrap_err().raw_os_error(), Some(libc::EISDIR));
        }
        put(&dir.path().join("file"), b"").unwrap();
        assert_eq!(put(&dir.path().join("file/below"), b"").unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
    }

    #[test]
    fn a_device_is_written_directly() {
        put(Path::new("/dev/null"), b"x").unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    }
}
