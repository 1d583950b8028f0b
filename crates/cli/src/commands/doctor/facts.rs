use std::path::PathBuf;

/// What was seen of this machine; nothing is judged yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    /// First line of `--version`, or why there is none.
    pub(super) qemu: Found,
    /// Release of the newest usable kernel.
    pub(super) kernel: Found,
    pub(super) agent: Found,
    pub(super) bash: Found,
    pub(super) busybox: Found,
    pub(super) debootstrap: Found,
    pub(super) kvm: Kvm,
    /// Accelerator and reason that an earlier start of the server found.
    pub(super) verdict: Option<(String, String)>,
    pub(super) data_dir: DataDir,
    /// All memory and what is free of it, MiB.
    pub(super) memory_mib: u64,
    pub(super) memory_free_mib: u64,
    /// Files that a process may have open: now, and at most.
    pub(super) open_files: (Option<u64>, Option<u64>),
    pub(super) cores: usize,
    pub(super) rights: Rights,
}

/// With which rights we run, and what the kernel lets us do with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rights {
    Root { locks_in: bool },
    User { name_spaces: bool },
}

/// Something that is there, or what to do to have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Here(String),
    Missing { fix: String },
}

/// `/dev/kvm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kvm {
    Absent,
    Refused(String),
    Opens,
}

/// Where the server keeps everything.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DataDir {
    pub(super) path: PathBuf,
    pub(super) exists: bool,
    /// Why no file can be made in it, or in the directory where it will be made.
    pub(super) problem: Option<String>,
    /// Whether files can share their blocks.
    pub(super) reflink: bool,
    /// Why no unix socket can be made in it.
    pub(super) socket_problem: Option<String>,
    pub(super) free_mib: u64,
}
