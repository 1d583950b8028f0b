//! Which files of the host guests are made from.

use std::path::{Path, PathBuf};

/// Host files, found.
#[derive(Debug, Clone)]
pub struct HostFiles {
    /// `qemu-system-x86_64`.
    pub qemu: PathBuf,
    /// Kernel image.
    pub kernel: PathBuf,
    /// Its release, such as `6.1.0-57-cloud-amd64`.
    pub release: String,
    /// Its module tree.
    pub modules: PathBuf,
    /// The static guest agent.
    pub agent: PathBuf,
    /// Static bash.
    pub bash: PathBuf,
    /// Static busybox.
    pub busybox: PathBuf,
}

/// Something is missing on the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is missing: {fix}")]
pub struct FindError {
    /// What.
    pub what: &'static str,
    /// What to do about it.
    pub fix: String,
}

/// Looks for everything; the first missing thing is the error.
pub fn find() -> Result<HostFiles, FindError> {
    let (release, kernel, modules) = kernel()?;
    Ok(HostFiles { qemu: qemu()?, kernel, release, modules, agent: agent()?, bash: bash()?, busybox: busybox()? })
}

/// QEMU.
pub fn qemu() -> Result<PathBuf, FindError> {
    first(&["/usr/bin/qemu-system-x86_64", "/usr/local/bin/qemu-system-x86_64"], "QEMU", "qemu-system-x86")
}

/// The newest cloud kernel: its release, image and module tree.
pub fn kernel() -> Result<(String, PathBuf, PathBuf), FindError> {
    newest_kernel(Path::new("/boot"), Path::new("/lib/modules"))
        .ok_or_else(|| FindError { what: "a guest kernel", fix: "apt-get install linux-image-cloud-amd64".to_owned() })
}

/// Static bash, for images without one.
pub fn bash() -> Result<PathBuf, FindError> {
    first(&["/bin/bash-static", "/usr/bin/bash-static"], "static bash", "bash-static")
}

/// Static busybox, for the tools that images lack.
pub fn busybox() -> Result<PathBuf, FindError> {
    first(&["/bin/busybox", "/usr/bin/busybox"], "static busybox", "busybox-static")
}

fn first(candidates: &[&str], what: &'static str, package: &str) -> Result<PathBuf, FindError> {
    let found = candidates.iter().map(PathBuf::from).find(|p| p.exists());
    found.ok_or_else(|| FindError { what, fix: format!("apt-get install {package}") })
}

/// The guest agent, which stands beside our own executable.
pub fn agent() -> Result<PathBuf, FindError> {
    let missing = |fix: String| FindError { what: "the guest agent", fix };
    let ours = std::env::current_exe().map_err(|e| missing(e.to_string()))?;
    let agent = ours.with_file_name("warren-guest");
    if agent.exists() { Ok(agent) } else { Err(missing(format!("put it at {} (make build does)", agent.display()))) }
}

/// The newest cloud kernel that can be read and has its modules.
fn newest_kernel(boot: &Path, modules: &Path) -> Option<(String, PathBuf, PathBuf)> {
    let mut found: Vec<(Vec<u64>, String)> = std::fs::read_dir(modules)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|release| release.contains("cloud"))
        .filter(|release| std::fs::File::open(boot.join(format!("vmlinuz-{release}"))).is_ok())
        .filter(|release| modules.join(release).join("modules.dep").exists())
        .map(|release| (version(&release), release))
        .collect();
    found.sort();
    let (_, release) = found.pop()?;
    Some((release.clone(), boot.join(format!("vmlinuz-{release}")), modules.join(release)))
}

/// Numbers of a release, for comparison.
fn version(release: &str) -> Vec<u64> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_with_modules_wins() {
        let root = tempfile::tempdir().unwrap();
        let (boot, modules) = (root.path().join("boot"), root.path().join("modules"));
        std::fs::create_dir(&boot).unwrap();
        for (release, has_dep) in
            [("6.1.0-9-cloud-amd64", true), ("6.1.0-57-cloud-amd64", true), ("6.12.1-cloud-amd64", false)]
        {
            std::fs::create_dir_all(modules.join(release)).unwrap();
            std::fs::write(boot.join(format!("vmlinuz-{release}")), b"").unwrap();
            if has_dep {
                std::fs::write(modules.join(release).join("modules.dep"), b"").unwrap();
            }
        }
        assert_eq!(newest_kernel(&boot, &modules).unwrap().0, "6.1.0-57-cloud-amd64");
        assert!(newest_kernel(&boot, Path::new("/nonexistent")).is_none());
    }
}
