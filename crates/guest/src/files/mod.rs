//! Files up and down, as the sandbox's default user. What touches the disk runs beside the agent's one thread, so that a slow
//! disk does not hold commands up; bodies pass in pieces, so that a file's size does not show in the agent's memory.

mod aligned;
mod as_user;
mod download;
mod give;
mod json_text;
mod read_file;
mod sink;
mod source;
mod upload;
mod window;
mod write;

pub use as_user::{FileUser, run_as};
pub use download::download;
pub use json_text::JsonText;
pub use read_file::read_file;
pub use write::write;

use crate::http::{Query, Refusal};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The `path` of a request: absolute, any bytes but NUL.
fn path_of(query: Query<'_>) -> Result<PathBuf, Refusal> {
    let bytes = query.get("path").ok_or_else(|| Refusal::bad_request("path: missing"))?;
    if bytes.first() != Some(&b'/') {
        return Err(Refusal::bad_request("path: must be absolute"));
    }
    if bytes.contains(&0) {
        return Err(Refusal::bad_request("path: contains a NUL byte"));
    }
    Ok(OsString::from_vec(bytes).into())
}

/// Opens a regular file for reading, without waiting for what is none.
fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    if !metadata.is_file() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok((file, metadata.len()))
}
