//! Which start commands are inits, and what those need. Pure.

use crate::process::Exit;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Names under which inits are started.
const NAMES: [&str; 2] = ["init", "systemd"];
/// Where they are.
const FOLDERS: [&str; 6] = ["/", "/sbin", "/bin", "/usr/sbin", "/lib/systemd", "/usr/lib/systemd"];
/// What systemd takes as the request to halt: SIGRTMIN+3 of the C library.
const SYSTEMD_HALT: i32 = 37;

/// Settings for systemd, path and text. Modules are there though the image may lack kmod, of which a unit of systemd's takes one for the other.
pub(super) const SYSTEMD_FILES: [(&str, &str); 1] =
    [("/run/systemd/system/kmod-static-nodes.service.d/warren.conf", "[Unit]\nConditionFileIsExecutable=/bin/kmod\n")];

/// An init, by how it is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InitKind {
    /// systemd.
    Systemd,
    /// Any other.
    Other,
}

impl InitKind {
    /// Which init a program is, if it is one; `resolve` follows the links of a path.
    pub(super) fn of(program: &str, resolve: impl Fn(&Path) -> Option<PathBuf>) -> Option<Self> {
        let path = Path::new(program);
        if !path.is_absolute() {
            return None;
        }
        let resolved = resolve(path);
        let is_systemd = |path: &Path| path.file_name().is_some_and(|name| name == "systemd");
        if is_systemd(path) || resolved.as_deref().is_some_and(is_systemd) {
            return Some(Self::Systemd);
        }
        let name = path.file_name()?.to_str()?;
        let folder = path.parent()?.to_str()?;
        (NAMES.contains(&name) && FOLDERS.contains(&folder)).then_some(Self::Other)
    }

    /// The signal that makes it end all and itself.
    pub(super) fn stop_signal(self) -> i32 {
        match self {
            Self::Systemd => SYSTEMD_HALT,
            Self::Other => libc::SIGTERM,
        }
    }
}

/// What an init did with the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MachineEnd {
    /// Halted it, or switched it off.
    Off,
    /// Asked for its restart.
    Restart,
}

/// How the kernel tells of a `reboot` call in a PID namespace: by the signal that ends its first process. No other can end that by these.
pub(super) fn machine_end(exit: Exit) -> Option<MachineEnd> {
    match exit {
        Exit::Signal(libc::SIGINT) => Some(MachineEnd::Off),
        Exit::Signal(libc::SIGHUP) => Some(MachineEnd::Restart),
        _ => None,
    }
}

/// The environment of an init: what tells systemd that machine and devices are set up already, unless the sandbox says something else.
pub(super) fn environment(sandbox: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    const NAME: &str = "container";
    let value = sandbox.get(NAME).cloned().unwrap_or_else(|| "warren".to_owned());
    BTreeMap::from([(NAME.to_owned(), value)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inits_are_known_by_path_and_by_what_they_resolve_to() {
        let plain = |path: &Path| Some(path.to_owned());
        let systemd = |_: &Path| Some(PathBuf::from("/usr/lib/systemd/systemd"));
        for (program, wanted) in [
            ("/lib/systemd/systemd", Some(InitKind::Systemd)),
            ("/sbin/init", Some(InitKind::Other)),
            ("/init", Some(InitKind::Other)),
            ("/app/init", None),
            ("/bin/bash", None),
            ("init", None),
            ("", None),
        ] {
            assert_eq!(InitKind::of(program, plain), wanted, "{program}");
        }
        assert_eq!(InitKind::of("/sbin/init", systemd), Some(InitKind::Systemd));
        assert_eq!(InitKind::of("/sbin/init", |_| None), Some(InitKind::Other));
    }

    #[test]
    fn only_a_reboot_call_ends_the_machine() {
        assert_eq!(machine_end(Exit::Signal(libc::SIGINT)), Some(MachineEnd::Off));
        assert_eq!(machine_end(Exit::Signal(libc::SIGHUP)), Some(MachineEnd::Restart));
        for other in [Exit::Code(0), Exit::Code(130), Exit::Signal(libc::SIGKILL), Exit::Signal(libc::SIGSEGV)] {
            assert_eq!(machine_end(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_sandbox_may_name_another_container() {
        assert_eq!(environment(&BTreeMap::new())["container"], "warren");
        let own = BTreeMap::from([("container".to_owned(), "docker".to_owned()), ("A".to_owned(), "b".to_owned())]);
        assert_eq!(environment(&own), BTreeMap::from([("container".to_owned(), "docker".to_owned())]));
    }
}
