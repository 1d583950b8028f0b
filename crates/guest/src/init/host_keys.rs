//! The SSH host keys of a fork, which are not to be those of the machine that it is a fork of.

use crate::agent::Agent;
use crate::command::{Command, Defaults, Launched, Wiring, launch};
use crate::report;
use crate::sys::{self, World};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Where they are.
const FOLDER: &str = "/etc/ssh";
/// Longest time for all keys to be made; RSA takes seconds in an emulated machine.
const KEYS_WAIT: Duration = Duration::from_secs(40);
/// Most keys that are made anew.
const KEYS_MAX: usize = 8;

/// A key file, and what kind of key it holds.
#[derive(Debug, PartialEq, Eq)]
struct HostKey {
    path: PathBuf,
    kind: String,
}

/// The host keys in a folder, those first that are made fastest.
fn found_in(folder: &Path) -> Vec<HostKey> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let key = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let kind = name.strip_prefix("ssh_host_")?.strip_suffix("_key")?.to_owned();
        Some(HostKey { path: entry.path(), kind })
    };
    let mut keys: Vec<HostKey> = entries.flatten().filter_map(key).take(KEYS_MAX).collect();
    keys.sort_by_key(|key| (key.kind == "rsa", key.kind.clone()));
    keys
}

/// Replaces the keys by new ones, made by the image's own `ssh-keygen`, and lets servers that run read them. Without that program the keys go, and
/// a server that is started later makes its own, or says that it has none.
pub(super) async fn renew(agent: &Agent) {
    let keys = found_in(Path::new(FOLDER));
    if keys.is_empty() {
        return;
    }
    // All are gone before the first is made: none may survive because another one failed.
    for HostKey { path, .. } in &keys {
        for path in [path.clone(), public(path)] {
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                report!("init: remove {}: {error}", path.display());
            }
        }
    }
    let deadline = Instant::now() + KEYS_WAIT;
    for key in &keys {
        if let Err(problem) = make(agent, key, deadline).await {
            report!("init: make {}: {problem}", key.path.display());
        }
    }
    for server in servers() {
        // One that has just ended is fine.
        let _ = sys::send(server, libc::SIGHUP);
    }
}

fn public(path: &Path) -> PathBuf {
    path.with_extension("pub")
}

async fn make(agent: &Agent, HostKey { path, kind }: &HostKey, deadline: Instant) -> Result<(), String> {
    let path = path.to_string_lossy();
    let args = ["-q", "-t", kind, "-N", "", "-C", "", "-f", &path].map(str::to_owned);
    let env = BTreeMap::new();
    let command = Command { program: "ssh-keygen", args: &args, env: &env, cwd: None, user: None, wiring: Wiring::Log };
    // Its cgroup would be frozen, so that it runs without one; and it needs none of the sandbox's environment.
    let launched = launch(&command, &Defaults::default(), World::Agent, &agent.cgroups, &agent.reaper);
    let Launched { pid, exit, streams: _kept, .. } = launched.map_err(|e| e.to_string())?;
    match timeout_at(deadline, exit).await {
        Ok(Ok(exit)) if exit.code() == 0 => Ok(()),
        Ok(Ok(exit)) => Err(format!("ssh-keygen ended with exit code {}", exit.code())),
        Ok(Err(_)) => Err("the end of ssh-keygen was not seen".into()),
        Err(_) => {
            if let Some(pid) = Pid::from_raw(pid as i32) {
                let _ = kill_process(pid, Signal::KILL);
            }
            Err(format!("it took longer than {KEYS_WAIT:?} with all before it"))
        }
    }
}

/// SSH servers that listen: not what they have made for a connection, which a hang-up would end.
fn servers() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let stat = |pid| Some((pid, sshd_parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?));
    let all: HashMap<i32, i32> = pids.filter_map(stat).collect();
    all.iter().filter(|(_, parent)| !all.contains_key(parent)).filter_map(|(&pid, _)| Pid::from_raw(pid)).collect()
}

/// The parent of a process, from its `stat`; `None` if it is no `sshd`.
fn sshd_parent(stat: &str) -> Option<i32> {
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    (name == "sshd").then(|| rest.split_ascii_whitespace().nth(1)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_keys_are_told_by_their_names() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["ssh_host_rsa_key", "ssh_host_rsa_key.pub", "ssh_host_ed25519_key", "sshd_config", "ssh_host_key"]
        {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let kinds: Vec<String> = found_in(dir.path()).into_iter().map(|key| key.kind).collect();
        assert_eq!(kinds, ["ed25519", "rsa"]);
        assert_eq!(found_in(&dir.path().join("none")), []);
        assert_eq!(public(Path::new("/etc/ssh/ssh_host_rsa_key")), Path::new("/etc/ssh/ssh_host_rsa_key.pub"));
    }

    #[test]
    fn a_server_is_an_sshd() {
        assert_eq!(sshd_parent("812 (sshd) S 1 812 812 0"), Some(1));
        assert_eq!(sshd_parent("813 (x) (sshd) S 1 812"), None);
        assert_eq!(sshd_parent("814 (bash) S 812 812"), None);
        assert_eq!(sshd_parent("no stat"), None);
    }
}
