use super::error::ServeError;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The file that is locked; it holds the pid of its owner for messages.
const LOCK_FILE: &str = "serve.lock";
/// Longest pid that is read back, bytes.
const PID_LEN_MAX: u64 = 20;

/// One server at a time may use a data directory. The kernel lets go of the lock when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct DataDirLock {
    _file: File,
}

impl DataDirLock {
    /// Makes the directory if missing, and locks it.
    pub(super) fn take(data_dir: &Path) -> Result<Self, ServeError> {
        let failed = |source| ServeError::DataDir { path: data_dir.to_owned(), source };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir).map_err(failed)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(data_dir.join(LOCK_FILE))
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                let _ = file.take(PID_LEN_MAX).read_to_string(&mut pid);
                return Err(ServeError::Locked { path: data_dir.to_owned(), pid: pid.trim().to_owned() });
            }
            Err(error) => return Err(failed(error.into())),
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_at_a_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a/b");
        let first = DataDirLock::take(&path).expect("free");
        match DataDirLock::take(&path) {
            Err(ServeError::Locked { pid, .. }) => assert_eq!(pid, std::process::id().to_string()),
            other => panic!("{other:?}"),
        }
        drop(first);
        DataDirLock::take(&path).expect("free again");
    }
}
