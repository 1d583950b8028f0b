//! Starting a shim, and talking to one over its socket.

use bytes::Bytes;
use command_fds::{CommandFdExt, FdMapping};
use http_body_util::{BodyExt, Full, Limited, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::watch;
use warren_proto::guest::limits;
use warren_proto::shim::{ShimState, paths};
use warren_shim::Jail;

/// Origin that HTTP/2 wants and nobody reads.
const ORIGIN: &str = "http://shim";
/// Largest JSON answer of a shim, bytes: a state with 1 MiB of logs, escaped.
const ANSWER_LEN_MAX: usize = 16 << 20;
/// Longest wait for a shim to take a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// Body of a request that a client's is passed on as.
pub(crate) type ProxyBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Why a shim did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShimClientError {
    #[error("{action}: {source}")]
    Io { action: &'static str, source: std::io::Error },
    #[error("the shim is gone: {0}")]
    Gone(String),
    #[error("the shim did not answer {path} within {wait:?}")]
    Slow { path: String, wait: Duration },
    #[error("the shim refused {path}: {message}")]
    Refused { path: String, message: String },
}

/// A connection to one shim; cheap to clone.
#[derive(Clone)]
pub(crate) struct ShimClient {
    sender: http2::SendRequest<ProxyBody>,
    gone: watch::Receiver<bool>,
}

/// What a shim starts with.
pub(crate) struct ShimStart {
    /// Where it locks itself in, if it does.
    pub(crate) jail: Option<Jail>,
    /// What its machine's memory starts from.
    pub(crate) memory: Arc<File>,
}

impl ShimStart {
    /// Descriptor of the memory in the shim.
    const MEMORY_FD: i32 = 3;

    /// Path of the memory as the shim sees it.
    pub(crate) fn memory_path() -> PathBuf {
        format!("/proc/self/fd/{}", Self::MEMORY_FD).into()
    }
}

/// Binds the shim's socket in the sandbox's folder `dir` and starts the shim with it as standard input: clients may connect from the
/// first moment. The shim works in the VM's folder below it, in a jail if it gets one.
///
/// The shim is in a session of its own, so that nothing sent to our terminal reaches it. Returns its pid.
pub(crate) fn spawn(warren: &Path, dir: &Path, start: ShimStart) -> std::io::Result<u32> {
    let folder = File::open(dir)?;
    let socket = format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), warren_shim::SHIM_SOCKET);
    let _ = std::fs::remove_file(&socket);
    let listener = std::os::unix::net::UnixListener::bind(&socket)?;
    let log = File::create(dir.join(warren_shim::LOG_FILE))?;
    let mut command = Command::new(warren);
    command.arg("shim").arg("--dir").arg(dir.join(warren_shim::VM_DIR));
    let memory = FdMapping { parent_fd: start.memory.try_clone()?.into(), child_fd: ShimStart::MEMORY_FD };
    command.fd_mappings(vec![memory]).map_err(std::io::Error::other)?;
    if let Some(jail) = start.jail {
        command.arg("--uid").arg(jail.uid.to_string());
        command.args(jail.readable.iter().flat_map(|path| [OsStr::new("--readable"), path.as_os_str()]));
    }
    let child = command
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::from(log.try_clone()?))
        .stderr(Stdio::from(log))
        .process_group(0)
        .spawn()?;
    let pid = child.id();
    // Reaped in the background while we are its parent; after a restart of ours that is init's work.
    std::thread::Builder::new().name(format!("reap-{pid}")).stack_size(64 << 10).spawn(move || {
        let mut child = child;
        let _ = child.wait();
    })?;
    Ok(pid)
}

