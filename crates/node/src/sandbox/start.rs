//! From an accepted create, or a snapshot, to a machine that runs.

use super::arriving::{self, ArrivingDisk, Source};
use super::disk::{Plan, image_disk};
use super::driver::{Driver, Over, image_lost, lost_image};
use super::volumes::{self, Bases, VolumeError};
use super::{Event, apply};
use crate::host::random;
use crate::shim_client::{self, ProcessHandle, ProcessName, ShimClient, ShimStart};
use crate::snapshots::{Origin, SnapshotLease, template_key};
use crate::template::Devices;
use base64::Engine as _;
use hyper::Method;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use warren_image::Image;
use warren_model::{EndReason, SandboxId, SandboxSpec, Shape};
use warren_proto::guest::Init;
use warren_proto::node::ImageRecord;
use warren_proto::shim::{Boot, DiskBase, ExchangeLent, Phase, SetEgress, ShimState, Template, paths};
use warren_shim::Jail;

/// Longest wait for an answer to a boot request; the start itself is followed by state.
const BOOT_ANSWER_WAIT: Duration = Duration::from_secs(30);
/// How often the progress of an image is published.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// A machine's first moment: what it is made of, ready for a shim.
struct Beginning {
    shape: Shape,
    disk: DiskBase,
    volumes: Vec<DiskBase>,
    template: Template,
    memory: Arc<File>,
}

