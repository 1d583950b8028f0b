//! The node: opening it, and the sandboxes that it knows.

use crate::accel::{self, AccelChoice, Verdict};
use crate::admit::{Promised, capacity_mib};
use crate::assets::{self, AssetsError};
use crate::checkpoint::Checkpoints;
use crate::ended::EndedRecords;
use crate::host;
use crate::sandbox::{Adopted, Driver, Folder, Handle, Intent, Services, Turn, Waiters};
use crate::shim_client::{self, ProcessHandle, ProcessName, ShimClient};
use crate::snapshots::Snapshots;
use crate::template::Templates;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, broadcast};
use warren_model::{EndReason, SandboxId};
use warren_proto::node::{Observation, TokenKey, limits};
use warren_proto::shim::{Accel, End, Machine, ShimState};

/// Starts that may run at once, per core of the host.
const STARTS_PER_CORE: usize = 2;
/// Ids of deletes that came before their create, remembered at most.
const DELETED_IDS_MAX: usize = 16_384;
/// Longest wait for a shim of an earlier run to answer.
const ADOPT_WAIT: Duration = Duration::from_secs(5);

/// How a node is set up.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// URL prefix of the data plane as clients reach it, without a trailing slash; `None`: as they came, plus `/gw`.
    pub gateway_url: Option<String>,
    /// Accelerator.
    pub accel: AccelChoice,
    /// The executable that is started as shim: ours.
    pub warren: PathBuf,
    /// Registries, mirrors, credentials.
    pub images: warren_image::Config,
    /// What a shim is told to run.
    pub guests: Guests,
}

/// What the sandboxes of a node are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Guests {
    /// Virtual machines.
    #[default]
    Real,
    /// Nothing: the executable that is started as shim only speaks the shim's protocol. For load tests of everything above it.
    Simulated,
}

/// Why a node did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// What guests boot from could not be made.
    #[error(transparent)]
    Assets(#[from] AssetsError),
    /// A file of the data directory.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The accelerator that was asked for does not work.
    #[error("{0}")]
    Accel(String),
    /// The image store.
    #[error("open the image store: {0}")]
    Images(String),
}

/// One machine that runs sandboxes.
pub struct Node {
    pub(crate) config: NodeConfig,
    pub(crate) services: Arc<Services>,
    pub(crate) token_key: TokenKey,
    pub(crate) verdict: Verdict,
    pub(crate) known: Mutex<Known>,
}

/// Sandboxes by id.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) live: HashMap<SandboxId, Handle>,
    pub(crate) ended: HashMap<SandboxId, Observation>,
    deleted: VecDeque<SandboxId>,
}

impl Known {
    pub(crate) fn promised(&self) -> Promised {
        Promised {
            sandboxes: self.live.len() as u64,
            memory_mib: self.live.values().map(|h| h.memory_mib.load(Ordering::SeqCst)).sum(),
        }
    }

    pub(crate) fn was_deleted(&self, id: &SandboxId) -> bool {
        self.deleted.contains(id)
    }

    pub(crate) fn remember_deleted(&mut self, id: SandboxId) {
        if self.deleted.len() == DELETED_IDS_MAX {
            self.deleted.pop_front();
        }
        self.deleted.push_back(id);
    }
}

