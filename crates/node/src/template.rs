//! Base templates: a booted guest whose agent waits, one per shape, made on first need. One maker, all others wait.

use crate::assets::short_digest;
use crate::ended::write_whole;
use crate::host::joined;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use warren_model::Shape;
use warren_proto::guest::{GuestStatus, ROOT_DISK, paths, volume_disk};
use warren_proto::shim::{Accel, DiskBase, ImageDisk, Machine, Template};
use warren_shim::channel;
use warren_vmm::{MachineFiles, Memory, Vm, VmConfig, VolumeFile, create_overlay};

/// Longest times for a cold boot until the agent answers, one a try. It takes three seconds under emulation, a dozen on a busy host;
/// but an emulated kernel of two processors has been seen to hang for good while the host was busy, and then only a new try helps.
const BOOT_WAITS: [Duration; 3] = [Duration::from_secs(30), Duration::from_secs(60), Duration::from_secs(180)];
/// Time for the agent to go back to waiting after the channel was closed. Not needed for correctness: an agent that is late finds the next nonce.
const SETTLE: Duration = Duration::from_millis(150);
/// Version of what a template contains; a change makes all older ones stale.
const FORMAT: u32 = 1;

/// Why a template could not be made.
#[derive(Debug, Clone, thiserror::Error)]
#[error("make the base template for {vcpus} vCPUs and {memory_mib} MiB: {problem}")]
pub(crate) struct TemplateError {
    vcpus: u32,
    memory_mib: u64,
    problem: String,
}

/// What a base template is for: machines of one shape with so many volumes, each of which is a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Devices {
    pub(crate) shape: Shape,
    pub(crate) volumes: usize,
}

impl Devices {
    /// Of a machine without volumes.
    pub(crate) fn of(shape: Shape) -> Self {
        Self { shape, volumes: 0 }
    }

    /// Name of its template, but for the suffix that all have.
    fn name(self) -> String {
        let Shape { vcpus, memory_mib } = self.shape;
        match self.volumes {
            0 => format!("{vcpus}x{memory_mib}"),
            volumes => format!("{vcpus}x{memory_mib}v{volumes}"),
        }
    }
}

/// A base template.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    /// Its files.
    pub(crate) template: Template,
    /// Names this one boot: another of the same machine has other bytes.
    pub(crate) id: String,
}

/// All base templates of this node.
pub(crate) struct Templates {
    dir: PathBuf,
    machine: Machine,
    suffix: String,
    /// Makes files that nobody will look into.
    simulated: bool,
    made: Mutex<HashMap<Devices, Arc<OnceCell<Base>>>>,
}

