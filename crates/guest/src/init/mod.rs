//! `POST /warren/init`: makes a restored guest a machine of its own.
//!
//! The first call mounts the sandbox's disk and moves into it. A later one for the same sandbox changes nothing but the clock and
//! the random numbers; one for another sandbox (a fork of this one) gives the running guest its new identity. Programs that stand still since a
//! snapshot go on at its end.

mod asked;
mod finish;
mod host_keys;
mod identity;
mod network;
mod root;
mod stand_ins;
mod volumes;

use crate::agent::Agent;
use crate::boot::{LateDisk, Staged};
use crate::command::resolve_user;
use crate::http::Refusal;
use crate::{generation, report, start_command, sys};
use asked::{Asked, Network};
use finish::Unfinished;
use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, Timespec, clock_settime};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;
use warren_proto::guest::{Init, InitDone};

pub use finish::defaults;
pub(crate) use root::keeping_times;
pub use volumes::Mounted;

/// How far the guest is.
pub struct Guest {
    /// What becomes its files; `None` once it has them.
    waiting: Option<Waiting>,
    /// The volumes that it has.
    volumes: Vec<Mounted>,
    /// The identity it has.
    done: Option<Done>,
    /// What is left to be done for it.
    unfinished: Option<Unfinished>,
    /// How often it went on from a snapshot.
    generation: u64,
}

/// What a guest waits with until it is a sandbox's.
pub struct Waiting {
    /// The disk that becomes the root.
    pub root: LateDisk,
    /// Disks of volumes, by name.
    pub volumes: Vec<(String, LateDisk)>,
    /// Mounts for the root.
    pub staged: Staged,
}

struct Done {
    sandbox_id: String,
    hostname: String,
    network: Option<Network>,
}

impl Guest {
    /// A guest that has no root yet.
    pub fn waiting(waiting: Waiting) -> Self {
        Self { waiting: Some(waiting), ..Self::none() }
    }

    /// An ordinary process on a machine that is set up already: `init` is refused. For tests.
    pub fn none() -> Self {
        Self { waiting: None, volumes: Vec::new(), done: None, unfinished: None, generation: 0 }
    }

    /// A volume by the name of its disk.
    pub fn volume(&self, disk: &str) -> Option<Mounted> {
        self.volumes.iter().find(|volume| volume.disk == disk).cloned()
    }
}

/// Measures steps, and names the one that fails.
#[derive(Default)]
struct Steps(BTreeMap<String, f64>);

impl Steps {
    fn run<T>(&mut self, name: &str, step: impl FnOnce() -> io::Result<T>) -> Result<T, Refusal> {
        self.run_or(name, step, |error| Refusal::internal(name, error))
    }

    /// With a refusal of one's own for the failure.
    fn run_or<T>(
        &mut self,
        name: &str,
        step: impl FnOnce() -> io::Result<T>,
        refusal: impl FnOnce(io::Error) -> Refusal,
    ) -> Result<T, Refusal> {
        let begun = Instant::now();
        let result = step().map_err(|error| {
            report!("init: {name}: {error}");
            refusal(error)
        });
        self.0.insert(name.to_owned(), begun.elapsed().as_secs_f64() * 1e3);
        result
    }
}

/// Does it. Synchronous, since nothing else is served before; idempotent.
pub fn initialise(agent: &Rc<Agent>, init: Init) -> Result<InitDone, Refusal> {
    let asked = Asked::parse(init)?;
    let mut steps = Steps::default();
    steps.run("clock", || set_clock(asked.now_unix_nanos))?;
    steps.run("entropy", || add_entropy(&asked.entropy))?;
    let is_known = agent.guest.borrow().done.as_ref().is_some_and(|done| done.sandbox_id == asked.sandbox_id);
    let start_command = if is_known { None } else { become_sandbox(agent, asked, &mut steps)? };
    if agent.freezer.is_suspended() {
        agent.freezer.will_resume();
        tokio::task::spawn_local(go_on(agent.clone(), !is_known));
    } else {
        tokio::task::spawn_local(finish_soon(agent.clone(), start_command));
    }
    Ok(InitDone { steps_ms: steps.0, has_exchange: agent.exchange.is_some() })
}

/// Makes the guest this sandbox's own, or that of another than it was, but for what is left to [`finish`]. The start command, if it has to be started.
fn become_sandbox(agent: &Agent, asked: Asked, steps: &mut Steps) -> Result<Option<Vec<String>>, Refusal> {
    let mut guest = agent.guest.borrow_mut();
    let is_new_root = guest.waiting.is_some();
    if let Some(Waiting { root, volumes, staged }) = guest.waiting.take() {
        root::enter(steps, &root, staged)?;
        guest.volumes = volumes::mount_all(steps, &volumes, &asked.mounts)?;
    } else if guest.done.is_none() {
        return Err(Refusal::bad_request(
            "an earlier init failed, or this agent is not the first process of a machine",
        ));
    }
    check_image(&asked)?;
    steps.run("hostname", || Ok(rustix::system::sethostname(asked.hostname.as_bytes())?))?;
    // The interface of a fork is set up already, and connections of its programs with themselves are open on it.
    let network = asked.network.filter(|network| guest.done.as_ref().is_none_or(|done| done.network != Some(*network)));
    if let Some(network) = &network {
        steps.run("network", || network::configure(network))?;
    }
    let done = Done { sandbox_id: asked.sandbox_id.clone(), hostname: asked.hostname.clone(), network: asked.network };
    let old_hostname = guest.done.replace(done).map(|done| done.hostname);
    let start_command = asked.start_command.clone().filter(|_| is_new_root);
    guest.unfinished = Some(Unfinished { asked, old_hostname, is_new_root });
    Ok(start_command)
}

/// Lets programs that stand still since a snapshot go on, once the machine is told apart from what it was then. Requests wait for it.
async fn go_on(agent: Rc<Agent>, is_fork: bool) {
    // The connection sends the answer first.
    tokio::task::yield_now().await;
    finish::finish(&agent);
    if is_fork {
        host_keys::renew(&agent).await;
    }
    let generation = {
        let mut guest = agent.guest.borrow_mut();
        guest.generation += 1;
        guest.generation
    };
    finish::tell("generation", generation::tell_generation(generation));
    agent.freezer.resume();
}

/// What Docker refuses to start a container for: better told now than by each command.
fn check_image(asked: &Asked) -> Result<(), Refusal> {
    if let Some(path) = asked.workdir.as_deref().filter(|path| !path.starts_with('/')) {
        return Err(Refusal::image_unusable(format!("its working directory {path:?} is not an absolute path")));
    }
    let user = asked.user.as_deref().map_or(Ok(()), |user| resolve_user(user).map(drop));
    user.map_err(|error| Refusal::image_unusable(error.to_string()))
}

async fn finish_soon(agent: Rc<Agent>, start_command: Option<Vec<String>>) {
    // The connection sends the answer first.
    tokio::task::yield_now().await;
    if let Some(defaults) = defaults(&agent)
        && let Some(argv) = start_command
    {
        start_command::start(&agent, &defaults, &argv);
    }
}

fn set_clock(unix_nanos: u64) -> io::Result<()> {
    const NANOS: u64 = 1_000_000_000;
    let time = Timespec { tv_sec: (unix_nanos / NANOS) as i64, tv_nsec: (unix_nanos % NANOS) as i64 };
    Ok(clock_settime(ClockId::Realtime, time)?)
}

fn add_entropy(entropy: &[u8]) -> io::Result<()> {
    let random = rustix::fs::open("/dev/urandom", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    sys::add_entropy(random.as_fd(), entropy)
}
