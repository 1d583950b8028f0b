use super::facts::{DataDir, Facts, Found, Kvm, Rights};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use warren_node::assets::{self, FindError};

/// Bytes that are shared on trial; file systems share whole blocks only.
const SHARED_LEN: usize = 64 << 10;

/// Looks at everything. Leaves nothing behind.
pub(super) fn facts(data_dir: &Path) -> Facts {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    Facts {
        qemu: qemu(),
        kernel: found(assets::kernel().map(|(release, ..)| release)),
        agent: found(assets::agent().map(shown)),
        bash: found(assets::bash().map(shown)),
        busybox: found(assets::busybox().map(shown)),
        debootstrap: program("/usr/sbin/debootstrap", "debootstrap"),
        kvm: kvm(),
        verdict: warren_node::cached_accel(data_dir).map(|verdict| (accel_word(&verdict), verdict.why)),
        data_dir: look_at(data_dir),
        memory_mib: meminfo_mib(&meminfo, "MemTotal"),
        memory_free_mib: meminfo_mib(&meminfo, "MemAvailable"),
        open_files: (limit.current, limit.maximum),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        rights: rights(),
    }
}

fn rights() -> Rights {
    if crate::places::is_root() {
        return Rights::Root { locks_in: warren_shim::jail::is_possible() };
    }
    // The first is of every kernel, the second of Debian's; where the kernel has none of them, it has no user name spaces.
    let allows = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim() != "0");
    let general = allows("/proc/sys/user/max_user_namespaces").unwrap_or(false);
    Rights::User { name_spaces: general && allows("/proc/sys/kernel/unprivileged_userns_clone").unwrap_or(true) }
}

fn accel_word(verdict: &warren_node::AccelVerdict) -> String {
    serde_json::to_value(verdict.accel).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

fn shown(path: PathBuf) -> String {
    path.display().to_string()
}

fn found(result: Result<String, FindError>) -> Found {
    match result {
        Ok(what) => Found::Here(what),
        Err(error) => Found::Missing { fix: error.fix },
    }
}

fn program(path: &str, package: &str) -> Found {
    if Path::new(path).exists() {
        Found::Here(path.to_owned())
    } else {
        Found::Missing { fix: format!("apt-get install {package}") }
    }
}

fn qemu() -> Found {
    let path = match assets::qemu() {
        Ok(path) => path,
        Err(error) => return Found::Missing { fix: error.fix },
    };
    match Command::new(&path).arg("--version").output() {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            Found::Here(text.lines().next().unwrap_or("unknown version").to_owned())
        }
        _ => Found::Missing {
            fix: format!("{} does not run: apt-get install --reinstall qemu-system-x86", path.display()),
        },
    }
}

fn kvm() -> Kvm {
    match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(_) => Kvm::Opens,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Kvm::Absent,
        Err(error) => Kvm::Refused(error.to_string()),
    }
}

fn look_at(path: &Path) -> DataDir {
    let place = nearest_existing(path);
    DataDir {
        path: path.to_owned(),
        exists: path.is_dir(),
        problem: tempfile::tempfile_in(&place).err().map(|error| format!("{}: {error}", place.display())),
        reflink: shares_blocks(&place).unwrap_or(false),
        socket_problem: makes_sockets(&place).err().map(|error| error.to_string()),
        free_mib: rustix::fs::statvfs(&place).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize) >> 20),
    }
}

fn nearest_existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

fn shares_blocks(dir: &Path) -> io::Result<bool> {
    let mut from = tempfile::tempfile_in(dir)?;
    from.write_all(&vec![b'w'; SHARED_LEN])?;
    from.sync_all()?;
    let to: File = tempfile::tempfile_in(dir)?;
    Ok(rustix::fs::ioctl_ficlone(&to, &from).is_ok())
}

fn makes_sockets(dir: &Path) -> io::Result<()> {
    let folder = tempfile::Builder::new().prefix(".warren-").tempdir_in(dir)?;
    UnixListener::bind(folder.path().join("s")).map(drop)
}

fn meminfo_mib(text: &str, key: &str) -> u64 {
    let value = text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| *name == key);
    value.and_then(|(_, value)| value.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_leaves_nothing_behind() {
        let dir = tempfile::tempdir().expect("a directory");
        let seen = look_at(&dir.path().join("a/b"));
        assert!(!seen.exists && seen.problem.is_none() && seen.free_mib > 0, "{seen:?}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
    }

    #[test]
    fn memory_is_read_in_mib() {
        assert_eq!(meminfo_mib("MemTotal:        2048 kB\nMemAvailable: 1024 kB\n", "MemAvailable"), 1);
        assert_eq!(meminfo_mib("", "MemTotal"), 0);
    }
}
