//! From a [`Boot`] to a guest that takes requests.

use crate::channel::{self, Channel, ChannelError};
use crate::console::Console;
use crate::exchange::{self, Exchange};
use crate::guest::{self, AskError};
use crate::{DISK_FILE, volume_file};
use crate::{jail, network};
use hyper::Method;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};
use warren_net::NetworkHandle;
use warren_proto::guest::exchange::{PIECES, start_of};
use warren_proto::guest::{InitDone, Mount, ROOT_DISK, paths};
use warren_proto::shim::{Boot, DiskBase};
use warren_vmm::{MachineFiles, Memory, SpawnError, Vm, VmConfig, VmError, VolumeFile};

/// Longest wait for the agent of a restored machine.
const RESTORED_AGENT_WAIT: Duration = Duration::from_secs(30);
/// Longest wait for the agent of a machine that boots cold; emulated and on a busy host.
const BOOTED_AGENT_WAIT: Duration = Duration::from_secs(180);
/// Longest time for the agent to make the guest its own.
const INIT_WAIT: Duration = Duration::from_secs(60);

/// Why a machine did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("{0}")]
    Spawn(#[from] SpawnError),
    #[error("give up the rights that the VMM's start needed: {0}")]
    Seal(#[source] std::io::Error),
    #[error("restore the machine: {0}")]
    Restore(#[from] VmError),
    #[error("start the network: {0}")]
    Network(#[source] std::io::Error),
    #[error("share the exchange disk: {0}")]
    Exchange(#[source] std::io::Error),
    #[error("{0}")]
    Channel(#[from] ChannelError),
    #[error("{0}")]
    Init(#[from] AskError),
}

/// What a start leaves in the owner's hands even if it is cut off in the middle.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) vm: Option<Vm>,
    pub(crate) network: Option<NetworkHandle>,
}

/// A machine that takes requests.
pub(crate) struct Started {
    pub(crate) channel: Channel,
    /// The disk for large files, where the agent has it.
    pub(crate) exchange: Option<Exchange>,
    pub(crate) steps_ms: BTreeMap<String, f64>,
}

/// Measures the steps of a start.
struct Steps {
    last: Instant,
    ms: BTreeMap<String, f64>,
}

impl Steps {
    fn done(&mut self, name: &str) {
        self.ms.insert(name.to_owned(), self.last.elapsed().as_secs_f64() * 1000.0);
        self.last = Instant::now();
    }
}

/// Starts the machine. `parts` holds whatever exists at any moment, so that dropping this future leaks nothing.
///
/// `spawned` is told QEMU's pid as soon as there is one.
pub(crate) async fn start(
    boot: &mut Boot,
    parts: &mut Parts,
    console: &Console,
    spawned: impl Fn(Option<u32>),
) -> Result<Started, StartError> {
    let mut steps = Steps { last: Instant::now(), ms: BTreeMap::new() };
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(StartError::Network)?;
    let network = network::start(ours, boot.egress.clone()).map_err(StartError::Network)?;
    let network = parts.network.insert(network);
    boot.init.network = Some(network::guest_network());
    let (vm, stdout, stderr) = Vm::spawn(Path::new("."), &vm_config(boot), theirs.into()).await?;
    jail::seal().map_err(StartError::Seal)?;
    console.follow(stdout);
    console.follow(stderr);
    spawned(vm.pid());
    let vm = parts.vm.insert(vm);
    steps.done("spawn");
    let lost = put_back_lent(boot, vm).map_err(StartError::Exchange)?;
    if let Some(template) = &boot.template {
        vm.load(&template.state).await?;
        network.reset(&template.flows);
        if template.lent.is_none() {
            vm.announce_size(ROOT_DISK, Path::new(DISK_FILE)).await?;
            // The guest finds those anew that it may not write to: QEMU does not let them change their size.
            for mount in boot.init.mounts.iter().filter(|mount| !mount.read_only) {
                vm.announce_size(&mount.disk, Path::new(&volume_file(&mount.disk))).await?;
            }
        }
        steps.done("load");
    }
    let wait = if boot.template.is_some() { RESTORED_AGENT_WAIT } else { BOOTED_AGENT_WAIT };
    let channel = channel::open(vm.connect_guest().await?, wait).await?;
    steps.done("channel");
    boot.init.now_unix_nanos = crate::driver::now_nanos();
    let done: InitDone =
        guest::ask(channel.sender.clone(), Method::POST, paths::INIT, Some(&boot.init), INIT_WAIT).await?;
    steps.done("init");
    steps.ms.extend(done.steps_ms.into_iter().take(64).map(|(name, ms)| (format!("guest.{name}"), ms)));
    let exchange =
        if done.has_exchange { Some(vm.exchange().try_clone().map_err(StartError::Exchange)?) } else { None };
    Ok(Started { channel, exchange: exchange.map(|memory| Exchange::new(memory, &lost)), steps_ms: steps.ms })
}

/// Before a machine goes on from a snapshot: its exchange disk is as its transfers left it. Which pieces they had.
fn put_back_lent(boot: &Boot, vm: &Vm) -> std::io::Result<Vec<u32>> {
    let Some(lent) = boot.template.as_ref().and_then(|template| template.lent.as_ref()) else { return Ok(Vec::new()) };
    let mut bytes = Vec::new();
    if let Some(path) = &lent.bytes {
        // Never more than the whole disk: the file may be the work of a VMM that a guest had taken over.
        std::fs::File::open(path)?.take(start_of(PIECES)).read_to_end(&mut bytes)?;
    }
    exchange::put_back(vm.exchange(), &lent.pieces, &bytes)?;
    Ok(lent.pieces.clone())
}

fn vm_config(boot: &Boot) -> VmConfig {
    let memory = match &boot.template {
        Some(template) => Memory::Private(template.memory.clone()),
        None => Memory::Anonymous,
    };
    let volume = |(mount, base): (&Mount, &DiskBase)| VolumeFile {
        disk: mount.disk.clone(),
        overlay: volume_file(&mount.disk).into(),
        base: base.clone(),
        read_only: mount.read_only,
    };
    let volumes = boot.init.mounts.iter().zip(&boot.volumes).map(volume).collect();
    VmConfig {
        machine: boot.machine.clone(),
        shape: boot.shape,
        files: MachineFiles { root_overlay: DISK_FILE.into(), root_base: boot.disk.clone(), volumes, memory },
        incoming: boot.template.is_some(),
    }
}
