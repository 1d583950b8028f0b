//! The SSH host keys of a fork, which are not to be those of the machine that it is a fork of.

use crate::agent::Agent;
use crate::command::{Command, Defaults, Launched, Wiring, launch};
use crate::report;
use crate::sys::{self, World};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Where they are.
const FOLDER: &str = "/etc/ssh";
/// Longest time for all keys to be made.
const KEYS_WAIT: Duration = Duration::from_secs(10);
/// Most keys that are made anew.
const KEYS_MAX: usize = 8;

/// A kind of key that every server and client knows, and that is made at once.
const KIND_DEFAULT: &str = "ed25519";
/// Kinds that are not made again: the one takes half a minute in an emulated machine, in which nothing could run, the other is no longer supported.
const KINDS_LEFT_OUT: [&str; 2] = ["rsa", "dsa"];

/// Kinds of the host keys in a folder.
fn kinds_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let kind = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_prefix("ssh_host_")?.strip_suffix("_key")?.to_owned())
    };
    entries.flatten().filter_map(kind).take(KEYS_MAX).collect()
}

/// Which kinds are made for a machine that had `old`.
fn kinds_made(old: &[String]) -> Vec<&str> {
    let mut new: Vec<&str> = old.iter().map(String::as_str).filter(|kind| !KINDS_LEFT_OUT.contains(kind)).collect();
    if new.is_empty() {
        new.push(KIND_DEFAULT);
    }
    new
}

/// Replaces the keys by new ones, made by the image's own `ssh-keygen`, and lets servers that run read them. Without that program the keys go, and
/// a server that is started later makes its own, or says that it has none.
pub(super) async fn renew(agent: &Agent) {
    let old = kinds_in(Path::new(FOLDER));
    if old.is_empty() {
        return;
    }
    // All are gone before the first is made: none may survive because another one failed.
    for path in old.iter().map(|kind| path_of(kind)).flat_map(|path| [format!("{path}.pub"), path]) {
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            report!("init: remove {path}: {error}");
        }
    }
    let deadline = Instant::now() + KEYS_WAIT;
    for kind in kinds_made(&old) {
        if let Err(problem) = make(agent, kind, deadline).await {
            report!("init: make {}: {problem}", path_of(kind));
        }
    }
    for server in servers() {
        // One that has just ended is fine.
        let _ = sys::send(server, libc::SIGHUP);
    }
}

fn path_of(kind: &str) -> String {
    format!("{FOLDER}/ssh_host_{kind}_key")
}

async fn make(agent: &Agent, kind: &str, deadline: Instant) -> Result<(), String> {
    let args = ["-q", "-t", kind, "-N", "", "-C", "", "-f", &path_of(kind)].map(str::to_owned);
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
        let mut kinds = kinds_in(dir.path());
        kinds.sort();
        assert_eq!(kinds, ["ed25519", "rsa"]);
        assert!(kinds_in(&dir.path().join("none")).is_empty());
    }

    #[test]
    fn what_takes_too_long_is_left_out_but_some_key_is_made() {
        let made = |old: &[&str]| kinds_made(&old.iter().map(|&kind| kind.to_owned()).collect::<Vec<_>>()).join(" ");
        assert_eq!(made(&["rsa", "ecdsa", "ed25519"]), "ecdsa ed25519");
        assert_eq!(made(&["rsa", "dsa"]), "ed25519");
    }

    #[test]
    fn a_server_is_an_sshd() {
        assert_eq!(sshd_parent("812 (sshd) S 1 812 812 0"), Some(1));
        assert_eq!(sshd_parent("813 (x) (sshd) S 1 812"), None);
        assert_eq!(sshd_parent("814 (bash) S 812 812"), None);
        assert_eq!(sshd_parent("no stat"), None);
    }
}
