use super::account::{Account, BadUser};
use super::environ::{environment, to_strings};
use super::program::candidates;
use super::script::{SCRIPT_FD, SOURCE_SCRIPT, is_too_long, store};
use super::{Command, Defaults, STRING_LEN_MAX, Wiring};
use crate::process::{Cgroups, CommandCgroup, Exit, Reaper};
use crate::sys::{Launch, SpawnFailure, SpawnStep, World, spawn};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tokio::sync::oneshot;
use warren_proto::guest::command_session::PtySize;

/// Most of `/etc/passwd` and `/etc/group` that is read, bytes.
const ACCOUNTS_LEN_MAX: u64 = 4 << 20;

/// No command was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The user does not exist.
    #[error(transparent)]
    User(#[from] BadUser),
    /// The working directory cannot be entered.
    #[error("cannot enter the working directory {path:?}: {source}")]
    Cwd {
        /// It.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The program cannot be executed.
    #[error("cannot execute {program:?}: {source}")]
    Program {
        /// It.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A string with a NUL inside.
    #[error("{0} contains a NUL byte")]
    Nul(String),
    /// Not a name for an environment variable.
    #[error("bad name {0:?} of an environment variable")]
    EnvName(String),
    /// One string of the environment is longer than the kernel takes.
    #[error("environment variable {name} is {len} bytes with its name; the kernel takes at most {STRING_LEN_MAX}")]
    EnvTooLong {
        /// Its name.
        name: String,
        /// Length of `NAME=value`, bytes.
        len: usize,
    },
    /// One argument is longer than the kernel takes.
    #[error("argument {index} is {len} bytes; the kernel takes at most {STRING_LEN_MAX}")]
    ArgumentTooLong {
        /// Which, the program's name being 0.
        index: usize,
        /// Its length, bytes.
        len: usize,
    },
    /// Arguments and environment together are more than the kernel takes.
    #[error("arguments and environment together are longer than the kernel takes")]
    TooLong,
    /// The guest has no process or descriptor left, or the like.
    #[error("cannot start a process: {0}")]
    System(#[from] io::Error),
}

impl StartError {
    /// Whether the world that the process was to live in has gone.
    pub fn is_of_a_gone_process(&self) -> bool {
        matches!(self, Self::System(error) if error.raw_os_error() == Some(libc::ESRCH))
    }
}

/// Our ends of a command's streams.
#[derive(Debug)]
pub enum Streams {
    /// Pipes.
    Pipes {
        /// Writes its input.
        stdin: Option<OwnedFd>,
        /// Reads its output.
        stdout: OwnedFd,
        /// Reads its errors; `None` where they go with the output.
        stderr: Option<OwnedFd>,
    },
    /// The other side of its terminal.
    Terminal(OwnedFd),
}

/// A command that runs.
pub struct Launched {
    /// Pid of its leader, which is its process group and session too.
    pub pid: u32,
    /// Our ends of its streams, non-blocking.
    pub streams: Streams,
    /// Its cgroup.
    pub cgroup: Option<CommandCgroup>,
    /// Resolves when the leader ends.
    pub exit: oneshot::Receiver<Exit>,
}

/// Starts a command. Synchronous: its process runs when this returns. A first process gets the cgroup that its world names, or none, and then rules
/// them all.
pub fn launch(
    command: &Command<'_>,
    defaults: &Defaults,
    world: World<'_>,
    cgroups: &Cgroups,
    reaper: &Reaper,
) -> Result<Launched, StartError> {
    let user = command.user.or(defaults.user.as_deref()).unwrap_or("root");
    let account = resolve_user(user)?;
    let env = environment(defaults, command, &account);
    let path = env.get("PATH").copied().unwrap_or_default();
    let programs = c_strings(&candidates(command.program, path, true), "program")?;
    let envp = to_strings(&env, defaults.stand_ins)?;
    let (argv, script) = arguments(command)?;
    let cwd = command.cwd.unwrap_or(if defaults.workdir.is_empty() { "/" } else { &defaults.workdir });
    let c_cwd = CString::new(cwd).map_err(|_| StartError::Nul("working directory".into()))?;
    let (ours, theirs) = wire(command.wiring)?;
    let plan = Launch {
        programs: &programs,
        argv: &argv,
        envp: &envp,
        cwd: &c_cwd,
        stdio: theirs.as_stdio(),
        extra: script.as_ref().map(|fd| (fd.as_fd(), SCRIPT_FD)),
        terminal: matches!(command.wiring, Wiring::Terminal(_)),
        uid: account.uid,
        gid: account.gid,
        groups: &account.groups,
        cgroup: None,
        world,
    };
    let spawned = match world {
        World::New(cgroup) => spawn(&Launch { cgroup, ..plan }).map(|pid| (pid, None)),
        World::Agent | World::Of(_) => spawn_in_cgroup(plan, cgroups),
    };
    let (pid, cgroup) = spawned.map_err(|failure| start_error(failure, command.program, cwd))?;
    Ok(Launched { pid, streams: ours, cgroup, exit: reaper.expect(pid) })
}

/// Starts the process in a cgroup, which is answered too; without one where the guest's root has made that unusable. We wait for the program to be
/// executed, which in a frozen cgroup would be for ever.
fn spawn_in_cgroup(plan: Launch<'_>, cgroups: &Cgroups) -> Result<(u32, Option<CommandCgroup>), SpawnFailure> {
    if let Some(cgroup) = cgroups.take() {
        if cgroup.is_frozen() {
            cgroups.release(cgroup);
            return spawn(&plan).map(|pid| (pid, None));
        }
        match spawn(&Launch { cgroup: Some(cgroup.folder()), ..plan }) {
            Ok(pid) => return Ok((pid, Some(cgroup))),
            Err(failure) => {
                cgroups.release(cgroup);
                if failure.step != SpawnStep::Clone {
                    return Err(failure);
                }
            }
        }
    }
    spawn(&plan).map(|pid| (pid, None))
}

/// Finds a user in the guest's account files.
pub fn resolve_user(user: &str) -> Result<Account, BadUser> {
    Account::resolve(user, &read_accounts("/etc/passwd"), &read_accounts("/etc/group"))
}

/// The text of an accounts file; empty where there is none.
fn read_accounts(path: &str) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        // What could be read is what there is.
        let _ = file.take(ACCOUNTS_LEN_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

fn c_strings(texts: &[String], what: &str) -> Result<Vec<CString>, StartError> {
    let convert = |text: &String| CString::new(text.as_str()).map_err(|_| StartError::Nul(what.to_owned()));
    texts.iter().map(convert).collect()
}

/// The argv, and the file of a script that is too long to be in it.
fn arguments(command: &Command<'_>) -> Result<(Vec<CString>, Option<OwnedFd>), StartError> {
    let script = match command.args {
        [_, script, ..] if is_too_long(command.program, command.args) => {
            if script.contains('\0') {
                return Err(StartError::Nul("argument 2".into()));
            }
            Some(store(script)?)
        }
        _ => None,
    };
    let all = [command.program].into_iter().chain(command.args.iter().map(String::as_str));
    let argv = all.enumerate().map(|(index, text)| {
        let text = if index == 2 && script.is_some() { SOURCE_SCRIPT } else { text };
        if text.len() > STRING_LEN_MAX {
            return Err(StartError::ArgumentTooLong { index, len: text.len() });
        }
        CString::new(text).map_err(|_| StartError::Nul(format!("argument {index}")))
    });
    Ok((argv.collect::<Result<_, _>>()?, script))
}

/// The child's ends; closed on our side once it runs.
struct ChildStreams {
    stdin: OwnedFd,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl ChildStreams {
    fn as_stdio(&self) -> [BorrowedFd<'_>; 3] {
        let stdout = self.stdout.as_ref().unwrap_or(&self.stdin);
        let stderr = self.stderr.as_ref().unwrap_or(stdout);
        [self.stdin.as_fd(), stdout.as_fd(), stderr.as_fd()]
    }
}

fn wire(wiring: Wiring) -> io::Result<(Streams, ChildStreams)> {
    let (stdin, child_stdin) = match wiring {
        Wiring::Terminal(size) => return open_terminal(size),
        Wiring::Pipes { stdin: true } => {
            let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&write, true)?;
            (Some(write), read)
        }
        Wiring::Pipes { stdin: false } | Wiring::Log => {
            (None, rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
        }
    };
    let (stdout, child_stdout) = output_pipe()?;
    let (stderr, child_stderr) = match wiring {
        Wiring::Log => (None, None),
        _ => output_pipe().map(|(ours, theirs)| (Some(ours), Some(theirs)))?,
    };
    let theirs = ChildStreams { stdin: child_stdin, stdout: Some(child_stdout), stderr: child_stderr };
    Ok((Streams::Pipes { stdin, stdout, stderr }, theirs))
}

/// Our end must not block; the child's must, as programs expect.
fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((read, write))
}

fn open_terminal(size: PtySize) -> io::Result<(Streams, ChildStreams)> {
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&ours)?;
    rustix::pty::unlockpt(&ours)?;
    let name = rustix::pty::ptsname(&ours, Vec::new())?;
    let theirs = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    resize_terminal(ours.as_fd(), size)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((Streams::Terminal(ours), ChildStreams { stdin: theirs, stdout: None, stderr: None }))
}

/// Sets the size of a terminal; programs on it are told by a signal.
pub(crate) fn resize_terminal(terminal: BorrowedFd<'_>, size: PtySize) -> io::Result<()> {
    let clamp = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
    let size = Winsize { ws_row: clamp(size.rows), ws_col: clamp(size.cols), ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

fn start_error(failure: SpawnFailure, program: &str, cwd: &str) -> StartError {
    let source = io::Error::from_raw_os_error(failure.errno);
    match failure.step {
        SpawnStep::Cwd => StartError::Cwd { path: cwd.to_owned(), source },
        SpawnStep::Exec if failure.errno == libc::E2BIG => StartError::TooLong,
        SpawnStep::Exec => StartError::Program { program: program.to_owned(), source },
        SpawnStep::Clone | SpawnStep::World | SpawnStep::Streams | SpawnStep::User => StartError::System(source),
    }
}
