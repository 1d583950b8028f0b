//! The sandbox's start command: runs once, its output kept for the logs.
//!
//! One that is an init, such as systemd, becomes process 1 of a world of its own, in which all commands live that are started while it runs.
//! It alone can be started again: when it restarts the machine.

mod init;

use crate::agent::Agent;
use crate::command::{Command, Defaults, Launched, StartError, Streams, Wiring, launch};
use crate::generation;
use crate::process::{CommandCgroup, Exit};
use crate::sys::{self, FirstProcess, World, watch};
use init::{InitKind, MachineEnd};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::Notify;

/// Output kept: the last so many bytes.
const LOG_LEN_MAX: usize = 1 << 20;
/// Bytes read at once.
const READ_LEN: usize = 4 << 10;
/// Name of the cgroup that holds the commands' own, among those of an init.
const COMMANDS_CGROUP: &str = "warren";
/// Time after its end for its last words to be read; longer ones come from what it left behind.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(200);
/// Time between the end of an init that wants the machine restarted and its next start.
const RESTART_WAIT: Duration = Duration::from_secs(1);

/// A start command that is an init, while it runs.
struct Init {
    kind: InitKind,
    pid: Pid,
    world: Rc<FirstProcess>,
}

/// The start command's state; empty where there is none.
#[derive(Default)]
pub struct StartCommand {
    log: RefCell<VecDeque<u8>>,
    pid: Cell<Option<u32>>,
    exit: Cell<Option<i32>>,
    cgroup: RefCell<Option<CommandCgroup>>,
    init: RefCell<Option<Init>>,
    ended: Notify,
    /// Whether we ended it.
    stopped: Cell<bool>,
    /// Whether it was an init that switched the machine off.
    off: Cell<bool>,
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

    /// The first process that commands live with; `None`: they live with the agent.
    pub fn first_process(&self) -> Option<Rc<FirstProcess>> {
        self.init.borrow().as_ref().map(|init| init.world.clone())
    }

    /// Where the commands' processes are listed under the pids that they themselves see.
    pub fn proc(&self) -> PathBuf {
        let init = self.init.borrow().as_ref().map(|init| init.pid.as_raw_nonzero());
        init.map_or_else(|| "/proc".into(), |pid| format!("/proc/{pid}/root/proc").into())
    }

    /// Waits until an init has switched the machine off.
    pub async fn powered_off(&self) {
        loop {
            let ended = self.ended.notified();
            if self.off.get() {
                return;
            }
            ended.await;
        }
    }

