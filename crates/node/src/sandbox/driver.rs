//! The one task that owns a sandbox on this node.

use super::arriving::{self, ArrivingDisk, Source};
use super::disk::Plan;
use super::uids::{TakenUid, Uids};
use super::volumes::{self, Bases, VolumeError};
use super::{Activity, Event, Folder, Intent, apply};
use crate::checkpoint::Checkpoints;
use crate::ended::{Ended, EndedRecords};
use crate::expiry::{self, Clocks};
use crate::host::{now_ms, random};
use crate::sealed::SealedMemories;
use crate::shim_client::{self, JailedStart, ProcessHandle, ProcessName, ShimClient};
use crate::template::{Devices, Templates};
use base64::Engine as _;
use hyper::Method;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};
use warren_model::{EndReason, SandboxId, SandboxSpec};
use warren_proto::guest::Init;
use warren_proto::node::{ImageRecord, Observation};
use warren_proto::shim::{Boot, End, Machine, Phase, ShimState, Template, Terminate, paths};
use warren_shim::Jail;

/// Time for a start command between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// Longest wait for a shim to end its machine, on top of the grace.
const TERMINATE_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for a killed process to be gone.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for an answer to a boot request; the start itself is followed by state.
const BOOT_ANSWER_WAIT: Duration = Duration::from_secs(30);
/// How often the progress of an image is published.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// Pause between two looks at a shim that refuses to answer but lives.
const STATE_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// What locked-in shims are and start from.
#[derive(Default)]
pub(crate) struct Jails {
    uids: Arc<Uids>,
    memories: SealedMemories,
}

/// What the driver of each sandbox uses.
pub(crate) struct Services {
    pub(crate) warren: PathBuf,
    pub(crate) machine: Machine,
    pub(crate) images: warren_image::Store,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) templates: Arc<Templates>,
    /// Starts that may run at once.
    pub(crate) starts: Semaphore,
    pub(crate) ended: EndedRecords,
    /// `None` where shims are not locked in.
    pub(crate) jails: Option<Jails>,
    pub(crate) observations: broadcast::Sender<Observation>,
}

/// Somebody who wants it ended: why, and whom to tell.
type Termination = (EndReason, String, oneshot::Sender<()>);

/// Whom to tell once nothing of a sandbox is left and the node knows it as ended.
pub(crate) type Waiters = Vec<oneshot::Sender<()>>;

/// What the rest of the node holds of a sandbox.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) seen: Arc<Mutex<Observation>>,
    pub(crate) shim: watch::Receiver<Option<ShimClient>>,
    pub(crate) activity: Activity,
    pub(crate) terminate: mpsc::Sender<Termination>,
    pub(crate) memory_mib: u64,
    /// Digests of what its volumes lie on.
    pub(crate) volumes: Arc<Mutex<Vec<String>>>,
    /// Held while its disk is being frozen.
    pub(crate) freezing: Arc<tokio::sync::Mutex<()>>,
}