impl Node {
    /// Makes what guests boot from, decides the accelerator, and adopts the sandboxes that an earlier run left.
    pub async fn open(config: NodeConfig) -> Result<Arc<Node>, OpenError> {
        let data_dir = config.data_dir.clone();
        let io = |action: &'static str, path: &Path| {
            let path = path.display().to_string();
            move |source| OpenError::Io { action, path, source }
        };
        let sandboxes = data_dir.join("sandboxes");
        std::fs::create_dir_all(&sandboxes).map_err(io("make", &sandboxes))?;
        let key_file = data_dir.join("node.key");
        let token_key = TokenKey::new(load_key(&key_file).map_err(io("read or make", &key_file))?);
        let (machine, verdict) = match config.guests {
            Guests::Real => real_machine(&config).await?,
            Guests::Simulated => simulated_machine(),
        };
        let templates_dir = data_dir.join("templates");
        let simulated = config.guests == Guests::Simulated;
        let templates = Templates::open(templates_dir.clone(), machine.clone(), &verdict.key, simulated)
            .map_err(io("open", &templates_dir))?;
        let images = warren_image::Store::open(&data_dir.join("images"), config.images.clone())
            .map_err(|e| OpenError::Images(e.to_string()))?;
        let checkpoints_dir = data_dir.join("checkpoints");
        let checkpoints = Checkpoints::open(checkpoints_dir.clone(), images.clone());
        let checkpoints = checkpoints.map_err(io("open", &checkpoints_dir))?;
        let snapshots_dir = data_dir.join("snapshots");
        let snapshots = Snapshots::open(snapshots_dir.clone(), images.clone()).map_err(io("open", &snapshots_dir))?;
        let ended_dir = data_dir.join("ended");
        let ended = EndedRecords::open(ended_dir.clone()).map_err(io("open", &ended_dir))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let services = Arc::new(Services {
            warren: config.warren.clone(),
            machine,
            images,
            checkpoints,
            templates,
            starts: Semaphore::new(cores * STARTS_PER_CORE),
            uids: locks_shims_in(simulated).then(Default::default),
            snapshots,
            ended,
            observations: broadcast::channel(limits::OBSERVATIONS_QUEUED_MAX).0,
        });
        let node = Arc::new(Node { config, services, token_key, verdict, known: Mutex::default() });
        node.load_ended();
        let left = Folder::all(&sandboxes).map_err(io("read", &sandboxes))?;
        node.adopt_all(left).await;
        node.services.checkpoints.resume().map_err(io("read", &checkpoints_dir))?;
        // Only now that everything that runs or is made has its lease.
        node.services.snapshots.start_tending();
        let unused = node.services.images.collect().await;
        tracing::debug!(unused, "images collected");
        Ok(node)
    }

    /// Which accelerator runs the guests, and why.
    pub fn accel(&self) -> &Verdict {
        &self.verdict
    }

    /// Routes of the data plane, under `/gw`.
    pub fn router(self: &Arc<Self>) -> axum::Router {
        crate::gateway::router(crate::SharedNode(self.clone()))
    }

    pub(crate) fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        // The maps stay sound whatever a panicking holder did.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sandboxes_dir(&self) -> PathBuf {
        self.config.data_dir.join("sandboxes")
    }

    pub(crate) fn capacity_mib(&self) -> u64 {
        capacity_mib(&host::measure(&self.config.data_dir))
    }

    fn load_ended(&self) {
        let mut known = self.known();
        for record in self.services.ended.all() {
            let Ok(id) = SandboxId::parse(&record.id) else { continue };
            let mut seen = crate::sandbox::pending(id.clone());
            seen.status = record.end.reason.status();
            seen.image_digest = record.image_digest;
            seen.started_at_ms = record.started_at_ms;
            seen.last_oom = record.last_oom;
            seen.end = Some(record.end);
            known.ended.insert(id, seen);
        }
    }

    /// Lets a driver run, and moves the sandbox to the ended ones after it.
    pub(crate) fn run(
        self: &Arc<Self>,
        id: SandboxId,
        handle: &Handle,
        driving: impl Future<Output = Waiters> + Send + 'static,
    ) {
        let (node, seen) = (self.clone(), handle.seen.clone());
        tokio::spawn(async move {
            // Awaited in a task of its own, so that a panic in it still takes the sandbox off the list of live ones.
            let outcome = tokio::spawn(driving).await;
            let waiters = outcome.unwrap_or_else(|error| {
                tracing::error!(sandbox = %id, %error, "the owner of a sandbox died");
                Waiters::new()
            });
            let last = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let mut known = node.known();
            known.live.remove(&id);
            known.ended.insert(id, last);
            drop(known);
            for waiter in waiters {
                let _ = waiter.send(());
            }
        });
    }

    async fn adopt_all(self: &Arc<Self>, left: Vec<(Folder, Option<Intent>)>) {
        let adoptions = left.into_iter().map(|(folder, intent)| self.adopt(folder, intent));
        futures_util::future::join_all(adoptions).await;
    }

    /// Takes a folder of an earlier run: a live shim is adopted, anything else is cleaned up.
    async fn adopt(self: &Arc<Self>, folder: Folder, intent: Option<Intent>) {
        let known_id = intent.as_ref().and_then(|i| SandboxId::parse(&i.id).ok());
        let (Some(intent), Some(id)) = (intent, known_id) else {
            // The folder was made but the intent was not written: nothing else can exist.
            folder.remove();
            return;
        };
        let shim = intent.shim.and_then(ProcessName::open);
        let live = tokio::time::timeout(ADOPT_WAIT, connect(&folder)).await.ok().flatten();
        if live.is_none() && intent.turn == Turn::Running {
            return self.bury(id, folder, intent, shim).await;
        }
        if intent.turn != Turn::Running {
            // Its machine is not to go on, whichever it is. One that was started right before a kill is not in the intent yet.
            for stray in shim_client::strays(&folder.vm()) {
                stray.kill();
                stray.gone(ADOPT_WAIT).await;
            }
        }
        tracing::info!(sandbox = %id, turn = ?intent.turn, phase = ?live.as_ref().map(|(_, state)| state.phase), "adopted");
        let image = intent.image_digest.as_deref().and_then(|digest| self.services.images.lease(digest));
        let needed = intent.memory_on.iter().chain(&intent.disk_on).chain(intent.turn.snapshot());
        let needs = needed.filter_map(|id| self.services.snapshots.lease(id)).collect();
        let (driver, handle) = Driver::new(id.clone(), folder, intent, self.services.clone());
        self.known().live.insert(id.clone(), handle.clone());
        self.run(id, &handle, driver.adopt(Adopted { live, shim, image, needs }));
    }

    /// A sandbox whose shim is gone: what it said last counts. One that never ran leaves no record, so that it can be created again.
    async fn bury(&self, id: SandboxId, folder: Folder, intent: Intent, shim: Option<ProcessHandle>) {
        for process in shim.into_iter().chain(shim_client::strays(&folder.vm())) {
            process.kill();
            process.gone(ADOPT_WAIT).await;
        }
        let had_machine = folder.vm().join(warren_shim::DISK_FILE).exists();
        let end = folder.end().or_else(|| {
            had_machine.then(|| End {
                reason: EndReason::NodeLost,
                message: "the machine that ran it was restarted, or its shim was killed, while nobody watched"
                    .to_owned(),
                at_ms: host::now_ms(),
                exit_code: None,
                logs: String::new(),
            })
        });
        if let Some(end) = end {
            let mut seen = crate::sandbox::pending(id.clone());
            seen.status = end.reason.status();
            seen.image_digest = intent.image_digest.clone();
            seen.end = Some(end.clone());
            let record = crate::ended::Ended {
                id: id.to_string(),
                image_digest: intent.image_digest,
                started_at_ms: None,
                last_oom: None,
                end,
            };
            if let Err(error) = self.services.ended.put(&id, &record) {
                tracing::error!(sandbox = %id, %error, "keep how a sandbox ended");
            }
            self.known().ended.insert(id, seen);
        }
        folder.remove();
    }
}

