//! A file system at rest, so that its disk is whole at one moment.

use crate::agent::Agent;
use crate::http::Refusal;
use crate::init::Mounted;
use crate::{report, sys};
use rustix::fs::{Mode, OFlags, fstat, syncfs};
use rustix::io::Errno;
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use warren_proto::guest::limits::FREEZE_SECS_MAX;
use warren_proto::guest::{ROOT_DISK, RestDisk};

/// Stack of the thread that waits, bytes.
const STACK_LEN: usize = 64 << 10;

type Answer = serde_json::Map<String, serde_json::Value>;

/// Lets the file system go on.
struct Frozen {
    thaw: Sender<()>,
    thawed: oneshot::Receiver<()>,
}

/// Whether a file system rests: one at a time.
#[derive(Default)]
pub struct Freeze(RefCell<Option<Frozen>>);

/// `POST /warren/freeze-disk`: writes everything out and holds all that would write more. The agent goes on: nothing that it does on its
/// own thread writes to that file system.
pub async fn freeze(agent: &Agent, RestDisk { disk }: RestDisk) -> Result<Answer, Refusal> {
    crate::init::defaults(agent).ok_or_else(Refusal::not_ready)?;
    let place = match disk.as_str() {
        ROOT_DISK => None,
        _ => {
            let known = agent.guest.borrow().volume(&disk);
            Some(known.ok_or_else(|| Refusal::bad_request(format!("this machine has no disk {disk}")))?)
        }
    };
    // An earlier one that nobody ended is over now.
    thaw(agent).await?;
    let (froze, frozen) = oneshot::channel();
    let (thaw, asked) = channel();
    let (done, thawed) = oneshot::channel();
    // A thread of its own: those of the pool may all be held by the rest that they would have to end.
    let thread = thread::Builder::new().name("freeze".to_owned()).stack_size(STACK_LEN);
    thread
        .spawn(move || rest(place, froze, &asked, done))
        .map_err(|error| Refusal::internal("start a thread", error))?;
    match frozen.await {
        Ok(Ok(())) => {
            *agent.freeze.0.borrow_mut() = Some(Frozen { thaw, thawed });
            Ok(Answer::new())
        }
        Ok(Err(error)) => Err(Refusal::internal(&format!("freeze the file system of disk {disk}"), error)),
        Err(error) => Err(Refusal::internal("freeze a file system", error)),
    }
}

/// `POST /warren/thaw-disk`: lets all that was held go on; nothing to do where nothing is.
pub async fn thaw(agent: &Agent) -> Result<Answer, Refusal> {
    let frozen = agent.freeze.0.borrow_mut().take();
    if let Some(Frozen { thaw, thawed }) = frozen {
        // It may have come to its end by itself.
        let _ = thaw.send(());
        let _ = thawed.await;
    }
    Ok(Answer::new())
}

/// The root's folder, or a volume's; an error if something else is there now.
fn open(place: Option<&Mounted>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let path = place.map_or("/", |place| &place.path);
    let folder = rustix::fs::open(path, flags, Mode::empty())?;
    match place {
        Some(place) if fstat(&folder)?.st_dev != place.device => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("it is not mounted at {path} any more; mount it there again"),
        )),
        _ => Ok(folder),
    }
}

/// Freezes, waits until it is told to go on, or for the longest time that it may last, and goes on.
fn rest(
    place: Option<Mounted>,
    froze: oneshot::Sender<io::Result<()>>,
    asked: &Receiver<()>,
    done: oneshot::Sender<()>,
) {
    // Written out before, so that the rest is short. Only this file system: another may hang.
    let root = match open(place.as_ref()).and_then(|root| Ok(syncfs(&root).map(|()| root)?)) {
        Ok(root) => root,
        Err(error) => return drop(froze.send(Err(error))),
    };
    let is_ours = match sys::freeze(root.as_fd()) {
        Ok(()) => true,
        // Somebody in the guest has frozen it already; whoever it was ends that.
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => false,
        Err(error) => return drop(froze.send(Err(error))),
    };
    if froze.send(Ok(())).is_ok() {
        // An answer, the end of the agent's interest and the end of the time are all the same.
        let _ = asked.recv_timeout(Duration::from_secs(FREEZE_SECS_MAX));
    }
    if is_ours && let Err(error) = sys::thaw(root.as_fd()) {
        report!("thaw a file system: {error}");
    }
    let _ = done.send(());
}