impl Handle {
    pub(crate) fn observation(&self) -> Observation {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The owner of one sandbox.
pub(crate) struct Driver {
    id: SandboxId,
    folder: Folder,
    intent: Intent,
    services: Arc<Services>,
    handle: Handle,
    shim: watch::Sender<Option<ShimClient>>,
    terminations: mpsc::Receiver<Termination>,
    /// Keeps the image's bytes while the sandbox needs them.
    lease: Option<warren_image::Lease>,
    /// The same for what its volumes lie on.
    volume_leases: Vec<warren_image::Lease>,
    /// What its VMM reads an image through that was still arriving at the start.
    served: Option<ArrivingDisk>,
    /// The user that the shim and its VMM are, where they are locked in.
    uid: Option<TakenUid>,
    processes: Vec<ProcessHandle>,
    waiters: Waiters,
}

/// A sandbox that a run before left running.
pub(crate) struct Adopted {
    pub(crate) client: ShimClient,
    pub(crate) state: ShimState,
    pub(crate) shim: Option<ProcessHandle>,
    /// The image that it runs.
    pub(crate) image: Option<warren_image::Image>,
}

/// Why a sandbox is over.
struct Over {
    reason: EndReason,
    message: String,
}

impl Over {
    fn new(reason: EndReason, message: impl Into<String>) -> Over {
        Over { reason, message: message.into() }
    }
}

impl Driver {
    pub(crate) fn new(id: SandboxId, folder: Folder, intent: Intent, services: Arc<Services>) -> (Driver, Handle) {
        // A few callers may want it ended at once; more of them wait their turn.
        const TERMINATIONS_QUEUED_MAX: usize = 8;
        let (terminate, terminations) = mpsc::channel(TERMINATIONS_QUEUED_MAX);
        let (shim, shims) = watch::channel(None);
        let handle = Handle {
            seen: Arc::new(Mutex::new(super::pending(id.clone()))),
            shim: shims,
            activity: Activity::new(),
            terminate,
            memory_mib: intent.shape.memory_mib,
            volumes: Arc::new(Mutex::new(intent.volumes.clone())),
            freezing: Arc::default(),
        };
        let driver = Driver {
            id,
            folder,
            intent,
            services,
            handle: handle.clone(),
            shim,
            terminations,
            lease: None,
            volume_leases: Vec::new(),
            served: None,
            uid: None,
            processes: Vec::new(),
            waiters: Vec::new(),
        };
        (driver, handle)
    }

    fn tell(&self, event: Event) {
        let mut seen = self.handle.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if apply(&mut seen, event) {
            // Nobody may be listening yet: `list` gives the same.
            let _ = self.services.observations.send(seen.clone());
        }
    }

    /// From an accepted create to the end.
    pub(crate) async fn create(mut self, spec: SandboxSpec) -> Waiters {
        let over = match self.start(spec).await {
            Ok((client, state)) => self.keep(client, state).await,
            Err(over) => over,
        };
        self.finish(over).await
    }

    /// From an adoption to the end.
    pub(crate) async fn adopt(mut self, adopted: Adopted) -> Waiters {
        self.lease = adopted.image.as_ref().map(|image| image.lease.clone());
        self.uid = self.intent.uid.zip(self.services.jails.as_ref()).map(|(uid, jails)| jails.uids.take_again(uid));
        if let Some(digest) = self.intent.image_digest.clone() {
            self.tell(Event::ImageReady { digest });
        }
        self.processes.extend(adopted.shim);
        let served = match &adopted.image {
            Some(image) if self.intent.image_served => self.serve_image(image).map_err(|error| error.to_string()),
            None if self.intent.image_digest.is_some() => Err("it is not on this node any more".to_owned()),
            _ => Ok(()),
        };
        let volumes = volumes::leases(&self.services.images, &self.intent.volumes);
        let served = served.and(volumes.map(|leases| self.volume_leases = leases).ok_or_else(volume_gone));
        let over = match adopted.state.phase {
            _ if served.is_err() => {
                self.shim.send_replace(Some(adopted.client));
                image_lost(&served.err().unwrap_or_default())
            }
            Phase::Running => self.keep(adopted.client, adopted.state).await,
            _ => {
                self.shim.send_replace(Some(adopted.client));
                Over::new(EndReason::StartFailed, "the node was restarted while the sandbox was being started")
            }
        };
        self.finish(over).await
    }

    /// Waits for `work`, unless somebody wants the sandbox ended first.
    async fn unless_terminated<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Over> {
        tokio::select! {
            biased;
            Some((reason, message, done)) = self.terminations.recv() => {
                self.waiters.push(done);
                Err(Over { reason, message })
            }
            value = work => Ok(value),
        }
    }

    async fn start(&mut self, spec: SandboxSpec) -> Result<(ShimClient, ShimState), Over> {
        let image = self.make_image_ready(&spec).await?;
        let services = self.services.clone();
        let permit = self.unless_terminated(services.starts.acquire()).await?;
        self.tell(Event::Provisioning);
        let devices = Devices { shape: spec.shape, volumes: spec.volumes.len() };
        let template = self.unless_terminated(services.templates.get(devices)).await?;
        let mut template = template.map_err(|e| Over::new(EndReason::StartFailed, e.to_string()))?;
        let overlay = self.folder.vm().join(warren_shim::DISK_FILE);
        let disk_failed =
            |e: &dyn std::fmt::Display| Over::new(EndReason::StartFailed, format!("make the sandbox's disk: {e}"));
        let plan = self.unless_terminated(Plan::new(image.clone(), spec.disk_mib)).await?;
        plan.and_then(|plan| plan.make(&overlay, Path::new(arriving::SOCKET))).map_err(|e| disk_failed(&e))?;
        self.make_volumes(&spec).await?;
        if image.arrival.is_some() {
            self.intent.image_served = true;
            self.serve_image(&image).map_err(|e| disk_failed(&e))?;
        }
        let failed = |e: &dyn std::fmt::Display| Over::new(EndReason::StartFailed, format!("start the shim: {e}"));
        let jail = self.jail(&mut template, image.disk.file().to_owned()).await.map_err(|e| failed(&e))?;
        let pid = shim_client::spawn(&services.warren, self.folder.path(), jail).map_err(|e| failed(&e))?;
        self.processes.extend(ProcessHandle::open(pid));
        // A crash before this is written leaves a shim that was never asked to boot, which ends by itself.
        self.intent.shim = ProcessName::of(pid);
        self.folder.write_intent(&self.intent).map_err(|e| failed(&e))?;
        let client = ShimClient::connect(self.folder.path()).await.map_err(|e| failed(&e))?;
        self.shim.send_replace(Some(client.clone()));
        let boot = boot_request(&self.id, spec, &image.record, &services.machine, template).map_err(|e| failed(&e))?;
        let state: ShimState =
            client.call(Method::POST, paths::BOOT, Some(&boot), BOOT_ANSWER_WAIT).await.map_err(|e| failed(&e))?;
        let state = self.follow_start(&client, state).await?;
        drop(permit);
        Ok((client, state))
    }

    /// Their disks, and what keeps that which they lie on; known to a restart before they exist.
    async fn make_volumes(&mut self, spec: &SandboxSpec) -> Result<(), Over> {
        if spec.volumes.is_empty() {
            return Ok(());
        }
        let failed = |e: &dyn std::fmt::Display| Over::new(EndReason::StartFailed, e.to_string());
        let services = self.services.clone();
        let bases = self.unless_terminated(Bases::find(&services.images, &spec.volumes)).await?;
        let bases = bases.map_err(|e: VolumeError| failed(&e))?;
        self.intent.volumes = bases.digests();
        self.handle.volumes.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.intent.volumes);
        self.folder.write_intent(&self.intent).map_err(|e| failed(&e))?;
        self.volume_leases = bases.make_disks(&spec.volumes, &self.folder.vm()).await.map_err(|e| failed(&e))?;
        Ok(())
    }

    /// Where the shim is locked in, if this node can: the VM's folder is given to the user that it becomes, and `template` starts from
    /// memory that is handed to it.
    async fn jail(&mut self, template: &mut Template, image_file: PathBuf) -> std::io::Result<Option<JailedStart>> {
        let services = self.services.clone();
        let Some(jails) = &services.jails else { return Ok(None) };
        let taken = jails.uids.take().ok_or_else(|| std::io::Error::other("no user is free to run it"))?;
        let uid = self.uid.insert(taken).number();
        self.intent.uid = Some(uid);
        self.folder.write_intent(&self.intent)?;
        self.folder.give_vm_to(uid)?;
        let memory = jails.memories.get(&template.memory).await?;
        template.memory = JailedStart::memory_path();
        let machine = &services.machine;
        let mut readable = vec![
            machine.kernel.clone(),
            machine.initramfs.clone(),
            machine.tools_disk.clone(),
            template.state.clone(),
            image_file,
        ];
        // QEMU's own files lie beside its folder of programs.
        let prefix = machine.qemu.parent().and_then(Path::parent);
        readable.extend(prefix.filter(|prefix| *prefix != Path::new("/")).map(Path::to_owned));
        Ok(Some(JailedStart { jail: Jail { uid, readable }, memory }))
    }

    async fn follow_start(&mut self, client: &ShimClient, mut state: ShimState) -> Result<ShimState, Over> {
        while state.phase != Phase::Running {
            let mut served = self.served.take();
            let next = async {
                tokio::select! {
                    next = client.state_after(state.version) => Ok(next),
                    problem = lost_image(&mut served) => Err(image_lost(&problem)),
                }
            };
            let next = self.unless_terminated(next).await;
            self.served = served;
            state = match next?? {
                Ok(next) if next.phase != Phase::Ended => next,
                _ => return Err(self.shim_ended(client).await),
            };
            self.tell(Event::Shim(state.clone()));
        }
        Ok(state)
    }

    /// The VMM reads the image through us, now and after each restart of the node.
    fn serve_image(&mut self, image: &warren_image::Image) -> std::io::Result<()> {
        self.folder.write_intent(&self.intent)?;
        self.served = Some(ArrivingDisk::serve(self.folder.path(), &self.folder.vm(), Source::of(image))?);
        Ok(())
    }

    async fn make_image_ready(&mut self, spec: &SandboxSpec) -> Result<warren_image::Image, Over> {
        let services = self.services.clone();
        let (seen, observations) = (self.handle.seen.clone(), services.observations.clone());
        let images = services.images.clone();
        let ensure = async {
            let ensure = images.ensure(&spec.image, &spec.image_access, warren_image::Ask::IfStale);
            let mut ensure = std::pin::pin!(ensure);
            loop {
                tokio::select! {
                    image = ensure.as_mut() => return image,
                    () = tokio::time::sleep(PROGRESS_EVERY) => {
                        let build = images.build_for(&spec.image);
                        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                        if apply(&mut seen, Event::ImageBuild(build)) {
                            let _ = observations.send(seen.clone());
                        }
                    }
                }
            }
        };
        let image = self.unless_terminated(ensure).await?;
        let image = image.map_err(|e| {
            let reason = if matches!(e.code, "no_space" | "failed") {
                EndReason::StartFailed
            } else {
                EndReason::ImagePullFailed
            };
            Over::new(reason, format!("{e} ({})", e.code))
        })?;
        self.intent.image_digest = Some(image.record.digest.clone());
        let written = self.folder.write_intent(&self.intent);
        written.map_err(|e| Over::new(EndReason::StartFailed, format!("write the intent: {e}")))?;
        self.tell(Event::ImageReady { digest: image.record.digest.clone() });
        self.lease = Some(image.lease.clone());
        Ok(image)
    }

    /// Keeps a running sandbox until something ends it.
    async fn keep(&mut self, mut client: ShimClient, mut state: ShimState) -> Over {
        self.processes.extend(state.vmm_pid.and_then(ProcessHandle::open));
        self.shim.send_replace(Some(client.clone()));
        self.tell(Event::Shim(state.clone()));
        let activity = self.handle.activity.clone();
        loop {
            let deadline = self.next_expiry(&state);
            let expiry = async {
                match deadline {
                    Some((at_ms, _)) => tokio::time::sleep(Duration::from_millis(at_ms.saturating_sub(now_ms()))).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some((reason, message, done)) = self.terminations.recv() => {
                    self.waiters.push(done);
                    return Over { reason, message };
                }
                () = client.gone() => match self.reconnect().await {
                    Some((again, next)) => {
                        (client, state) = (again, next);
                        self.shim.send_replace(Some(client.clone()));
                        self.tell(Event::Shim(state.clone()));
                    }
                    None => return self.shim_ended(&client).await,
                },
                next = client.state_after(state.version) => match next {
                    Ok(next) if next.phase == Phase::Ended => return self.shim_ended(&client).await,
                    Ok(next) => {
                        state = next;
                        self.tell(Event::Shim(state.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(sandbox = %self.id, %error, "the shim gave no state");
                        tokio::time::sleep(STATE_RETRY_PAUSE).await;
                    }
                },
                problem = lost_image(&mut self.served) => return image_lost(&problem),
                () = activity.changed() => {}
                () = expiry => {
                    // What was true when the timer was set may not be any more.
                    if let Some((at_ms, reason)) = self.next_expiry(&state)
                        && at_ms <= now_ms()
                    {
                        return Over::new(reason, self.expiry_message(reason));
                    }
                }
            }
        }
    }

    fn next_expiry(&self, state: &ShimState) -> Option<(u64, EndReason)> {
        let (active, last_activity_ms) = self.handle.activity.now();
        let started_at_ms = state.running_since_ms.unwrap_or_else(now_ms);
        expiry::next(self.intent.timeout, self.intent.idle_timeout, Clocks { started_at_ms, active, last_activity_ms })
    }

    fn expiry_message(&self, reason: EndReason) -> String {
        let minutes = |d: Option<Duration>| d.unwrap_or_default().as_secs() / 60;
        match reason {
            EndReason::Idle => format!("no operation was active for {} minutes", minutes(self.intent.idle_timeout)),
            _ => format!("the lifetime of {} minutes is over", minutes(self.intent.timeout)),
        }
    }

    /// A lost connection is no lost shim: one that lives takes the next connection.
    async fn reconnect(&self) -> Option<(ShimClient, ShimState)> {
        let client = ShimClient::connect(self.folder.path()).await.ok()?;
        let state = client.state_after(0).await.ok().filter(|state| state.phase == Phase::Running)?;
        tracing::warn!(sandbox = %self.id, "the connection to the shim was lost and made again");
        Some((client, state))
    }

    /// The shim has ended by itself: its own word counts, else it was killed.
    async fn shim_ended(&mut self, client: &ShimClient) -> Over {
        let _ = tokio::time::timeout(KILL_WAIT, client.gone()).await;
        match self.folder.end() {
            Some(end) => Over { reason: end.reason, message: end.message },
            None => Over::new(EndReason::VmmDied, "the sandbox's shim was killed"),
        }
    }

    /// Ends what is left, keeps how it ended, removes every trace, and tells everybody.
    async fn finish(mut self, over: Over) -> Waiters {
        let client = self.shim.send_replace(None);
        if let Some(client) = client {
            self.end_shim(&client, &over).await;
        }
        for process in &self.processes {
            if !process.is_gone() {
                process.kill();
                if !process.gone(KILL_WAIT).await {
                    tracing::error!(sandbox = %self.id, "a killed process is still there");
                }
            }
        }
        let said = self.folder.end();
        let end = End {
            reason: over.reason,
            message: over.message,
            at_ms: said.as_ref().map_or_else(now_ms, |e| e.at_ms),
            exit_code: said.as_ref().and_then(|e| e.exit_code),
            logs: said.map(|e| e.logs).unwrap_or_default(),
        };
        let seen = self.handle.observation();
        let record = Ended {
            id: self.id.to_string(),
            image_digest: seen.image_digest,
            started_at_ms: seen.started_at_ms,
            last_oom: seen.last_oom,
            end: end.clone(),
        };
        if let Err(error) = self.services.ended.put(&self.id, &record) {
            tracing::error!(sandbox = %self.id, %error, "keep how a sandbox ended");
        }
        self.folder.remove();
        // First what reads the image, then what keeps it.
        self.served = None;
        self.lease = None;
        self.volume_leases.clear();
        tracing::info!(sandbox = %self.id, reason = ?end.reason, message = %end.message, "ended");
        self.tell(Event::Ended(end));
        self.terminations.close();
        while let Some((_, _, done)) = self.terminations.recv().await {
            self.waiters.push(done);
        }
        self.waiters
    }

    /// Asks the shim to end its machine; one that does not is killed afterwards.
    async fn end_shim(&self, client: &ShimClient, over: &Over) {
        let grace = if self.intent.has_start_command { GRACE } else { Duration::ZERO };
        let request =
            Terminate { reason: over.reason, message: over.message.clone(), grace_ms: grace.as_millis() as u64 };
        let wait = grace + TERMINATE_WAIT;
        let asked: Result<ShimState, _> = client.call(Method::POST, paths::TERMINATE, Some(&request), wait).await;
        if asked.is_ok() {
            let _ = tokio::time::timeout(KILL_WAIT, client.gone()).await;
            for process in &self.processes {
                process.gone(KILL_WAIT).await;
            }
        }
    }
}

/// Waits until part of an image that is read through us cannot be had.
async fn lost_image(served: &mut Option<ArrivingDisk>) -> String {
    match served {
        Some(served) => served.failed().await,
        None => std::future::pending().await,
    }
}

fn volume_gone() -> String {
    "what one of its volumes lies on is not on this node any more".to_owned()
}

fn image_lost(problem: &str) -> Over {
    Over::new(EndReason::NodeLost, format!("the sandbox's image cannot be read: {problem}"))
}

/// Everything that the shim needs, secrets included; it travels over a socket only.
fn boot_request(
    id: &SandboxId,
    spec: SandboxSpec,
    image: &ImageRecord,
    machine: &Machine,
    template: Template,
) -> std::io::Result<Boot> {
    let mut env = image.env.clone();
    env.extend(spec.env);
    env.extend(spec.secrets);
    let machine_id: [u8; 16] = random()?;
    let init = Init {
        sandbox_id: id.to_string(),
        hostname: id.to_string(),
        now_unix_nanos: 0,
        entropy: base64::engine::general_purpose::STANDARD.encode(random::<64>()?),
        machine_id: machine_id.iter().map(|b| format!("{b:02x}")).collect(),
        env,
        workdir: image.workdir.clone(),
        user: image.user.clone(),
        start_command: spec.start_command.map(|c| std::iter::once(c.executable).chain(c.args).collect()),
        // The shim owns the network and fills this in.
        network: None,
        mounts: volumes::mounts(&spec.volumes),
    };
    Ok(Boot { machine: machine.clone(), shape: spec.shape, template: Some(template), egress: spec.egress, init })
}
