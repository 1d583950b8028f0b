//! From power-on to a waiting agent. Everything here happens once, before the base template is taken: so whatever can be done
//! without knowing the sandbox is done here, and costs nothing at its start.

mod device_files;
mod disks;
mod kernel_modules;
mod mounts;
mod port;
mod settings;

pub use disks::{LateDisk, Superblock, superblock};
pub use mounts::Staged;
pub(crate) use mounts::{MODULE_LOADER, modules_of_tools};
pub(crate) use settings::INTERFACE;

use crate::agent::{Agent, runtime};
use crate::channel::{Port, agree};
use crate::init::{Guest, Waiting};
use crate::serve::serve;
use crate::{generation, report};
use std::io;
use std::path::Path;

/// Cgroup that holds the commands' cgroups.
const CGROUPS: &str = "/sys/fs/cgroup/warren";

/// The machine cannot become a guest.
#[derive(Debug, thiserror::Error)]
#[error("boot: {step}: {source}")]
pub struct BootError {
    step: &'static str,
    source: io::Error,
}

fn step<T>(step: &'static str, result: io::Result<T>) -> Result<T, BootError> {
    result.map_err(|source| BootError { step, source })
}

/// Runs as the first process, for ever. Returns only with an error, upon which the kernel ends the machine.
pub fn run() -> Result<std::convert::Infallible, BootError> {
    rustix::process::umask(rustix::fs::Mode::from(0o022));
    step("mount kernel file systems", mounts::mount_kernel_file_systems())?;
    kernel_modules::load_early();
    let mut disks = step("find disks", disks::list())?;
    let exchange = step("open the exchange disk", disks::take_exchange(&mut disks))?;
    let volumes = step("find the volumes' disks", disks::take_volumes(&mut disks))?;
    let tools = step("find the tools disk", disks::find_tools(&disks))?;
    step("mount the tools disk", mounts::mount_tools(tools.as_deref()))?;
    step("make the files of identity", generation::prepare())?;
    if tools.is_some() {
        device_files::make(&modules_of_tools());
    }
    let root_disk = step("find the root disk", disks::find_root(disks, tools.as_deref()))?;
    settings::apply();
    let staged = step("stage mounts", Staged::open())?;
    let waiting = Waiting { root: root_disk, volumes, staged };
    let runtime = step("start the runtime", runtime())?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let device = step("find the agent's port", port::find().await)?;
        let agent = step("start the agent", Agent::new(Path::new(CGROUPS), Guest::waiting(waiting), exchange))?;
        agent.run_background();
        let mut port = step("open the agent's port", Port::open(&device))?;
        loop {
            // An end of the channel is nothing unusual: the host closes it for every snapshot.
            step("wait for the host", port.host().await)?;
            if let Ok(stream) = agree(&mut port).await
                && let Err(error) = serve(&agent, stream).await
                && !error.is_io()
            {
                report!("channel: {error}");
            }
        }
    })
}
