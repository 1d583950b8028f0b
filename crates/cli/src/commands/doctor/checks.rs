use super::facts::{DataDir, Facts, Found, Kvm, Rights};
use serde::Serialize;

/// Least memory for one small sandbox beside the server, MiB.
const MEMORY_MIB_MIN: u64 = 1024;
/// Least free disk for the guest's assets, one template and one small image, MiB.
const DISK_MIB_MIN: u64 = 2048;
/// Free disk below which it gets tight soon, MiB.
const DISK_MIB_FEW: u64 = 10 * 1024;
/// Open files below which many sandboxes at once fail.
const OPEN_FILES_FEW: u64 = 8192;
/// Longest path of a unix socket, bytes.
const SOCKET_PATH_MAX: usize = 107;
/// What follows the data directory in the longest socket path: `/sandboxes/<id>/shim.sock`.
const SOCKET_TAIL_LEN: usize = "/sandboxes//shim.sock".len() + warren_model::SandboxId::LEN_MAX;

/// How a check came out, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Ok,
    /// The server runs, with less.
    Warn,
    /// The server does not run.
    Fail,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) status: Status,
    pub(super) detail: String,
    /// A command, or words where there is none.
    pub(super) fix: Option<String>,
}

/// Judges what was seen.
pub(super) fn evaluate(facts: &Facts) -> Vec<Check> {
    let dir = &facts.data_dir;
    vec![
        needed("qemu", &facts.qemu),
        needed("guest kernel", &facts.kernel),
        needed("guest agent", &facts.agent),
        needed("static bash", &facts.bash),
        needed("static busybox", &facts.busybox),
        accelerator(facts),
        data_dir(dir),
        sockets(dir),
        disk(dir),
        reflink(dir),
        memory(facts),
        ok("cpu", format!("{} cores", facts.cores)),
        open_files(facts.open_files),
        rights(facts.rights),
        debootstrap(&facts.debootstrap),
    ]
}

fn ok(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, status: Status::Ok, detail: detail.into(), fix: None }
}

fn warn(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
    Check { name, status: Status::Warn, detail: detail.into(), fix: Some(fix.into()) }
}

fn fail(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
    Check { status: Status::Fail, ..warn(name, detail, fix) }
}

fn needed(name: &'static str, found: &Found) -> Check {
    match found {
        Found::Here(what) => ok(name, what),
        Found::Missing { fix } => fail(name, "missing", fix),
    }
}

/// Only a guest kernel that booted proves anything; a device that opens does not.
fn accelerator(facts: &Facts) -> Check {
    let slow = "sandboxes run by software emulation: slower, and complete";
    match (&facts.kvm, &facts.verdict) {
        (Kvm::Absent, _) => {
            warn("accelerator", format!("tcg: no /dev/kvm; {slow}"), "use a machine with virtualization")
        }
        (Kvm::Refused(problem), _) => {
            warn("accelerator", format!("tcg: /dev/kvm: {problem}; {slow}"), "usermod -aG kvm USER, and log in again")
        }
        (Kvm::Opens, Some((accel, why))) if accel == "kvm" => ok("accelerator", format!("kvm: {why}")),
        (Kvm::Opens, Some((accel, why))) => warn(
            "accelerator",
            format!("{accel}: {why}; {slow}"),
            "remove accel.json from the data directory to probe again",
        ),
        (Kvm::Opens, None) => ok(
            "accelerator",
            "/dev/kvm opens; not probed yet: the first start of the server boots the guest kernel with it",
        ),
    }
}

fn data_dir(dir: &DataDir) -> Check {
    let path = dir.path.display();
    match &dir.problem {
        Some(problem) => {
            fail("data directory", format!("{path} cannot be written: {problem}"), "choose another with --data-dir")
        }
        None if dir.exists => ok("data directory", format!("{path}")),
        None => ok("data directory", format!("{path} (made by the first start)")),
    }
}

