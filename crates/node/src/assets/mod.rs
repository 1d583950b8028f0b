//! What every guest of this node boots from: kernel, initramfs with the agent, and the disk of modules and stand-in tools.
//!
//! Made from Debian's packages on the host and the agent beside our own executable, once per combination of them.

mod cpio;
mod find;
mod modules;
mod tools;

pub use find::{FindError, HostFiles, agent, bash, busybox, find, kernel, qemu};

use crate::ended::write_whole;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Version of what we make from the host's files; a change makes new assets.
const FORMAT: u32 = 1;
/// Largest kernel module that the initramfs takes, bytes.
const MODULE_LEN_MAX: u64 = 16 << 20;

/// Files that guests boot from.
#[derive(Debug, Clone)]
pub(crate) struct Assets {
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
    pub(crate) tools_disk: PathBuf,
    /// Names this combination of kernel, agent and tools.
    pub(crate) key: String,
}

/// Why assets could not be made.
#[derive(Debug, thiserror::Error)]
pub enum AssetsError {
    /// Something is missing on the host.
    #[error(transparent)]
    Find(#[from] FindError),
    /// A file could not be read or written.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The disk of modules and tools could not be made.
    #[error("make the disk of kernel modules and tools: {0}")]
    Tools(String),
}

impl AssetsError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> AssetsError {
        let path = path.display().to_string();
        move |source| AssetsError::Io { action, path, source }
    }
}

/// Makes the assets under `dir`, or finds them made. Blocks for a second or so the first time.
pub(crate) fn prepare(dir: &Path, host: &HostFiles) -> Result<Assets, AssetsError> {
    let agent = std::fs::read(&host.agent).map_err(AssetsError::io("read", &host.agent))?;
    let key = key(host, &agent)?;
    let home = dir.join(&key);
    let assets = Assets {
        kernel: home.join("kernel"),
        initramfs: home.join("initramfs"),
        tools_disk: home.join("tools.ext4"),
        key: key.clone(),
    };
    if home.exists() {
        return Ok(assets);
    }
    std::fs::create_dir_all(dir).map_err(AssetsError::io("make", dir))?;
    let draft = dir.join(format!("{key}.draft"));
    let _ = std::fs::remove_dir_all(&draft);
    std::fs::create_dir(&draft).map_err(AssetsError::io("make", &draft))?;
    std::fs::copy(&host.kernel, draft.join("kernel")).map_err(AssetsError::io("copy", &host.kernel))?;
    let archive = initramfs(host, &agent)?;
    write_whole(&draft.join("initramfs"), &archive).map_err(AssetsError::io("write", &draft))?;
    tools::make(&draft.join("tools.ext4"), host).map_err(AssetsError::Tools)?;
    std::fs::rename(&draft, &home).map_err(AssetsError::io("rename", &draft))?;
    Ok(assets)
}

/// A digest over everything that the assets are made from.
fn key(host: &HostFiles, agent: &[u8]) -> Result<String, AssetsError> {
    let mut hash = Sha256::new();
    hash.update(FORMAT.to_le_bytes());
    hash.update(agent);
    for path in [&host.kernel, &host.bash, &host.busybox] {
        let meta = std::fs::metadata(path).map_err(AssetsError::io("read", path))?;
        let modified = meta.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
        hash.update(path.as_os_str().as_encoded_bytes());
        hash.update(meta.len().to_le_bytes());
        hash.update(modified.map_or(0, |d| d.as_nanos()).to_le_bytes());
    }
    hash.update(host.release.as_bytes());
    hash.update(tools::NOHUP);
    hash.update(tools::RESEED);
    hash.update(modules::EARLY.join("\n"));
    Ok(hex_prefix(hash))
}

/// A digest short enough for a file's name, long enough that two things never share it by chance.
pub(crate) fn short_digest(of: &[u8]) -> String {
    hex_prefix(Sha256::new().chain_update(of))
}

fn hex_prefix(hash: Sha256) -> String {
    hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// The agent as `/init` and the modules that it needs to find its devices.
fn initramfs(host: &HostFiles, agent: &[u8]) -> Result<Vec<u8>, AssetsError> {
    let dep = host.modules.join("modules.dep");
    let dep = std::fs::read_to_string(&dep).map_err(AssetsError::io("read", &dep))?;
    let mut archive = cpio::Archive::default();
    for dir in ["dev", "proc", "sys", "run", "newroot", "lib", "lib/modules-early"] {
        archive.directory(dir);
    }
    let mut order = String::new();
    for path in modules::load_order(&dep, &modules::EARLY) {
        let content = module_bytes(&host.modules.join(path))?;
        let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".xz");
        archive.file(&format!("lib/modules-early/{name}"), 0o644, &content);
        order.push_str(name);
        order.push('\n');
    }
    archive.file("lib/modules-early/order", 0o644, order.as_bytes());
    archive.file("init", 0o755, agent);
    Ok(archive.finish())
}

/// A module as the kernel takes it: some distributions keep them compressed.
fn module_bytes(path: &Path) -> Result<Vec<u8>, AssetsError> {
    let length = std::fs::metadata(path).map_err(AssetsError::io("read", path))?.len();
    if length > MODULE_LEN_MAX {
        return Err(AssetsError::io("load", path)(std::io::ErrorKind::FileTooLarge.into()));
    }
    if path.extension().is_some_and(|e| e == "xz") {
        let output = std::process::Command::new("xz").arg("-dc").arg(path).output();
        return output.map(|o| o.stdout).map_err(AssetsError::io("unpack with xz", path));
    }
    std::fs::read(path).map_err(AssetsError::io("read", path))
}
