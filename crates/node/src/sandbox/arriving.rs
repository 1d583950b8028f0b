//! The disk of an image that was still arriving when a sandbox started, for its VMM: a network block device on a socket in its folder.

use crate::host::joined;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinSet;
use warren_image::ext4::grow::ReadAt;
use warren_image::{Arrival, Disk, Image};
use warren_proto::nbd::{
    CLIENT_FLAGS_LEN, Errno, GREETING, OPTION_HEAD_LEN, OPTIONS_MAX, OptionAnswer, OptionHead, REQUEST_LEN, Request,
    reply,
};

/// Name of the socket in the VM's folder.
pub(super) const SOCKET: &str = "image.sock";
/// Reads of one connection that wait at once: each holds up to 1 MiB.
const READS_AT_ONCE: usize = 16;
/// Pause after a connection that could not be taken, for lack of descriptors for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections at once: the VMM has one; an old one may not have ended yet.
const CONNECTIONS_MAX: usize = 4;

/// Where the bytes of the disk come from.
#[derive(Clone)]
pub(crate) enum Source {
    /// The image is arriving.
    Arriving(Arc<Arrival>),
    /// It has arrived.
    Here(Disk),
}

impl Source {
    /// Of an image.
    pub(crate) fn of(image: &Image) -> Self {
        match &image.arrival {
            Some(arrival) => Self::Arriving(arrival.clone()),
            None => Self::Here(image.disk.clone()),
        }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Arriving(arrival) => arrival.size(),
            Self::Here(disk) => disk.size(),
        }
    }

    /// Reads into the whole buffer; waits for what is not here yet.
    pub(crate) async fn read(&self, at: u64, mut buffer: Vec<u8>) -> Result<Vec<u8>, String> {
        match self {
            Self::Arriving(arrival) => {
                arrival.read(at, &mut buffer).await.map_err(|error| error.to_string())?;
                Ok(buffer)
            }
            Self::Here(disk) => {
                let disk = disk.clone();
                let read = tokio::task::spawn_blocking(move || {
                    let mut filled = 0;
                    while filled < buffer.len() {
                        match disk.read_at(&mut buffer[filled..], at + filled as u64)? {
                            0 => break,
                            count => filled += count,
                        }
                    }
                    io::Result::Ok(buffer)
                });
                joined(read).await.map_err(|error| error.to_string())
            }
        }
    }
}

/// For what reads a disk bit by bit; must run on a thread that may block.
pub(super) struct Blocking(pub(super) Arc<Arrival>, pub(super) tokio::runtime::Handle);

impl ReadAt for Blocking {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let len = self.0.size().saturating_sub(at).min(buffer.len() as u64) as usize;
        self.1.block_on(self.0.read(at, &mut buffer[..len])).map_err(io::Error::other)?;
        Ok(len)
    }
}

/// Serves while it lives.
pub(super) struct ArrivingDisk {
    _serving: JoinSet<()>,
    failures: mpsc::Receiver<String>,
}

impl ArrivingDisk {
    /// Listens in `vm`, the VM's folder; the socket of an earlier run is replaced. Whoever can reach that folder may connect. The
    /// socket is made in `folder`, which is ours alone: whatever the VMM puts into its own, we change no file that it names.
    pub(super) fn serve(folder: &Path, vm: &Path, source: Source) -> io::Result<Self> {
        let path = folder.join(SOCKET);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
        std::fs::rename(&path, vm.join(SOCKET))?;
        let (failed, failures) = mpsc::channel(1);
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, source, failed));
        Ok(Self { _serving: serving, failures })
    }

    /// Waits until something could not be read; the guest waits for it ever since.
    pub(super) async fn failed(&mut self) -> String {
        match self.failures.recv().await {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }
}

async fn accept(listener: UnixListener, source: Source, failed: mpsc::Sender<String>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let (source, failed) = (source.clone(), failed.clone());
                connections.spawn(async move {
                    if let Err(error) = Connection::serve(stream, source, failed).await {
                        tracing::debug!(%error, "a VMM's connection to its image ended");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a VMM's connection to its image failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

struct Connection {
    source: Source,
    out: Mutex<OwnedWriteHalf>,
    failed: mpsc::Sender<String>,
}

impl Connection {
    async fn serve(mut stream: UnixStream, source: Source, failed: mpsc::Sender<String>) -> io::Result<()> {
        let size = source.size();
        if !negotiate(&mut stream, size).await? {
            return Ok(());
        }
        let (mut input, out) = stream.into_split();
        let connection = Arc::new(Connection { source, out: Mutex::new(out), failed });
        let slots = Arc::new(Semaphore::new(READS_AT_ONCE));
        let mut reads = JoinSet::new();
        let mut head = [0; REQUEST_LEN];
        loop {
            input.read_exact(&mut head).await?;
            match Request::parse(&head, size).map_err(io::Error::other)? {
                Request::Read { cookie, offset, len } => {
                    while reads.try_join_next().is_some() {}
                    let slot = slots.clone().acquire_owned().await.map_err(io::Error::other)?;
                    let connection = connection.clone();
                    reads.spawn(async move {
                        let _slot = slot;
                        // The next request will meet the same error.
                        let _ = connection.read(cookie, offset, len).await;
                    });
                }
                Request::Answer { cookie, error } => connection.answer(cookie, error, &[]).await?,
                Request::Disconnect => return Ok(()),
            }
        }
    }

    async fn read(&self, cookie: u64, offset: u64, len: u32) -> io::Result<()> {
        match self.source.read(offset, vec![0; len as usize]).await {
            Ok(bytes) => self.answer(cookie, None, &bytes).await,
            Err(error) => {
                // One is enough to know. No answer: the guest must not take our fault for a broken disk; its machine is ended.
                let _ = self.failed.try_send(error);
                std::future::pending().await
            }
        }
    }

    async fn answer(&self, cookie: u64, error: Option<Errno>, data: &[u8]) -> io::Result<()> {
        let mut out = self.out.lock().await;
        out.write_all(&reply(cookie, error)).await?;
        out.write_all(data).await
    }
}

/// Whether requests follow.
async fn negotiate(stream: &mut UnixStream, size: u64) -> io::Result<bool> {
    stream.write_all(&GREETING).await?;
    stream.read_exact(&mut [0; CLIENT_FLAGS_LEN]).await?;
    for _ in 0..OPTIONS_MAX {
        let mut head = [0; OPTION_HEAD_LEN];
        stream.read_exact(&mut head).await?;
        let option = OptionHead::parse(&head).map_err(io::Error::other)?;
        stream.read_exact(&mut vec![0; option.len as usize]).await?;
        match option.answer(size) {
            OptionAnswer::Next(bytes) => stream.write_all(&bytes).await?,
            OptionAnswer::Start(bytes) => return stream.write_all(&bytes).await.map(|()| true),
            OptionAnswer::End(bytes) => return stream.write_all(&bytes).await.map(|()| false),
        }
    }
    Err(io::Error::other("too many options"))
}