/// What guests boot from, and the accelerator that runs them.
/// Whether shims get a user and a file system of their own.
fn locks_shims_in(simulated: bool) -> bool {
    if simulated || !rustix::process::geteuid().is_root() {
        return false;
    }
    let possible = warren_shim::jail::is_possible();
    if !possible {
        tracing::warn!("the kernel does not let shims be locked in: they run as root; `warren doctor` tells more");
    }
    possible
}

async fn real_machine(config: &NodeConfig) -> Result<(Machine, Verdict), OpenError> {
    let data_dir = &config.data_dir;
    let host_files = assets::find().map_err(AssetsError::from)?;
    let (assets_dir, files) = (data_dir.join("assets"), host_files.clone());
    let made = tokio::task::spawn_blocking(move || assets::prepare(&assets_dir, &files)).await;
    let assets = made.map_err(|e| OpenError::Accel(e.to_string()))??;
    let mut machine = Machine {
        qemu: host_files.qemu,
        accel: Accel::Tcg,
        kernel: assets.kernel,
        initramfs: assets.initramfs,
        tools_disk: assets.tools_disk,
        tsc_khz: warren_vmm::host_tsc_khz(),
    };
    let verdict = accel::decide(config.accel, data_dir, &machine, &assets.key).await.map_err(OpenError::Accel)?;
    machine.accel = verdict.accel;
    Ok((machine, verdict))
}

fn simulated_machine() -> (Machine, Verdict) {
    let nowhere = PathBuf::new;
    let machine = Machine {
        qemu: nowhere(),
        accel: Accel::Tcg,
        kernel: nowhere(),
        initramfs: nowhere(),
        tools_disk: nowhere(),
        tsc_khz: None,
    };
    let verdict = Verdict { accel: Accel::Tcg, why: "simulated guests".to_owned(), key: "simulated".to_owned() };
    (machine, verdict)
}

async fn connect(folder: &Folder) -> Option<(ShimClient, ShimState)> {
    let client = ShimClient::connect(folder.path()).await.ok()?;
    let state = client.state_after(0).await.ok()?;
    Some((client, state))
}

/// Reads the key that signs tokens, or makes it: 32 random bytes, mode 600.
fn load_key(path: &Path) -> std::io::Result<[u8; 32]> {
    use std::os::unix::fs::OpenOptionsExt;
    match std::fs::read(path) {
        Ok(bytes) => {
            bytes.try_into().map_err(|_| std::io::Error::other("it is not 32 bytes long; remove it to make a new one"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key: [u8; 32] = host::random()?;
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            std::io::Write::write_all(&mut options.open(path)?, &key)?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}