impl Templates {
    /// Opens the folder and drops drafts and templates of other machines. `boots_from` names kernel, agent, QEMU and CPU.
    pub(crate) fn open(
        dir: PathBuf,
        machine: Machine,
        boots_from: &str,
        simulated: bool,
    ) -> std::io::Result<Arc<Self>> {
        std::fs::create_dir_all(&dir)?;
        let suffix = Self::suffix(&machine, boots_from);
        for entry in std::fs::read_dir(&dir)?.flatten() {
            if !entry.file_name().to_string_lossy().ends_with(&suffix) {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(Arc::new(Self { dir, machine, suffix, simulated, made: Mutex::default() }))
    }

    /// What a template's name ends with: all that its content depends on besides the shape.
    fn suffix(machine: &Machine, boots_from: &str) -> String {
        let accel = if machine.accel == Accel::Kvm { "kvm" } else { "tcg" };
        let parts = [FORMAT.to_string().as_str(), boots_from, &warren_vmm::machine_identity(machine)].join("\0");
        format!("-{accel}-{}", short_digest(parts.as_bytes()))
    }

    /// The template for these devices, made now if there is none.
    pub(crate) async fn get(self: &Arc<Self>, devices: Devices) -> Result<Base, TemplateError> {
        let shape = devices.shape;
        let cell = {
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            made.entry(devices).or_default().clone()
        };
        let this = self.clone();
        // In a task of its own: a caller that goes away does not cut the making off.
        let making = tokio::spawn(async move { cell.get_or_try_init(|| this.find_or_make(devices)).await.cloned() });
        let failed = |problem: String| TemplateError { vcpus: shape.vcpus, memory_mib: shape.memory_mib, problem };
        joined(making).await.map_err(failed)
    }

    /// Whether the template `id` for these devices is here: another one of the same is another boot.
    pub(crate) fn has(&self, devices: Devices, id: &str) -> bool {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(base) = made.get(&devices).and_then(|cell| cell.get()) {
            return base.id == id;
        }
        drop(made);
        let state = self.dir.join(self.name(devices)).join("state");
        std::fs::read(state).is_ok_and(|state| short_digest(&state) == id)
    }

    fn name(&self, devices: Devices) -> String {
        format!("{}{}", devices.name(), self.suffix)
    }

    async fn find_or_make(&self, devices: Devices) -> Result<Base, String> {
        let template = self.files(devices).await?;
        let state = std::fs::read(&template.state).map_err(|e| format!("read the device state: {e}"))?;
        // Clocks and random numbers of the boot are in it.
        Ok(Base { template, id: short_digest(&state) })
    }

    async fn files(&self, devices: Devices) -> Result<Template, String> {
        let Devices { shape, volumes } = devices;
        let name = self.name(devices);
        let dir = self.dir.join(&name);
        let files = |dir: &Path| Template {
            memory: dir.join("memory"),
            state: dir.join("state"),
            lent: None,
            flows: Default::default(),
        };
        if dir.join("shape.json").exists() {
            return Ok(files(&dir));
        }
        let draft = self.dir.join(format!("{name}.draft"));
        let _ = std::fs::remove_dir_all(&draft);
        std::fs::create_dir(&draft).map_err(|e| format!("make {}: {e}", draft.display()))?;
        tracing::info!(vcpus = shape.vcpus, memory_mib = shape.memory_mib, volumes, "making a base template");
        let started = std::time::Instant::now();
        let made = match self.simulated {
            true => empty(&files(&draft)),
            false => self.make(devices, &draft, &files(&draft)).await,
        };
        let kept = made.and_then(|()| {
            let shape_json = serde_json::to_vec(&shape).map_err(|e| e.to_string())?;
            write_whole(&draft.join("shape.json"), &shape_json).map_err(|e| e.to_string())?;
            std::fs::rename(&draft, &dir).map_err(|e| e.to_string())
        });
        if let Err(problem) = kept {
            let _ = std::fs::remove_dir_all(&draft);
            return Err(problem);
        }
        tracing::info!(ms = started.elapsed().as_millis() as u64, "base template made");
        Ok(files(&dir))
    }

    /// Boots onto a fresh memory file, again if the guest hangs.
    async fn boot_surely(
        &self,
        devices: Devices,
        dir: &Path,
        template: &Template,
    ) -> Result<(std::fs::File, Vm), String> {
        let shape = devices.shape;
        let mut problem = String::new();
        for wait in BOOT_WAITS {
            let memory = std::fs::File::create(&template.memory).map_err(|e| e.to_string())?;
            memory.set_len(shape.memory_mib << 20).map_err(|e| e.to_string())?;
            match boot(&self.machine, devices, dir, Memory::Shared(template.memory.clone()), wait).await {
                Ok(vm) => return Ok((memory, vm)),
                Err(this) => problem = this,
            }
            tracing::warn!(vcpus = shape.vcpus, memory_mib = shape.memory_mib, %problem, "a guest did not boot");
        }
        Err(problem)
    }

    async fn make(&self, devices: Devices, dir: &Path, template: &Template) -> Result<(), String> {
        let (memory, mut vm) = self.boot_surely(devices, dir, template).await?;
        vm.save_template(&template.state).await.map_err(|e| e.to_string())?;
        vm.kill().await;
        let overlays = disks(devices).map(|disk| overlay(dir, &disk));
        // What stays behind is a few KiB that nobody reads.
        overlays.chain([dir.join(PLACEHOLDER)]).for_each(|scrap| drop(std::fs::remove_file(scrap)));
        let state = std::fs::File::open(&template.state).map_err(|e| e.to_string())?;
        let synced = tokio::task::spawn_blocking(move || memory.sync_all().and_then(|()| state.sync_all()));
        joined(synced).await.map_err(|e| e.to_string())
    }
}

fn empty(template: &Template) -> Result<(), String> {
    [&template.memory, &template.state]
        .into_iter()
        .try_for_each(|file| std::fs::write(file, ""))
        .map_err(|e| e.to_string())
}

/// What all disks of a machine are while its template is made.
const PLACEHOLDER: &str = "placeholder.raw";
/// Its length, bytes.
const PLACEHOLDER_LEN: u64 = 1 << 20;

/// Names of those disks.
fn disks(devices: Devices) -> impl Iterator<Item = String> {
    std::iter::once(ROOT_DISK.to_owned()).chain((0..devices.volumes).map(volume_disk))
}

fn overlay(dir: &Path, disk: &str) -> PathBuf {
    dir.join(format!("{disk}.qcow2"))
}

/// Boots a guest without an image until its agent answers, and closes the channel again.
pub(crate) async fn boot(
    machine: &Machine,
    devices: Devices,
    dir: &Path,
    memory: Memory,
    wait: Duration,
) -> Result<Vm, String> {
    let raw = dir.join(PLACEHOLDER);
    let text = |e: std::io::Error| e.to_string();
    std::fs::File::create(&raw).and_then(|f| f.set_len(PLACEHOLDER_LEN)).map_err(text)?;
    for path in disks(devices).map(|disk| overlay(dir, &disk)) {
        let _ = std::fs::remove_file(&path);
        create_overlay(&path, PLACEHOLDER_LEN, &[]).map_err(|e| e.to_string())?;
    }
    let root_base = DiskBase { image: ImageDisk::Raw(raw), layers: Vec::new() };
    let volume = |disk: String| {
        let (overlay, base) = (overlay(dir, &disk), root_base.clone());
        VolumeFile { disk, overlay, base, read_only: false }
    };
    let volumes = (0..devices.volumes).map(volume_disk).map(volume).collect();
    let root_overlay = overlay(dir, ROOT_DISK);
    let config = VmConfig {
        machine: machine.clone(),
        shape: devices.shape,
        files: MachineFiles { root_overlay, root_base, volumes, memory },
        incoming: false,
    };
    // The far end of the network is held open and silent.
    let (held, theirs) = std::os::unix::net::UnixStream::pair().map_err(text)?;
    let (mut vm, stdout, stderr) = Vm::spawn(dir, &config, theirs.into()).await.map_err(|e| e.to_string())?;
    let console = warren_shim::Console::default();
    console.follow(stdout);
    console.follow(stderr);
    let answered = async {
        let stream = vm.connect_guest().await.map_err(|e| e.to_string())?;
        let open = channel::open(stream, wait).await.map_err(|e| e.to_string())?;
        let status: GuestStatus =
            warren_shim::guest::ask(open.sender, hyper::Method::GET, paths::STATUS, None::<&()>, wait)
                .await
                .map_err(|e| e.to_string())?;
        open.closed.abort();
        let _ = open.closed.await;
        Ok::<GuestStatus, String>(status)
    };
    let answered = tokio::select! {
        answered = answered => answered,
        status = vm_end(&vm) => Err(status),
    };
    drop(held);
    match answered {
        Ok(status) => {
            tracing::debug!(agent_rss_kib = status.agent_rss_kib, "guest answered");
            tokio::time::sleep(SETTLE).await;
            Ok(vm)
        }
        Err(problem) => {
            vm.kill().await;
            Err(format!("{problem}\n{}", console.tail(12)))
        }
    }
}

/// Resolves when QEMU is gone; nobody waits longer for it than for the boot.
async fn vm_end(vm: &Vm) -> String {
    const LIFE_MAX: Duration = Duration::from_secs(3600);
    match vm.pid().and_then(crate::shim_client::ProcessHandle::open) {
        Some(process) => {
            process.gone(LIFE_MAX).await;
            "QEMU ended while the guest booted".to_owned()
        }
        None => "QEMU ended while the guest booted".to_owned(),
    }
}