    /// Sends SIGTERM to its process group, or to an init what makes it end the machine, waits, and then kills whatever is left of it.
    pub async fn stop(&self, grace: Duration) {
        self.stopped.set(true);
        let group = self.pid.get().and_then(|pid| Pid::from_raw(pid as i32));
        if let Some(group) = group.filter(|_| self.exit.get().is_none()) {
            let ended = self.ended.notified();
            let init = self.init.borrow().as_ref().map(|init| init.kind);
            // One that has ended is fine.
            let _ = match init {
                Some(kind) => sys::send(group, kind.stop_signal()),
                None => kill_process_group(group, Signal::TERM).map_err(Into::into),
            };
            // Whether it ended in time makes no difference to what follows.
            let _ = tokio::time::timeout(grace, ended).await;
        }
        if let Some(init) = &*self.init.borrow() {
            // With it goes everything in its world.
            let _ = kill_process(init.pid, Signal::KILL);
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

    /// A line of ours between its own.
    fn say(&self, line: &str) {
        if self.log.borrow().back().is_some_and(|&last| last != b'\n') {
            self.append(b"\n");
        }
        self.append(format!("{line}\n").as_bytes());
    }

    fn set_exit(&self, code: i32) {
        self.exit.set(Some(code));
        self.ended.notify_waiters();
    }

    /// Takes its end; answers whether it is to be started again.
    fn end(&self, exit: Exit, was_init: bool) -> bool {
        let over = init::machine_end(exit).filter(|_| was_init && !self.stopped.get());
        match (over, exit) {
            (Some(MachineEnd::Restart), _) => {
                self.say("the start command restarts the machine");
                return true;
            }
            (Some(MachineEnd::Off), _) => {
                self.say("the start command switched the machine off");
                self.off.set(true);
            }
            (None, Exit::Code(code)) => self.say(&format!("the start command ended with exit code {code}")),
            (None, Exit::Signal(signal)) => self.say(&format!("the start command ended by signal {signal}")),
        }
        self.set_exit(exit.code());
        false
    }
}

/// Starts it. One that cannot be started counts as ended, as a shell would have it, with the reason in its log.
pub fn start(agent: &Rc<Agent>, defaults: &Defaults, argv: &[String]) {
    let Some((program, args)) = argv.split_first() else { return };
    let kind = InitKind::of(program, |path| fs::canonicalize(path).ok());
    let env = if kind.is_some() { init::environment(&defaults.env) } else { BTreeMap::new() };
    let command = Command { program, args, env: &env, cwd: None, user: None, wiring: Wiring::Log };
    let cgroup = if kind == Some(InitKind::Systemd) { machine_cgroup(agent) } else { None };
    let world = if kind.is_some() { World::New(cgroup.as_ref().map(CommandCgroup::folder)) } else { World::Agent };
    if let Some(kind) = kind
        && let Err(error) = prepare_for(kind, agent.start_command.pid.get().is_some())
    {
        crate::report!("cannot prepare for {program}: {error}");
    }
    match launch(&command, defaults, world, &agent.cgroups, &agent.reaper) {
        Ok(mut launched) => {
            if let Some(kind) = kind {
                launched.cgroup = cgroup;
                enter_world(agent, kind, launched.pid);
            }
            follow(agent, launched, argv.to_vec());
        }
        Err(error) => {
            agent.cgroups.leave_machine();
            agent.start_command.say(&error.to_string());
            let code = if matches!(error, StartError::Program { .. }) { 127 } else { 126 };
            agent.start_command.set_exit(code);
        }
    }
}

/// Starts an init again that wants the machine restarted: its world is gone, and with it everything that ran there.
async fn restart(agent: Rc<Agent>, argv: Vec<String>) {
    tokio::time::sleep(RESTART_WAIT).await;
    if let Some(defaults) = crate::init::defaults(&agent).filter(|_| !agent.start_command.stopped.get()) {
        start(&agent, &defaults, &argv);
    }
}

/// What an init mounts is to be seen by the agent too, which reads and writes files for clients. systemd gets the `/run` that it would make, with
/// what it must know of this machine.
fn prepare_for(kind: InitKind, again: bool) -> io::Result<()> {
    mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC)?;
    if kind == InitKind::Systemd {
        fs::create_dir_all("/run")?;
        if again {
            unmount("/run", UnmountFlags::DETACH)?;
        }
        mount("tmpfs", "/run", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0755,size=20%,nr_inodes=800k")?;
        generation::link()?;
        for (path, text) in init::SYSTEMD_FILES {
            let path = Path::new(path);
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            fs::write(path, text)?;
        }
    }
    Ok(())
}

/// The cgroup that systemd takes for the root of all. In the true root it would meet processes that it cannot see, the kernel's and ours, and
/// fail to tell which are in its units.
fn machine_cgroup(agent: &Agent) -> Option<CommandCgroup> {
    let made = agent.cgroups.enter_machine(COMMANDS_CGROUP);
    made.inspect_err(|error| crate::report!("no cgroup for the init: {error}")).ok()
}

/// From now on, commands live with this process.
fn enter_world(agent: &Agent, kind: InitKind, pid: u32) {
    let Some(pid) = Pid::from_raw(pid as i32) else { return };
    match FirstProcess::open(pid) {
        Ok(world) => *agent.start_command.init.borrow_mut() = Some(Init { kind, pid, world: Rc::new(world) }),
        Err(error) => crate::report!("cannot follow the init: {error}"),
    }
}

fn follow(agent: &Rc<Agent>, launched: Launched, argv: Vec<String>) {
    let Launched { pid, streams, cgroup, exit } = launched;
    agent.start_command.pid.set(Some(pid));
    *agent.start_command.cgroup.borrow_mut() = cgroup;
    let Streams::Pipes { stdout, .. } = streams else { return };
    let log = tokio::task::spawn_local(keep_log(agent.clone(), stdout));
    let agent = agent.clone();
    tokio::task::spawn_local(async move {
        let Ok(exit) = exit.await else { return };
        let was_init = agent.start_command.init.take().is_some();
        agent.cgroups.leave_machine();
        // What it said last stands before what we say about its end.
        let _ = tokio::time::timeout(LAST_WORDS_WAIT, log).await;
        if agent.start_command.end(exit, was_init) {
            restart(agent, argv).await;
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