fn sockets(dir: &DataDir) -> Check {
    let len = dir.path.as_os_str().len() + SOCKET_TAIL_LEN;
    match &dir.socket_problem {
        _ if len > SOCKET_PATH_MAX => fail(
            "unix sockets",
            format!("paths in the data directory get {len} bytes long, over the limit of {SOCKET_PATH_MAX}"),
            "choose a data directory with a shorter path",
        ),
        Some(problem) => fail("unix sockets", problem, "choose a data directory on a local file system"),
        None => ok("unix sockets", "can be made in the data directory"),
    }
}

fn disk(dir: &DataDir) -> Check {
    let detail = format!("{} MiB free", dir.free_mib);
    match dir.free_mib {
        free if free < DISK_MIB_MIN => {
            fail("disk", detail, format!("free at least {DISK_MIB_MIN} MiB, or choose another --data-dir"))
        }
        free if free < DISK_MIB_FEW => {
            warn("disk", detail, "remove images that are not used: warren images remove REF")
        }
        _ => ok("disk", detail),
    }
}

fn reflink(dir: &DataDir) -> Check {
    match dir.reflink {
        true => ok("reflink", "files share their blocks"),
        false => warn(
            "reflink",
            "files are copied whole: forks and snapshots take longer",
            "put the data directory on XFS or btrfs",
        ),
    }
}

fn memory(facts: &Facts) -> Check {
    let detail = format!("{} MiB, {} MiB free", facts.memory_mib, facts.memory_free_mib);
    match facts.memory_free_mib {
        free if free < MEMORY_MIB_MIN => {
            warn("memory", detail, format!("sandboxes need more than {MEMORY_MIB_MIN} MiB free"))
        }
        _ => ok("memory", detail),
    }
}

/// The server raises its own limit up to the hard one.
fn open_files((_, hard): (Option<u64>, Option<u64>)) -> Check {
    match hard {
        Some(hard) if hard < OPEN_FILES_FEW => warn(
            "open files",
            format!("at most {hard}"),
            format!("ulimit -Hn {OPEN_FILES_FEW}, or LimitNOFILE= in the service"),
        ),
        Some(hard) => ok("open files", format!("at most {hard}")),
        None => ok("open files", "no limit"),
    }
}

fn rights(rights: Rights) -> Check {
    match rights {
        Rights::Root { locks_in: true } => ok("rights", LOCKED_IN),
        Rights::Root { locks_in: false } => warn("rights", ROOT_ONLY, ROOT_FIX),
        Rights::User { name_spaces: true } => ok("rights", USER),
        Rights::User { name_spaces: false } => warn("rights", USER_ONLY, USER_FIX),
    }
}

/// What isolates a sandbox's QEMU from the host, beyond the virtual machine.
const LOCKED_IN: &str = "root: each sandbox's processes are a user of their own, in a file system of their own; QEMU has no network, no \
                         capability, and its seccomp filter";
const ROOT_ONLY: &str =
    "root, but the kernel does not let sandboxes be locked in: QEMU runs as root under its seccomp filter";
const ROOT_FIX: &str =
    "use a kernel from 5.8 on, give the container CAP_SYS_ADMIN, or run the server as an ordinary user";
const USER: &str = "ordinary user: QEMU runs with this user's rights, without network, under its seccomp filter; root would add a user and \
                    a file system of its own for each sandbox";
const USER_ONLY: &str = "ordinary user: QEMU runs with this user's rights and network, under its seccomp filter";
const USER_FIX: &str =
    "sysctl user.max_user_namespaces=65536 kernel.unprivileged_userns_clone=1, or run the server as root";

