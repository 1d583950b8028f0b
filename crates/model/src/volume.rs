//! Volumes: what one may be called, and where a sandbox may have it.

use crate::limits::{MOUNT_PATH_LEN_MAX, VOLUME_NAME_LEN_MAX};
use std::fmt;

/// A volume in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeMount {
    /// Which, in the scope of the sandbox's owner.
    pub name: VolumeName,
    /// Where the guest has it.
    pub path: MountPath,
    /// Whether the guest may only read.
    pub read_only: bool,
    /// Digest of what was published last when the sandbox was made; `None`: nothing, so that it is empty.
    pub base: Option<String>,
}

/// A volume's name: 1 to [`VOLUME_NAME_LEN_MAX`] of `A-Z a-z 0-9 . _ - /`, the first a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeName(String);

/// The text is no volume's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 1 to {VOLUME_NAME_LEN_MAX} letters, digits and . _ - /, a letter or digit first")]
pub struct BadVolumeName;

impl VolumeName {
    /// Parses a name that came from outside.
    pub fn parse(text: &str) -> Result<Self, BadVolumeName> {
        let bytes = text.as_bytes();
        let good = (1..=VOLUME_NAME_LEN_MAX).contains(&bytes.len())
            && bytes[0].is_ascii_alphanumeric()
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(byte));
        if good { Ok(Self(text.to_owned())) } else { Err(BadVolumeName) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Folders of the guest that are its kernel's and its agent's.
const KERNELS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Where a volume is mounted: an absolute path without `.` and `..`, and without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MountPath(String);

/// The text is no path to mount a volume at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadMountPath {
    /// Relative, or empty.
    #[error("must be an absolute path")]
    Relative,
    /// Too long, or with characters that no path should have.
    #[error("must be at most {MOUNT_PATH_LEN_MAX} bytes without control characters")]
    Text,
    /// With `.` or `..`.
    #[error("must not have . or .. in it")]
    Dots,
    /// The root.
    #[error("must not be /, where the image is")]
    Root,
    /// Of the kernel.
    #[error("must not be in /proc, /sys or /dev")]
    Kernels,
}

impl MountPath {
    /// Parses a path that came from outside; slashes that say nothing go.
    pub fn parse(text: &str) -> Result<Self, BadMountPath> {
        if !text.starts_with('/') {
            return Err(BadMountPath::Relative);
        }
        if text.len() > MOUNT_PATH_LEN_MAX || text.chars().any(char::is_control) {
            return Err(BadMountPath::Text);
        }
        let mut path = String::with_capacity(text.len());
        for part in text.split('/').filter(|part| !part.is_empty()) {
            if [".", ".."].contains(&part) {
                return Err(BadMountPath::Dots);
            }
            path.push('/');
            path.push_str(part);
        }
        let within =
            |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        match path.as_str() {
            "" => Err(BadMountPath::Root),
            _ if KERNELS.into_iter().any(within) => Err(BadMountPath::Kernels),
            _ => Ok(Self(path)),
        }
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["logs", "auth", "a/b", "Data.v1_2-x", "7", &"a".repeat(VOLUME_NAME_LEN_MAX)] {
            assert_eq!(VolumeName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "/a", "-a", ".a", "..", "a b", "a:b", "a\0", "ä", "a%", &"a".repeat(VOLUME_NAME_LEN_MAX + 1)] {
            assert_eq!(VolumeName::parse(bad), Err(BadVolumeName), "{bad:?}");
        }
    }

    #[test]
    fn paths() {
        for (text, path) in [("/data", "/data"), ("//a///b/", "/a/b"), ("/process", "/process"), ("/a b/ü", "/a b/ü")]
        {
            assert_eq!(MountPath::parse(text).unwrap().as_str(), path);
        }
        let bad = [
            ("", BadMountPath::Relative),
            ("data", BadMountPath::Relative),
            ("/", BadMountPath::Root),
            ("//", BadMountPath::Root),
            ("/a/../b", BadMountPath::Dots),
            ("/./a", BadMountPath::Dots),
            ("/proc", BadMountPath::Kernels),
            ("/proc/x", BadMountPath::Kernels),
            ("/dev/warren", BadMountPath::Kernels),
            ("//sys/", BadMountPath::Kernels),
            ("/a\nb", BadMountPath::Text),
        ];
        for (text, why) in bad {
            assert_eq!(MountPath::parse(text), Err(why), "{text:?}");
        }
        assert_eq!(MountPath::parse(&"/a".repeat(MOUNT_PATH_LEN_MAX)), Err(BadMountPath::Text));
    }
}
