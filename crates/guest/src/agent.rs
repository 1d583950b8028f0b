//! What all requests share.

use crate::command::Defaults;
use crate::freeze::Freeze;
use crate::http::Budget;
use crate::init::Guest;
use crate::process::{Cgroups, Freezer, OomWatch, Reaper};
use crate::session::Sessions;
use crate::start_command::StartCommand;
use crate::status::OwnMemory;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, Semaphore};

/// Bytes that wait to be sent, all streams together.
const OUTGOING_LEN_MAX: usize = 1 << 20;
/// Transfers of files at once with a block of memory.
const FILE_BLOCKS_MAX: usize = 3;
/// Streams of input at once.
const INPUT_STREAMS_MAX: usize = 8;
/// Threads for what may block, such as files. No file is opened in a way that waits for somebody else.
const BLOCKING_THREADS_MAX: usize = 16;
/// Time after a transfer until its memory goes back to the kernel: others may follow.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);
/// How long emptied cgroups may wait for their removal.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// What the agent runs on: one thread, and others for what may block.
pub fn runtime() -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_io().enable_time().max_blocking_threads(BLOCKING_THREADS_MAX).build()
}

/// The agent: one task's worth of state, shared by reference.
pub struct Agent {
    /// Waits for children.
    pub reaper: Rc<Reaper>,
    /// Makes the commands' cgroups.
    pub cgroups: Rc<Cgroups>,
    /// Lets the user's programs stand still.
    pub freezer: Freezer,
    /// Sees kills for lack of memory.
    pub oom: Rc<OomWatch>,
    /// The commands.
    pub sessions: Sessions,
    /// Bounds what waits to be sent.
    pub outgoing: Rc<Budget>,
    /// Bounds the streams of input: each holds a window while its command does not read.
    pub input_streams: Semaphore,
    /// Transfers of files that may have a block of memory; the others are slower.
    pub file_blocks: Semaphore,
    /// Told at the end of each transfer of a file.
    pub transfer_ended: Notify,
    /// The disk through which large files pass, see [`warren_proto::guest::exchange`].
    pub exchange: Option<Arc<File>>,
    /// For reads from commands.
    pub scratch: RefCell<Box<[u8]>>,
    /// What commands start from; to be asked for through [`crate::init::defaults`].
    pub defaults: RefCell<Option<Rc<Defaults>>>,
    /// The sandbox's start command.
    pub start_command: StartCommand,
    /// A file system at rest.
    pub freeze: Freeze,
    /// The agent's own memory.
    pub own_memory: OwnMemory,
    /// What `init` has done and needs.
    pub guest: RefCell<Guest>,
}

impl Agent {
    /// An agent whose commands get cgroups below `cgroup_parent`. Must be made where a tokio runtime with a local set runs.
    pub fn new(cgroup_parent: &Path, guest: Guest, exchange: Option<File>) -> io::Result<Rc<Self>> {
        Ok(Rc::new(Self {
            reaper: Reaper::new()?,
            cgroups: Cgroups::new(cgroup_parent),
            freezer: Freezer::default(),
            oom: OomWatch::new(),
            sessions: Sessions::default(),
            outgoing: Budget::new(OUTGOING_LEN_MAX),
            input_streams: Semaphore::new(INPUT_STREAMS_MAX),
            file_blocks: Semaphore::new(FILE_BLOCKS_MAX),
            transfer_ended: Notify::new(),
            exchange: exchange.map(Arc::new),
            scratch: RefCell::new(vec![0; crate::session::READ_LEN_MAX].into()),
            defaults: RefCell::default(),
            start_command: StartCommand::default(),
            freeze: Freeze::default(),
            own_memory: OwnMemory::open(),
            guest: RefCell::new(guest),
        }))
    }

    /// Starts what runs for ever beside the requests.
    pub fn run_background(self: &Rc<Self>) {
        let reaper = self.reaper.clone();
        tokio::task::spawn_local(async move { reaper.run().await });
        let oom = self.oom.clone();
        tokio::task::spawn_local(async move { oom.run().await });
        let agent = self.clone();
        tokio::task::spawn_local(async move { agent.keep_cgroups().await });
        let agent = self.clone();
        tokio::task::spawn_local(async move { agent.keep_small().await });
    }

    /// Gives back what transfers of files needed.
    async fn keep_small(&self) {
        loop {
            self.transfer_ended.notified().await;
            tokio::time::sleep(GIVE_BACK_AFTER).await;
            crate::sys::give_memory_back();
        }
    }

    /// Removes cgroups that the end of an orphan may have emptied.
    async fn keep_cgroups(&self) {
        loop {
            self.reaper.orphan_reaped().await;
            if self.cgroups.has_lingering() {
                tokio::time::sleep(SWEEP_INTERVAL).await;
                self.cgroups.sweep();
            }
        }
    }
}