fn debootstrap(found: &Found) -> Check {
    match found {
        Found::Here(path) => ok("debootstrap", path),
        Found::Missing { fix } => warn("debootstrap", "missing: only `make quickstart` needs it", fix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        let here = || Found::Here("here".to_owned());
        Facts {
            qemu: here(),
            kernel: here(),
            agent: here(),
            bash: here(),
            busybox: here(),
            debootstrap: here(),
            kvm: Kvm::Opens,
            verdict: Some(("kvm".to_owned(), "it boots".to_owned())),
            data_dir: DataDir {
                path: "/var/lib/warren".into(),
                exists: true,
                problem: None,
                reflink: true,
                socket_problem: None,
                free_mib: 100_000,
            },
            memory_mib: 64_000,
            memory_free_mib: 32_000,
            open_files: (Some(1024), Some(1 << 20)),
            cores: 8,
            rights: Rights::Root { locks_in: true },
        }
    }

    /// The checks that are not in order, by name.
    fn found(facts: &Facts) -> Vec<(&'static str, Status)> {
        let checks = evaluate(facts).into_iter().filter(|check| check.status != Status::Ok);
        checks.map(|check| (check.name, check.status)).collect()
    }

    #[test]
    fn a_good_machine_has_nothing_to_fix() {
        assert_eq!(found(&facts()), []);
        assert!(evaluate(&facts()).iter().all(|check| check.fix.is_none()));
    }

    #[test]
    fn what_the_server_cannot_do_without_fails() {
        let missing = Found::Missing { fix: "apt-get install x".to_owned() };
        let bare = Facts { qemu: missing.clone(), kernel: missing.clone(), debootstrap: missing, ..facts() };
        assert_eq!(
            found(&bare),
            [("qemu", Status::Fail), ("guest kernel", Status::Fail), ("debootstrap", Status::Warn)]
        );
        assert_eq!(evaluate(&bare)[0].fix.as_deref(), Some("apt-get install x"));
    }

    #[test]
    fn a_device_that_opens_proves_nothing() {
        let of = |kvm, verdict: Option<(&str, &str)>| {
            let verdict = verdict.map(|(accel, why)| (accel.to_owned(), why.to_owned()));
            evaluate(&Facts { kvm, verdict, ..facts() })
                .into_iter()
                .find(|check| check.name == "accelerator")
                .expect("there")
        };
        assert!(of(Kvm::Opens, None).detail.contains("not probed yet"));
        assert_eq!(of(Kvm::Opens, Some(("tcg", "no boot"))).status, Status::Warn);
        assert_eq!(of(Kvm::Absent, None).status, Status::Warn);
        assert!(of(Kvm::Refused("denied".into()), None).fix.expect("a fix").contains("kvm"));
    }

    #[test]
    fn it_says_what_isolates_a_sandbox() {
        let of = |rights| {
            let mut found = evaluate(&Facts { rights, ..facts() }).into_iter().filter(|check| check.name == "rights");
            let check = found.next().expect("there");
            (check.status, check.detail, check.fix)
        };
        let (status, detail, _) = of(Rights::Root { locks_in: true });
        assert!(status == Status::Ok && detail.contains("a user of their own"), "{detail}");
        let (status, detail, _) = of(Rights::User { name_spaces: true });
        assert!(status == Status::Ok && detail.contains("root would add"), "{detail}");
        for less in [Rights::Root { locks_in: false }, Rights::User { name_spaces: false }] {
            let (status, detail, fix) = of(less);
            assert!(status == Status::Warn && fix.is_some(), "{detail}");
        }
    }

    #[test]
    fn places_that_do_not_fit_are_refused() {
        let with = |change: fn(&mut DataDir)| {
            let mut facts = facts();
            change(&mut facts.data_dir);
            found(&facts)
        };
        assert_eq!(with(|dir| dir.path = format!("/{}", "x".repeat(80)).into()), [("unix sockets", Status::Fail)]);
        assert_eq!(with(|dir| dir.problem = Some("denied".into())), [("data directory", Status::Fail)]);
        assert_eq!(with(|dir| dir.free_mib = 10), [("disk", Status::Fail)]);
        assert_eq!(with(|dir| dir.free_mib = 5000), [("disk", Status::Warn)]);
        assert_eq!(with(|dir| dir.reflink = false), [("reflink", Status::Warn)]);
    }
}
