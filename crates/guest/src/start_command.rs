//! The sandbox's start command: runs once, its output kept for the logs, never restarted.

use crate::agent::Agent;
use crate::command::{Command, Defaults, Launched, StartError, Streams, Wiring, launch};
use crate::process::CommandCgroup;
use crate::sys::watch;
use rustix::process::{Pid, Signal, kill_process_group};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::Notify;

/// Output kept: the last so many bytes.
const LOG_LEN_MAX: usize = 1 << 20;
/// Bytes read at once.
const READ_LEN: usize = 4 << 10;

/// The start command's state; empty where there is none.
#[derive(Default)]
pub struct StartCommand {
    log: RefCell<VecDeque<u8>>,
    pid: Cell<Option<u32>>,
    exit: Cell<Option<i32>>,
    cgroup: RefCell<Option<CommandCgroup>>,
    ended: Notify,
}

impl StartCommand {
    /// Its exit code, once it ended.
    pub fn exit(&self) -> Option<i32> {
        self.exit.get()
    }

    /// The last of its output.
    pub fn log(&self) -> Vec<u8> {
        self.log.borrow().iter().copied().collect()
    }

    /// Sends SIGTERM to its process group, waits, and then kills whatever is left of it.
    pub async fn stop(&self, grace: Duration) {
        let group = self.pid.get().and_then(|pid| Pid::from_raw(pid as i32));
        if let Some(group) = group.filter(|_| self.exit.get().is_none()) {
            let ended = self.ended.notified();
            // A group that has ended is fine.
            let _ = kill_process_group(group, Signal::TERM);
            // Whether it ended in time makes no difference to what follows.
            let _ = tokio::time::timeout(grace, ended).await;
        }
        if let Some(cgroup) = &*self.cgroup.borrow()
            && let Err(error) = cgroup.kill()
        {
            crate::report!("cannot kill the start command: {error}");
        }
    }

    fn append(&self, bytes: &[u8]) {
        let mut log = self.log.borrow_mut();
        let over = (log.len() + bytes.len()).saturating_sub(LOG_LEN_MAX).min(log.len());
        log.drain(..over);
        log.extend(bytes);
    }

    fn set_exit(&self, code: i32) {
        self.exit.set(Some(code));
        self.ended.notify_waiters();
    }
}

/// Starts it. One that cannot be started counts as ended, as a shell would have it, with the reason in its log.
pub fn start(agent: &Rc<Agent>, defaults: &Defaults, argv: &[String]) {
    let Some((program, args)) = argv.split_first() else { return };
    let env = BTreeMap::new();
    let command = Command { program, args, env: &env, cwd: None, user: None, wiring: Wiring::Log };
    match launch(&command, defaults, &agent.cgroups, &agent.reaper) {
        Ok(launched) => follow(agent, launched),
        Err(error) => {
            agent.start_command.append(format!("{error}\n").as_bytes());
            let code = if matches!(error, StartError::Program { .. }) { 127 } else { 126 };
            agent.start_command.set_exit(code);
        }
    }
}

fn follow(agent: &Rc<Agent>, launched: Launched) {
    let Launched { pid, streams, cgroup, exit } = launched;
    agent.start_command.pid.set(Some(pid));
    *agent.start_command.cgroup.borrow_mut() = cgroup;
    if let Streams::Pipes { stdout, .. } = streams {
        tokio::task::spawn_local(keep_log(agent.clone(), stdout));
    }
    let agent = agent.clone();
    tokio::task::spawn_local(async move {
        if let Ok(exit) = exit.await {
            agent.start_command.set_exit(exit.code());
        }
    });
}

/// Reads until everything that holds the pipe has ended.
async fn keep_log(agent: Rc<Agent>, output: OwnedFd) {
    let Ok(output) = watch(output, Interest::READABLE) else { return };
    let mut buffer = [0; READ_LEN];
    while let Ok(mut readable) = output.readable().await {
        match rustix::io::read(output.get_ref(), &mut buffer) {
            Ok(0) => return,
            Ok(len) => agent.start_command.append(&buffer[..len]),
            Err(rustix::io::Errno::AGAIN) => readable.clear_ready(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
