//! A stream of bytes to something inside a sandbox.

use async_trait::async_trait;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use warren_model::{SandboxId, Status};

/// Time within which something inside a sandbox takes a connection or is said not to listen.
pub const DIAL_WAIT: Duration = Duration::from_secs(5);

/// What is dialled in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// What listens on this TCP port, on loopback or on the machine's own address.
    Port(u16),
    /// What listens on this TCP port of the machine's own address: what listens on loopback alone is nobody else's.
    LanPort(u16),
    /// A new SSH server, for this stream alone.
    Ssh,
}

/// Bytes both ways. Each half ends by itself: a shutdown is the other side's end of file.
pub type DialStream = Box<dyn ByteStream>;

/// Anything that is read and written.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// The ways into the sandboxes of a node.
#[async_trait]
pub trait Doors: Send + Sync + 'static {
    /// Opens a stream; waits for a sandbox that is being reset, wakes a paused one that is to go on when used, and counts as activity until the stream
    /// ends. Answers within [`DIAL_WAIT`] of the sandbox being able to.
    async fn dial(&self, id: &SandboxId, door: Door) -> Result<DialStream, DialError>;
}

/// Why there is no stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The node does not know the sandbox.
    #[error("sandbox {0} is not known to this node")]
    NoSandbox(SandboxId),
    /// It does not run.
    #[error("sandbox {id} is {}", status.as_str())]
    NotRunning {
        /// Which.
        id: SandboxId,
        /// Its status.
        status: Status,
    },
    /// Nothing in the sandbox takes connections there.
    #[error("nothing listens on port {port} in sandbox {id}")]
    NotListening {
        /// Which.
        id: SandboxId,
        /// Where.
        port: u16,
    },
    /// Host, shim or guest failed.
    #[error("{0}")]
    Failed(String),
}