impl ShimClient {
    /// Connects to the shim in `dir`.
    pub(crate) async fn connect(dir: &Path) -> Result<ShimClient, ShimClientError> {
        let io = |action| move |source| ShimClientError::Io { action, source };
        let folder = File::open(dir).map_err(io("open the sandbox's folder"))?;
        let socket = format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), warren_shim::SHIM_SOCKET);
        let stream = UnixStream::connect(socket).await.map_err(io("connect to the shim"))?;
        let handshake = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(limits::STREAM_WINDOW)
            .initial_connection_window_size(limits::CONNECTION_WINDOW)
            .max_frame_size(limits::FRAME_LEN_MAX)
            .max_send_buf_size(limits::STREAM_WINDOW as usize)
            .initial_max_send_streams(limits::STREAMS_MAX as usize)
            .max_concurrent_reset_streams(limits::STREAMS_MAX as usize)
            .handshake(TokioIo::new(stream));
        let slow = |_| ShimClientError::Slow { path: "connect".to_owned(), wait: CONNECT_WAIT };
        let shaken = tokio::time::timeout(CONNECT_WAIT, handshake).await.map_err(slow)?;
        let (sender, connection) = shaken.map_err(|e| ShimClientError::Gone(e.to_string()))?;
        let (tell, gone) = watch::channel(false);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(error = %full(&error), "the connection to a shim broke");
            }
            tell.send_replace(true);
        });
        Ok(ShimClient { sender, gone })
    }

    /// Waits until the connection is over: the shim has exited or was killed.
    pub(crate) async fn gone(&self) {
        let _ = self.gone.clone().wait_for(|gone| *gone).await;
    }

    /// Passes a request on as it is.
    pub(crate) async fn send(&self, request: Request<ProxyBody>) -> Result<Response<Incoming>, hyper::Error> {
        let mut sender = self.sender.clone();
        sender.ready().await?;
        sender.send_request(request).await
    }

    /// The state, held by the shim while its version is `seen`.
    pub(crate) async fn state_after(&self, seen: u64) -> Result<ShimState, ShimClientError> {
        let wait = Duration::from_secs(warren_proto::shim::limits::STATE_HOLD_SECS + 10);
        self.call(Method::GET, &format!("{}?seen={seen}", paths::STATE), None::<&()>, wait).await
    }

    /// The state after asking the guest.
    pub(crate) async fn fresh_state(&self) -> Result<ShimState, ShimClientError> {
        let wait = Duration::from_secs(warren_proto::shim::limits::FRESH_WAIT_SECS + 1);
        self.call(Method::GET, &format!("{}?fresh", paths::STATE), None::<&()>, wait).await
    }

    /// One JSON call in bounded time.
    pub(crate) async fn call<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        wait: Duration,
    ) -> Result<A, ShimClientError> {
        let gone = |e: &dyn std::fmt::Display| ShimClientError::Gone(e.to_string());
        let bytes = match body {
            Some(body) => serde_json::to_vec(body).map_err(|e| gone(&e))?,
            None => Vec::new(),
        };
        let body = Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync();
        let request = Request::builder()
            .method(method)
            .uri(format!("{ORIGIN}{path}"))
            .header("content-type", "application/json")
            .body(body)
            .map_err(|e| gone(&e))?;
        let exchange = async {
            let response = self.send(request).await.map_err(|e| gone(&e))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_LEN_MAX).collect().await.map_err(|e| gone(&e))?;
            let bytes = body.to_bytes();
            if !status.is_success() {
                let message = String::from_utf8_lossy(&bytes).into_owned();
                return Err(ShimClientError::Refused { path: path.to_owned(), message });
            }
            serde_json::from_slice(&bytes).map_err(|e| gone(&e))
        };
        let slow = |_| ShimClientError::Slow { path: path.to_owned(), wait };
        tokio::time::timeout(wait, exchange).await.map_err(slow)?
    }
}

/// Shims that were started for the VM's folder `vm`, whoever started them.
pub(crate) fn strays(vm: &Path) -> Vec<ProcessHandle> {
    let wanted = [b"shim\0--dir\0".as_slice(), vm.as_os_str().as_bytes(), b"\0"].concat();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_ours = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(wanted.len()).any(|part| part == wanted)
    };
    pids.filter(is_ours).filter_map(ProcessHandle::open).collect()
}

/// An error with its causes, for a log.
fn full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// A process as it can be written down: a pid alone may be another process's after a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct ProcessName {
    pid: u32,
    /// When it started, clock ticks since the host's start.
    started_ticks: u64,
}

impl ProcessName {
    /// The name of a process that lives.
    pub(crate) fn of(pid: u32) -> Option<ProcessName> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(ProcessName { pid, started_ticks: started_ticks(&stat)? })
    }

    /// The process, if it still is the one that was named.
    pub(crate) fn open(self) -> Option<ProcessHandle> {
        let handle = ProcessHandle::open(self.pid)?;
        // Asked after the descriptor is open: what it names cannot change any more.
        (ProcessName::of(self.pid) == Some(self)).then_some(handle)
    }
}

/// Field 22 of `/proc/PID/stat`; the name before it is in parentheses and may hold anything.
fn started_ticks(stat: &str) -> Option<u64> {
    const FIELDS_BETWEEN_NAME_AND_START: usize = 19;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(FIELDS_BETWEEN_NAME_AND_START)?.parse().ok()
}

/// A process by a descriptor, so that a reused pid is never mistaken for it.
#[derive(Clone)]
pub(crate) struct ProcessHandle(Arc<OwnedFd>);

impl ProcessHandle {
    /// `None` if there is no such process (any more).
    pub(crate) fn open(pid: u32) -> Option<ProcessHandle> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
        let fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
        Some(ProcessHandle(Arc::new(fd)))
    }

    /// Kills it at once.
    pub(crate) fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&*self.0, rustix::process::Signal::KILL);
    }

    /// Whether it is gone now.
    pub(crate) fn is_gone(&self) -> bool {
        self.poll(Duration::ZERO)
    }

    /// Waits until it is gone, at most `wait`; whether it is.
    pub(crate) async fn gone(&self, wait: Duration) -> bool {
        let process = self.clone();
        // On a thread of its own: waits are short, bounded and rare, and end before a runtime stops.
        self.is_gone() || tokio::task::spawn_blocking(move || process.poll(wait)).await.unwrap_or(false)
    }

    fn poll(&self, wait: Duration) -> bool {
        let mut fds = [rustix::event::PollFd::new(&*self.0, rustix::event::PollFlags::IN)];
        let wait = rustix::event::Timespec::try_from(wait).ok();
        matches!(rustix::event::poll(&mut fds, wait.as_ref()), Ok(1..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_again_and_another_is_not() {
        let name = ProcessName::of(std::process::id()).unwrap();
        assert!(name.open().is_some_and(|p| !p.is_gone()));
        assert!(ProcessName { started_ticks: name.started_ticks + 1, ..name }.open().is_none());
        assert_eq!(started_ticks("7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 0"), Some(4242));
    }
}
