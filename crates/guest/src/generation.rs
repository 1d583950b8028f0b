//! What programs can see of the machine's identity, as files in [`LINK`].
//!
//! `sandbox-id` is the sandbox's id, `generation` a number that grows with each restore: a fork, a reset, a resume. It is written while all programs
//! stand still, after everything else has become the machine's own and before they go on. Whoever watches the file (inotify), or asked the kernel for a signal
//! when something changes in the folder (`F_NOTIFY`), therefore has the event or the signal before the next instruction of its own.

use crate::init::keeping_times;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::Path;

/// Where the files are: on a file system of the kernel's, which costs no write to a disk and is hidden by nothing that is mounted on `/run`.
const FOLDER: &str = "/dev/warren/run";
/// Where programs look for them.
const LINK: &str = "/run/warren";
const GENERATION: &str = "generation";
const SANDBOX_ID: &str = "sandbox-id";

/// Makes the files, at the machine's start.
pub(crate) fn prepare() -> io::Result<()> {
    fs::create_dir_all(FOLDER)?;
    tell(GENERATION, "0")?;
    tell(SANDBOX_ID, "")
}

/// Makes the link in a new root, or in what was mounted on its `/run`. What an image has there itself stays.
pub(crate) fn link() -> io::Result<()> {
    let parent = Path::new(LINK).parent().unwrap_or(Path::new("/"));
    if !parent.exists() {
        keeping_times(Path::new("/"), || fs::create_dir(parent))?;
    }
    if Path::new(LINK).symlink_metadata().is_ok() {
        return Ok(());
    }
    keeping_times(parent, || symlink(FOLDER, LINK))
}

/// Says which sandbox this is. To be called before [`tell_generation`].
pub(crate) fn tell_sandbox(id: &str) -> io::Result<()> {
    tell(SANDBOX_ID, id)
}

/// Says how often this machine went on from a snapshot.
pub(crate) fn tell_generation(generation: u64) -> io::Result<()> {
    tell(GENERATION, &generation.to_string())
}

/// Writes in place, so that who has the file open sees it; a reader finds the old text or the new one, never none.
fn tell(name: &str, text: &str) -> io::Result<()> {
    let line = format!("{text}\n");
    let path = Path::new(FOLDER).join(name);
    let mut file = File::options().write(true).create(true).truncate(false).open(path)?;
    file.write_all(line.as_bytes())?;
    let len = line.len() as u64;
    if file.metadata()?.len() > len { file.set_len(len) } else { Ok(()) }
}
