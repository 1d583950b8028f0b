use crate::chain::Chain;
use crate::cmdline::{Memory, VmConfig, argv, fd};
use crate::qmp::{Event, Qmp, QmpError};
use command_fds::{CommandFdExt, FdMapping};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::mpsc;
use warren_proto::guest::exchange;

/// The guest channel's socket in the VM's folder. QEMU listens.
pub const GUEST_SOCKET: &str = "guest.sock";
/// Longest time from spawn to QEMU's greeting.
const GREETING_WAIT_MAX: Duration = Duration::from_secs(20);

/// Why QEMU did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program could not be run.
    #[error("run {program}")]
    Exec {
        /// Which program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// A socket pair could not be made.
    #[error("make a socket pair")]
    Socket(#[source] std::io::Error),
    /// There is no memory for the disk through which files pass.
    #[error("make the exchange disk")]
    Exchange(#[source] std::io::Error),
    /// What memory starts from cannot be opened.
    #[error("open the template's memory {path}: {source}", path = path.display())]
    Memory {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// QEMU ended, or did not greet in time; its own words follow.
    #[error("QEMU did not come up: {0}")]
    Dead(String),
}

/// Why an operation on a running VM failed.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// QEMU refused or is gone.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// A file or socket of the VM.
    #[error("{action} {path}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// It did not end in time.
    #[error("timed out: {0}")]
    Slow(&'static str),
    /// Its memory does not start from a file, so that nobody can tell what changed.
    #[error("a VM that was not started from a template has no snapshots")]
    NoPrivateMemory,
    /// It has no such disk, or must not write to it.
    #[error("this machine has no disk {0} that it may write to")]
    NoDisk(String),
    /// QEMU could not use the saved device state.
    #[error("QEMU could not load or save the device state")]
    StateRefused,
}

impl VmError {
    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        VmError::Io { action, path: path.display().to_string(), source }
    }
}

/// One QEMU process. Killed when dropped, and by the kernel when the owning process dies.
#[derive(Debug)]
pub struct Vm {
    child: Child,
    qmp: Qmp,
    events: mpsc::Receiver<Event>,
    dir: PathBuf,
    dir_fd: OwnedFd,
    exchange: File,
    /// Of the file that its private memory starts from.
    pub(crate) memory_inode: Option<u64>,
    /// Its disks that it may write to, by name.
    pub(crate) disks: BTreeMap<String, Chain>,
}

impl Vm {
    /// Starts QEMU with `dir` as its folder. Gives the VM and what it prints: guest console, then QEMU's own complaints.
    ///
    /// `net` is a stream socket that carries the guest's frames, each after its length (4 bytes, big endian).
    pub async fn spawn(
        dir: &Path,
        config: &VmConfig,
        net: OwnedFd,
    ) -> Result<(Vm, ChildStdout, ChildStderr), SpawnError> {
        let _ = std::fs::remove_file(dir.join(GUEST_SOCKET));
        let dir_fd = File::open(dir).map_err(SpawnError::Socket)?.into();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(SpawnError::Socket)?;
        ours.set_nonblocking(true).map_err(SpawnError::Socket)?;
        let exchange = exchange_memory().map_err(SpawnError::Exchange)?;
        let theirs_of_exchange = exchange.try_clone().map_err(SpawnError::Exchange)?.into();
        let mut command = Command::new(&config.machine.qemu);
        command.args(argv(config)).current_dir(dir).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut mappings = vec![
            FdMapping { parent_fd: theirs.into(), child_fd: fd::QMP },
            FdMapping { parent_fd: net, child_fd: fd::NET },
            FdMapping { parent_fd: theirs_of_exchange, child_fd: fd::EXCHANGE },
        ];
        let mut memory_inode = None;
        if let Memory::Private(file) = &config.files.memory {
            let failed = |source| SpawnError::Memory { path: file.clone(), source };
            let opened = File::open(file).map_err(failed)?;
            memory_inode = Some(opened.metadata().map_err(failed)?.ino());
            mappings.push(FdMapping { parent_fd: opened.into(), child_fd: fd::MEMORY });
        }
        let exec_failed = |source| SpawnError::Exec { program: config.machine.qemu.display().to_string(), source };
        command.fd_mappings(mappings).map_err(|e| exec_failed(std::io::Error::other(e)))?;
        crate::sys::ready(&mut command);
        let mut child = command.spawn().map_err(exec_failed)?;
        // The command holds our copies of the child's descriptors: without this, QEMU's death would not close its sockets.
        drop(command);
        let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(SpawnError::Dead("its output is not piped".to_owned()));
        };
        let stream = UnixStream::from_std(ours).map_err(SpawnError::Socket)?;
        match tokio::time::timeout(GREETING_WAIT_MAX, Qmp::start(stream)).await {
            Ok(Ok((qmp, events))) => {
                let (dir, disks) = (dir.to_owned(), Chain::of(&config.files));
                Ok((Vm { child, qmp, events, dir, dir_fd, exchange, memory_inode, disks }, stdout, stderr))
            }
            Ok(Err(_)) | Err(_) => {
                let _ = child.start_kill();
                Err(SpawnError::Dead(last_words(&mut stderr).await))
            }
        }
    }

    /// The machine protocol.
    pub fn qmp(&self) -> &Qmp {
        &self.qmp
    }

    /// The VM's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The memory that the guest sees as its exchange disk, see [`warren_proto::guest::exchange`].
    pub fn exchange(&self) -> &File {
        &self.exchange
    }

    /// QEMU's process id, while it lives.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The next thing that QEMU reports; `None` once it is gone.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Waits until QEMU has ended. Safe to drop and call again.
    pub async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills QEMU and waits until it is gone.
    pub async fn kill(&mut self) {
        // An error here means that it is gone already.
        let _ = self.child.kill().await;
        let _ = std::fs::remove_file(self.dir.join(GUEST_SOCKET));
    }

    /// Connects to the guest channel. One connection at a time; closing it is seen by the guest.
    pub async fn connect_guest(&self) -> Result<UnixStream, VmError> {
        self.connect(GUEST_SOCKET).await
    }

    /// A socket in the VM's folder by a path that fits in a socket address however deep the folder is.
    pub(crate) fn socket_path(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.dir_fd.as_raw_fd()).into()
    }

    /// Connects to a socket in the VM's folder.
    pub(crate) async fn connect(&self, name: &str) -> Result<UnixStream, VmError> {
        let path = self.socket_path(name);
        UnixStream::connect(&path).await.map_err(|e| VmError::io("connect to", &path, e))
    }
}

/// Memory as a file that keeps its size; pages exist from their first use on.
fn exchange_memory() -> std::io::Result<File> {
    let file = File::from(memfd_create("warren-exchange", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.set_len(exchange::start_of(exchange::PIECES))?;
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// What a dying QEMU said, for people.
async fn last_words(stderr: &mut ChildStderr) -> String {
    use tokio::io::AsyncReadExt;
    const LAST_WORDS_LEN_MAX: u64 = 4096;
    const LAST_WORDS_WAIT_MAX: Duration = Duration::from_secs(2);
    let mut text = Vec::new();
    let mut bounded = stderr.take(LAST_WORDS_LEN_MAX);
    let _ = tokio::time::timeout(LAST_WORDS_WAIT_MAX, bounded.read_to_end(&mut text)).await;
    String::from_utf8_lossy(&text).trim().to_owned()
}
