//! Scripts longer than the kernel takes as one argument.
//!
//! `bash -c SCRIPT` fails with E2BIG from 128 KiB on. Such a script goes into an anonymous file that the shell reads by its `.`
//! command: `$0`, arguments, input and exit status stay those of `-c`. The file's descriptor is closed by the first words of
//! the file itself, which the shell has read to its end by then; they stand on the first line, so line numbers stay right too.

use super::STRING_LEN_MAX;
use rustix::fs::{MemfdFlags, SeekFrom};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{OwnedFd, RawFd};

/// Number of the script's descriptor in the shell, far from those that scripts use.
pub(super) const SCRIPT_FD: RawFd = 200;
/// Put before the script.
const PREAMBLE: &[u8] = b"exec 200<&-; ";
/// Given to the shell instead of the script.
pub(super) const SOURCE_SCRIPT: &str = ". /proc/self/fd/200";
/// Shells that understand both.
const SHELLS: [&str; 4] = ["bash", "sh", "dash", "ash"];

/// Whether this command is a shell with a script that is too long for an argument.
pub(super) fn is_too_long(program: &str, args: &[String]) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    matches!(args, [flag, script, ..] if flag == "-c" && script.len() > STRING_LEN_MAX) && SHELLS.contains(&name)
}

/// The script in an anonymous file.
pub(super) fn store(script: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("script", MemfdFlags::CLOEXEC)?);
    file.write_all(PREAMBLE)?;
    file.write_all(script.as_bytes())?;
    rustix::fs::seek(&file, SeekFrom::Start(0))?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shell_with_a_long_script_qualifies() {
        let long = "x".repeat(STRING_LEN_MAX + 1);
        let args = |script: &str| vec!["-c".to_owned(), script.to_owned()];
        assert!(is_too_long("/bin/bash", &args(&long)));
        assert!(!is_too_long("/bin/bash", &args(&long[1..])));
        assert!(!is_too_long("/usr/bin/python3", &args(&long)));
        assert!(!is_too_long("/bin/bash", std::slice::from_ref(&long)));
    }
}