fn failed(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> Over {
    move |e| Over::new(EndReason::StartFailed, format!("{what}: {e}"))
}

impl Driver {
    /// A sandbox's first start, from its image or from a snapshot.
    pub(super) async fn start(&mut self, spec: SandboxSpec) -> Result<(ShimClient, ShimState), Over> {
        let lease = match &spec.snapshot {
            Some(id) => {
                let gone = || Over::new(EndReason::StartFailed, format!("snapshot {id} is not on this node"));
                Some(self.services.snapshots.lease(id).ok_or_else(gone)?)
            }
            None => None,
        };
        let image = match &lease {
            Some(lease) => self.image_of_snapshot(lease)?,
            None => self.make_image_ready(&spec).await?,
        };
        let template = match lease {
            Some(_) => None,
            None => self.app_template(&spec, &image.record.digest).await,
        };
        let egress = SetEgress { policy: spec.egress.clone(), generation: 0 };
        self.folder.write_egress(&egress).map_err(|e| failed("write the network policy")(&e))?;
        let init = init_of(&self.id, spec.clone(), &image.record).map_err(|e| failed("draw random numbers")(&e))?;
        let services = self.services.clone();
        let _permit = self.unless_terminated(services.starts.acquire()).await?;
        self.tell(Event::Provisioning);
        let beginning = match (lease, template) {
            (Some(lease), _) => self.begin_from_snapshot(&image, lease).await?,
            (None, None) => self.begin_from_image(&image, &spec).await?,
            (None, Some(lease)) => {
                let id = lease.id().clone();
                match self.begin_from_snapshot(&image, lease).await {
                    Ok(beginning) => {
                        self.tell(Event::FromTemplate(id));
                        beginning
                    }
                    Err(over) if over.is_fault() => {
                        tracing::warn!(sandbox = %self.id, template = %id, problem = %over, "an app template cannot be used");
                        self.begin_from_image(&image, &spec).await?
                    }
                    Err(over) => return Err(over),
                }
            }
        };
        self.launch(beginning, &image, init, egress).await
    }

    /// The app template that stands for this start, if there is one and it can be used now.
    async fn app_template(&self, spec: &SandboxSpec, digest: &str) -> Option<SnapshotLease> {
        let services = self.services.clone();
        let lease = services.snapshots.offered(&template_key(spec, digest)?)?;
        let base = services.templates.get(Devices::of(spec.shape)).await.ok()?;
        services.snapshots.get(lease.id()).filter(|record| record.template == base.id)?;
        Some(lease)
    }

    /// Starts again, as the same sandbox, from a snapshot of its own.
    pub(super) async fn start_again(&mut self, lease: SnapshotLease) -> Result<(ShimClient, ShimState), Over> {
        let image = self.image_of_snapshot(&lease)?;
        let egress = self.folder.egress().map_err(|e| failed("read the network policy")(&e))?;
        let init = init_again(&self.id).map_err(|e| failed("draw random numbers")(&e))?;
        let services = self.services.clone();
        let _permit = self.unless_terminated(services.starts.acquire()).await?;
        let beginning = self.begin_from_snapshot(&image, lease).await?;
        self.launch(beginning, &image, init, egress).await
    }

    /// The image that a snapshot's disk lies on, with a lease.
    fn image_of_snapshot(&mut self, lease: &SnapshotLease) -> Result<Image, Over> {
        let origin =
            self.services.snapshots.origin(lease).map_err(|e| Over::new(EndReason::StartFailed, e.to_string()))?;
        let digest = origin.record.image_digest;
        let gone = || Over::new(EndReason::StartFailed, format!("image {digest} of the snapshot is not on this node"));
        let image = self.services.images.lease(&digest).ok_or_else(gone)?;
        self.intent.image_digest = Some(digest.clone());
        self.tell(Event::ImageReady { digest });
        self.lease = Some(image.lease.clone());
        Ok(image)
    }

    async fn begin_from_image(&mut self, image: &Image, spec: &SandboxSpec) -> Result<Beginning, Over> {
        let services = self.services.clone();
        let devices = Devices { shape: spec.shape, volumes: spec.volumes.len() };
        let base = self.unless_terminated(services.templates.get(devices)).await?;
        let base = base.map_err(|e| Over::new(EndReason::StartFailed, e.to_string()))?;
        let disk_failed = failed("make the sandbox's disk");
        let plan = self.unless_terminated(Plan::new(image.clone(), spec.disk_mib)).await?;
        let plan = plan.map_err(|e| disk_failed(&e))?;
        plan.make(&self.disk_path()).map_err(|e| disk_failed(&e))?;
        let volumes = self.make_volumes(spec).await?;
        self.intent.disk_bytes = plan.size();
        self.intent.template = Some(base.id);
        let memory = services.snapshots.memories.of_file(&base.template.memory).await;
        Ok(Beginning {
            shape: spec.shape,
            disk: DiskBase { image: image_disk(image, Path::new(arriving::SOCKET)), layers: Vec::new() },
            volumes,
            template: base.template,
            memory: memory.map_err(|e| failed("read the base template")(&e))?,
        })
    }

    /// Disks of volumes, and what keeps that which they lie on; known to a restart before they exist.
    async fn make_volumes(&mut self, spec: &SandboxSpec) -> Result<Vec<DiskBase>, Over> {
        if spec.volumes.is_empty() {
            return Ok(Vec::new());
        }
        let failed = |e: &dyn std::fmt::Display| Over::new(EndReason::StartFailed, e.to_string());
        let services = self.services.clone();
        let bases = self.unless_terminated(Bases::find(&services.images, &spec.volumes)).await?;
        let bases = bases.map_err(|e: VolumeError| failed(&e))?;
        self.intent.volumes = bases.digests();
        self.folder.write_intent(&self.intent).map_err(|e| failed(&e))?;
        bases.make_disks(&spec.volumes, &self.folder.vm()).await.map_err(|e| failed(&e))?;
        let disks = bases.disks();
        self.volume_leases = bases.leases();
        Ok(disks)
    }

    /// Takes up again what keeps that which its volumes lie on.
    pub(super) fn lease_volumes(&mut self) -> Result<(), String> {
        let leases = volumes::leases(&self.services.images, &self.intent.volumes);
        let gone = || "what one of its volumes lies on is not on this node any more".to_owned();
        leases.map(|leases| self.volume_leases = leases).ok_or_else(gone)
    }

    async fn begin_from_snapshot(&mut self, image: &Image, lease: SnapshotLease) -> Result<Beginning, Over> {
        let services = self.services.clone();
        let unusable = |e: &dyn std::fmt::Display| Over::new(EndReason::StartFailed, e.to_string());
        let Origin { record, layers, .. } = services.snapshots.origin(&lease).map_err(|e| unusable(&e))?;
        let base = self
            .unless_terminated(services.templates.get(Devices::of(record.shape)))
            .await?
            .map_err(|e| unusable(&e))?;
        if base.id != record.template {
            return Err(unusable(&format!(
                "snapshot {} was taken on another version of QEMU, kernel, agent or processor",
                record.id
            )));
        }
        let origin = services.snapshots.origin(&lease).map_err(|e| unusable(&e))?;
        let memory = self.unless_terminated(services.snapshots.memory(&origin, &base.template.memory)).await?;
        let memory = memory.map_err(|e| unusable(&e))?;
        warren_vmm::create_overlay(&self.disk_path(), record.disk_bytes, &[]).map_err(|e| unusable(&e))?;
        self.intent.disk_bytes = record.disk_bytes;
        self.intent.template = Some(record.template);
        self.intent.has_start_command = record.has_start_command;
        self.intent.memory_on = Some(record.id.clone());
        self.intent.disk_on = Some(record.id);
        self.needs = vec![lease];
        let lent = ExchangeLent { pieces: record.lent, bytes: origin.lent };
        Ok(Beginning {
            shape: record.shape,
            disk: DiskBase { image: image_disk(image, Path::new(arriving::SOCKET)), layers },
            // Nor had the sandbox any that the snapshot was taken of.
            volumes: Vec::new(),
            template: Template {
                memory: base.template.memory,
                state: origin.state,
                lent: Some(lent),
                flows: record.flows,
            },
            memory,
        })
    }

    fn disk_path(&self) -> PathBuf {
        self.folder.vm().join(warren_shim::DISK_FILE)
    }

    /// Starts a shim, has it boot, and waits until the guest takes requests.
    async fn launch(
        &mut self,
        beginning: Beginning,
        image: &Image,
        init: Init,
        egress: SetEgress,
    ) -> Result<(ShimClient, ShimState), Over> {
        let services = self.services.clone();
        let Beginning { shape, disk, volumes, mut template, memory } = beginning;
        self.intent.layers_had = 0;
        self.intent.image_served = image.arrival.is_some();
        if self.intent.image_served {
            self.serve_image(image).map_err(|e| failed("make the sandbox's disk")(&e))?;
        }
        let failed = failed("start the shim");
        let jail = self.jail(&template, &disk, image).map_err(|e| failed(&e))?;
        template.memory = ShimStart::memory_path();
        let start = ShimStart { jail, memory };
        let pid = shim_client::spawn(&services.warren, self.folder.path(), start).map_err(|e| failed(&e))?;
        self.processes.extend(ProcessHandle::open(pid));
        // A crash before this is written leaves a shim that was never asked to boot, which ends by itself.
        self.intent.shim = ProcessName::of(pid);
        self.folder.write_intent(&self.intent).map_err(|e| failed(&e))?;
        let client = ShimClient::connect(self.folder.path()).await.map_err(|e| failed(&e))?;
        // Requests wait until it runs.
        self.starting = Some(client.clone());
        let machine = services.machine.clone();
        let boot = Boot { machine, shape, template: Some(template), disk, volumes, egress, init };
        let state: ShimState =
            client.call(Method::POST, paths::BOOT, Some(&boot), BOOT_ANSWER_WAIT).await.map_err(|e| failed(&e))?;
        let state = self.follow_start(&client, state).await?;
        Ok((client, state))
    }

    /// Where the shim is locked in, if this node can: the VM's folder is given to the user that it becomes.
    fn jail(&mut self, template: &Template, disk: &DiskBase, image: &Image) -> std::io::Result<Option<Jail>> {
        let services = self.services.clone();
        let Some(uids) = &services.uids else { return Ok(None) };
        let uid = match &self.uid {
            Some(taken) => taken.number(),
            None => {
                let taken = uids.take().ok_or_else(|| std::io::Error::other("no user is free to run it"))?;
                self.uid.insert(taken).number()
            }
        };
        self.intent.uid = Some(uid);
        self.folder.write_intent(&self.intent)?;
        self.folder.give_vm_to(uid)?;
        let machine = &services.machine;
        let mut readable = vec![
            machine.kernel.clone(),
            machine.initramfs.clone(),
            machine.tools_disk.clone(),
            template.state.clone(),
            image.disk.file().to_owned(),
        ];
        readable.extend(disk.layers.iter().cloned());
        readable.extend(template.lent.iter().filter_map(|lent| lent.bytes.clone()));
        // QEMU's own files lie beside its folder of programs.
        let prefix = machine.qemu.parent().and_then(Path::parent);
        readable.extend(prefix.filter(|prefix| *prefix != Path::new("/")).map(Path::to_owned));
        Ok(Some(Jail { uid, readable }))
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
            if state.phase != Phase::Running {
                self.tell(Event::Shim(state.clone()));
            }
        }
        Ok(state)
    }

    /// The VMM reads the image through us, now and after each restart of the node.
    pub(super) fn serve_image(&mut self, image: &Image) -> std::io::Result<()> {
        self.folder.write_intent(&self.intent)?;
        self.served = Some(ArrivingDisk::serve(self.folder.path(), &self.folder.vm(), Source::of(image))?);
        Ok(())
    }

    async fn make_image_ready(&mut self, spec: &SandboxSpec) -> Result<Image, Over> {
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
}

/// What makes the guest this sandbox's own, secrets included; it travels over a socket only.
fn init_of(id: &SandboxId, spec: SandboxSpec, image: &ImageRecord) -> std::io::Result<Init> {
    let mut env = image.env.clone();
    env.extend(spec.env);
    env.extend(spec.secrets);
    Ok(Init {
        env,
        mounts: volumes::mounts(&spec.volumes),
        workdir: image.workdir.clone(),
        user: image.user.clone(),
        start_command: spec.start_command.map(|c| std::iter::once(c.executable).chain(c.args).collect()),
        ..init_again(id)?
    })
}

/// The same for a guest that is this sandbox already: all else is in its memory.
fn init_again(id: &SandboxId) -> std::io::Result<Init> {
    let machine_id: [u8; 16] = random()?;
    Ok(Init {
        sandbox_id: id.to_string(),
        hostname: id.to_string(),
        // The shim fills this in at the last moment.
        now_unix_nanos: 0,
        entropy: base64::engine::general_purpose::STANDARD.encode(random::<64>()?),
        machine_id: machine_id.iter().map(|b| format!("{b:02x}")).collect(),
        env: Default::default(),
        workdir: None,
        user: None,
        start_command: None,
        // The shim owns the network and fills this in.
        network: None,
        mounts: Vec::new(),
    })
}
