//! A node without machines: each sandbox is a timer that goes through the states of a life as its script says.

mod turns;

use async_trait::async_trait;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::broadcast;
use turns::{end, expect};
use warren_model::egress::EgressPolicy;
use warren_model::{CheckpointId, EndReason, ImageAccess, SandboxId, SandboxSpec, SnapshotId, Status};
use warren_proto::guest::JobState;
use warren_proto::node::{
    BuildOrder, CheckpointMade, CheckpointState, CreateError, ImageBuild, ImageError, ImageGc, ImageRecord, NodeApi,
    NodeError, NodeInfo, Observation, SnapshotError, SnapshotInfo, TokenKey, limits,
};

/// How one simulated sandbox goes.
#[derive(Debug, Clone)]
pub struct Life {
    /// Time until `create` answers.
    pub accept: Duration,
    /// What `create` refuses with, if it does.
    pub refuse: Option<CreateError>,
    /// Time in PENDING with an image build, if its image is not ready.
    pub build: Option<Duration>,
    /// Time in PROVISIONING.
    pub start: Duration,
    /// Why it never runs: reason, message.
    pub fail: Option<(EndReason, String)>,
    /// How it ends by itself: time after the start, reason, message.
    pub end: Option<(Duration, EndReason, String)>,
}

impl Default for Life {
    /// Runs at once, without end.
    fn default() -> Self {
        Life { accept: Duration::ZERO, refuse: None, build: None, start: Duration::ZERO, fail: None, end: None }
    }
}

type Script = dyn Fn(&SandboxSpec) -> Life + Send + Sync;

/// A simulated node. Cheap to clone; clones are one node, which outlives a control plane that is restarted.
#[derive(Clone)]
pub struct SimNode {
    inner: Arc<Inner>,
}

struct Inner {
    script: Box<Script>,
    state: Mutex<State>,
    changes: broadcast::Sender<Observation>,
    key: TokenKey,
    mute: AtomicBool,
    creates: AtomicU64,
    terminates_to_fail: AtomicU64,
}

#[derive(Default)]
struct State {
    sandboxes: HashMap<SandboxId, Sandbox>,
    terminated: HashSet<SandboxId>,
    images: HashMap<String, ImageRecord>,
    jobs: HashMap<(SandboxId, String), JobState>,
    capacity: Option<usize>,
    digests: HashMap<String, String>,
    snapshots: BTreeMap<SnapshotId, SnapshotInfo>,
    offered: HashSet<SnapshotId>,
    build_time: Duration,
    checkpoints: HashMap<CheckpointId, CheckpointState>,
    dockerfile: String,
    order: Option<BuildOrder>,
}

struct Sandbox {
    spec: SandboxSpec,
    seen: Observation,
}

impl SimNode {
    /// A node on which every sandbox goes as `script` says.
    pub fn new(script: impl Fn(&SandboxSpec) -> Life + Send + Sync + 'static) -> Self {
        let inner = Inner {
            script: Box::new(script),
            state: Mutex::default(),
            changes: broadcast::channel(limits::OBSERVATIONS_QUEUED_MAX).0,
            key: TokenKey::new([5; 32]),
            mute: AtomicBool::new(false),
            creates: AtomicU64::new(0),
            terminates_to_fail: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Most sandboxes that live at once from now on; `None` is unlimited.
    pub fn set_capacity(&self, capacity: Option<usize>) {
        self.lock().capacity = capacity;
    }

    /// Whether observations are lost from now on.
    pub fn set_mute(&self, mute: bool) {
        self.inner.mute.store(mute, Ordering::SeqCst);
    }

    /// The next `count` calls of `terminate` get no answer.
    pub fn fail_terminates(&self, count: u64) {
        self.inner.terminates_to_fail.store(count, Ordering::SeqCst);
    }

    /// Calls of `create` so far.
    pub fn creates(&self) -> u64 {
        self.inner.creates.load(Ordering::SeqCst)
    }

    /// Sandboxes that live now.
    pub fn live(&self) -> Vec<SandboxId> {
        let state = self.lock();
        let live = state.sandboxes.iter().filter(|(_, sandbox)| !sandbox.seen.status.is_terminal());
        live.map(|(id, _)| id.clone()).collect()
    }

    /// The spec with which a sandbox was created.
    pub fn spec(&self, id: &SandboxId) -> Option<SandboxSpec> {
        self.lock().sandboxes.get(id).map(|sandbox| sandbox.spec.clone())
    }

    /// Loses a sandbox without a word, as a machine does that is set up anew.
    pub fn lose(&self, id: &SandboxId) {
        self.lock().sandboxes.remove(id);
    }

    /// Ends a sandbox from inside.
    pub fn end(&self, id: &SandboxId, reason: EndReason, message: &str) {
        self.change(id, |seen| end(seen, reason, message));
    }

    /// Has something killed for lack of memory in the guest.
    pub fn oom(&self, id: &SandboxId, text: &str) {
        self.change(id, |seen| seen.last_oom = Some(text.to_owned()));
    }

    /// Puts a background job into a sandbox.
    pub fn put_job(&self, id: &SandboxId, job_id: &str, state: JobState) {
        self.lock().jobs.insert((id.clone(), job_id.to_owned()), state);
    }

    /// What a registry says of a reference from now on.
    pub fn set_digest(&self, reference: &str, digest: &str) {
        self.lock().digests.insert(reference.to_owned(), digest.to_owned());
    }

    /// How long a build of a Dockerfile takes from now on.
    pub fn set_build_time(&self, time: Duration) {
        self.lock().build_time = time;
    }

    /// The Dockerfile of the next build.
    pub fn set_dockerfile(&self, text: &str) {
        text.clone_into(&mut self.lock().dockerfile);
    }

    /// What was built last.
    pub fn last_order(&self) -> Option<BuildOrder> {
        self.lock().order.clone()
    }

    /// Names of images that are here.
    pub fn image_names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.lock().images.keys().cloned().collect();
        names.sort();
        names
    }

    /// Checkpoints that the node keeps, each with its state.
    pub fn checkpoints(&self) -> Vec<(CheckpointId, CheckpointState)> {
        let mut all: Vec<_> = self.lock().checkpoints.clone().into_iter().collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// What becomes of a checkpoint that is pending; [`CheckpointState::Pending`] leaves it so.
    pub fn set_checkpoint(&self, id: &CheckpointId, state: CheckpointState) {
        self.lock().checkpoints.insert(id.clone(), state);
    }

    /// A checkpoint of the simulation, durable.
    pub fn durable() -> CheckpointState {
        CheckpointState::Durable(CheckpointMade {
            digest: format!("sha256:{}", "5".repeat(64)),
            disk_size_bytes: 5 << 30,
            stored_bytes: 1 << 20,
            occupied_bytes: 3 << 20,
        })
    }

    async fn until_ended(&self, id: &SandboxId) {
        let mut changes = self.observe();
        while self.live().contains(id) {
            // A lag is as good as a change.
            let _ = changes.recv().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a live sandbox and tells; `false` if it does not live.
    fn change(&self, id: &SandboxId, change: impl FnOnce(&mut Observation)) -> bool {
        let mut state = self.lock();
        let Some(sandbox) = state.sandboxes.get_mut(id).filter(|s| !s.seen.status.is_terminal()) else { return false };
        change(&mut sandbox.seen);
        self.tell(&sandbox.seen);
        true
    }

    fn tell(&self, seen: &Observation) {
        if !self.inner.mute.load(Ordering::SeqCst) {
            // Nobody may be listening.
            let _ = self.inner.changes.send(seen.clone());
        }
    }

    async fn live_on(self, id: SandboxId, image: String, scope: Option<String>, life: Life) {
        if let Some(time) = life.build {
            let build = ImageBuild {
                id: format!("build-{image}"),
                reference: image,
                step: "converting".to_owned(),
                bytes_done: 0,
                bytes_total: None,
                layers_done: 0,
                layers_total: None,
                waiting: None,
                scope,
            };
            self.change(&id, |seen| seen.image_build = Some(build));
            tokio::time::sleep(time).await;
        }
        if let Some((reason, message)) = life.fail {
            self.end(&id, reason, &message);
            return;
        }
        self.change(&id, |seen| {
            seen.image_build = None;
            seen.image_digest = Some("sha256:5151".to_owned());
            seen.status = Status::Provisioning;
        });
        tokio::time::sleep(life.start).await;
        self.change(&id, |seen| {
            seen.status = Status::Running;
            seen.started_at_ms = Some(now_ms());
        });
        if let Some((time, reason, message)) = life.end {
            tokio::time::sleep(time).await;
            self.end(&id, reason, &message);
        }
    }
}

impl Default for SimNode {
    /// Every sandbox runs at once, without end.
    fn default() -> Self {
        Self::new(|_| Life::default())
    }
}

#[async_trait]
impl NodeApi for SimNode {
    async fn create(&self, id: SandboxId, spec: SandboxSpec) -> Result<(), CreateError> {
        self.inner.creates.fetch_add(1, Ordering::SeqCst);
        let life = (self.inner.script)(&spec);
        tokio::time::sleep(life.accept).await;
        let (image, scope) = (spec.image.clone(), spec.image_access.scope().map(str::to_owned));
        {
            let mut state = self.lock();
            if state.terminated.contains(&id) {
                return Err(CreateError::Deleted(id));
            }
            if state.sandboxes.contains_key(&id) {
                return Ok(());
            }
            if let Some(refusal) = life.refuse {
                return Err(refusal);
            }
            let live = state.sandboxes.values().filter(|s| !s.seen.status.is_terminal()).count();
            if state.capacity.is_some_and(|capacity| live >= capacity) {
                return Err(CreateError::Full("no room in the simulation".to_owned()));
            }
            let seen = first_seen(id.clone());
            self.tell(&seen);
            state.sandboxes.insert(id.clone(), Sandbox { spec, seen });
        }
        tokio::spawn(self.clone().live_on(id, image, scope, life));
        Ok(())
    }

    async fn terminate(&self, id: &SandboxId, reason: EndReason, message: &str) -> Result<(), NodeError> {
        let failing = &self.inner.terminates_to_fail;
        if failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(NodeError::NoAnswer { id: id.clone(), problem: "as scripted".to_owned() });
        }
        self.lock().terminated.insert(id.clone());
        self.change(id, |seen| end(seen, reason, message));
        Ok(())
    }

    async fn get(&self, id: &SandboxId) -> Option<Observation> {
        self.lock().sandboxes.get(id).map(|sandbox| sandbox.seen.clone())
    }

    async fn list(&self) -> Vec<Observation> {
        self.lock().sandboxes.values().map(|sandbox| sandbox.seen.clone()).collect()
    }

    async fn forget(&self, id: &SandboxId) {
        let mut state = self.lock();
        if state.sandboxes.get(id).is_some_and(|sandbox| sandbox.seen.status.is_terminal()) {
            state.sandboxes.remove(id);
        }
    }

    fn observe(&self) -> broadcast::Receiver<Observation> {
        self.inner.changes.subscribe()
    }

    async fn logs(&self, id: &SandboxId) -> Result<String, NodeError> {
        match self.lock().sandboxes.get(id) {
            Some(_) => Ok(format!("simulated output of {id}\n")),
            None => Err(NodeError::NotFound(id.clone())),
        }
    }

    async fn set_egress(&self, id: &SandboxId, policy: EgressPolicy, generation: u64) -> Result<(), NodeError> {
        let mut state = self.lock();
        let Some(sandbox) = state.sandboxes.get_mut(id) else { return Err(NodeError::NotFound(id.clone())) };
        if sandbox.seen.status != Status::Running {
            return Err(NodeError::NotRunning { id: id.clone(), status: sandbox.seen.status });
        }
        sandbox.spec.egress = policy;
        sandbox.seen.egress_generation = generation;
        self.tell(&sandbox.seen);
        Ok(())
    }

    async fn jobs(&self, id: &SandboxId, job_ids: Vec<String>) -> Result<Vec<JobState>, NodeError> {
        let state = self.lock();
        let Some(sandbox) = state.sandboxes.get(id) else { return Err(NodeError::NotFound(id.clone())) };
        if sandbox.seen.status != Status::Running {
            return Err(NodeError::NotRunning { id: id.clone(), status: sandbox.seen.status });
        }
        let job = |job_id: String| state.jobs.get(&(id.clone(), job_id)).cloned().unwrap_or(JobState::NotFound);
        Ok(job_ids.into_iter().map(job).collect())
    }

    async fn pull_image(&self, reference: &str, access: &ImageAccess) -> Result<ImageRecord, ImageError> {
        self.check_image(reference, access).await?;
        let mut record = image(reference);
        if let Some(digest) = self.lock().digests.get(reference) {
            record.digest.clone_from(digest);
        }
        self.lock().images.insert(reference.to_owned(), record.clone());
        Ok(record)
    }

    /// Images whose name starts with `private` want the login `user:secret`.
    async fn check_image(&self, reference: &str, access: &ImageAccess) -> Result<String, ImageError> {
        let login = access.login.as_ref().map(|login| (login.user.as_str(), login.password.as_str()));
        if reference.starts_with("missing") {
            return Err(image_error(reference, "not_found", "no such image in the simulation"));
        }
        if reference.starts_with("private") && login != Some(("user", "secret")) {
            return Err(image_error(reference, "access_denied", "a login is needed in the simulation"));
        }
        Ok("sha256:5151".to_owned())
    }

    async fn import_image(&self, path: PathBuf, name: &str) -> Result<ImageRecord, ImageError> {
        if !path.exists() {
            return Err(image_error(name, "bad_reference", "no such file"));
        }
        self.pull_image(name, &ImageAccess::default()).await
    }

    async fn pin_image(&self, digest: &str, name: &str) -> Result<ImageRecord, ImageError> {
        let mut state = self.lock();
        let known = state.images.values().find(|record| record.digest == digest).cloned();
        let known = known.ok_or_else(|| image_error(name, "not_found", "no such digest in the simulation"))?;
        let record = ImageRecord { reference: name.to_owned(), ..known };
        state.images.insert(name.to_owned(), record.clone());
        Ok(record)
    }

    async fn open_build(&self, _builder: &SandboxId, order: &BuildOrder) -> Result<String, ImageError> {
        if !order.context.exists() {
            return Err(image_error(&order.name, "failed", "no such file"));
        }
        Ok(std::mem::take(&mut self.lock().dockerfile))
    }

    async fn build_image(&self, builder: &SandboxId, order: BuildOrder) -> Result<ImageRecord, ImageError> {
        self.lock().order = Some(order.clone());
        let (time, digest) = (self.lock().build_time, format!("sha256:of-{}", order.name.replace(['/', ':'], "-")));
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.until_ended(builder) => return Err(image_error(&order.name, "failed", "the builder is gone")),
        }
        if order.dockerfile.starts_with("broken") {
            return Err(image_error(&order.name, "build_failed", "the build ended with exit code 1"));
        }
        let record = ImageRecord { digest, ..image(&order.name) };
        self.lock().images.insert(order.name.clone(), record.clone());
        Ok(record)
    }

    async fn images(&self) -> Result<Vec<ImageRecord>, ImageError> {
        Ok(self.lock().images.values().cloned().collect())
    }

    async fn remove_image(&self, reference: &str) -> Result<bool, ImageError> {
        let gone = self.lock().images.remove(reference);
        gone.map(|_| false).ok_or_else(|| image_error(reference, "not_found", "no such image on this node"))
    }

    async fn collect_images(&self, _keep: Option<u64>, _dry_run: bool) -> Result<ImageGc, ImageError> {
        Ok(ImageGc::default())
    }

    async fn image_builds(&self) -> Vec<ImageBuild> {
        self.lock().sandboxes.values().filter_map(|sandbox| sandbox.seen.image_build.clone()).collect()
    }

    async fn snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<SnapshotInfo, SnapshotError> {
        let mut state = self.lock();
        let seen = state.sandboxes.get(id).ok_or_else(|| SnapshotError::NoSandbox(id.clone()))?;
        expect(&seen.seen, &[Status::Running])?;
        let info = SnapshotInfo {
            id: snapshot.clone(),
            sandbox: id.clone(),
            image_digest: "sha256:5151".to_owned(),
            shape: seen.spec.shape,
            disk_bytes: seen.spec.disk_mib << 20,
            created_at_ms: now_ms(),
            paused_ms: 1.0,
            stored_bytes: 4096,
            usable: true,
            digest: None,
        };
        Ok(state.snapshots.entry(snapshot.clone()).or_insert(info).clone())
    }

    async fn reset(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<(), SnapshotError> {
        self.own_snapshot(id, snapshot)?;
        self.turn(id, &[Status::Running, Status::Paused], |seen| {
            seen.status = Status::Running;
            seen.generation += 1;
        })
    }

    async fn pause(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<(), SnapshotError> {
        self.snapshot(id, snapshot).await?;
        self.lock().snapshots.remove(snapshot);
        self.turn(id, &[Status::Running], |seen| seen.status = Status::Paused)
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), SnapshotError> {
        self.turn(id, &[Status::Running, Status::Paused], |seen| seen.status = Status::Running)
    }

    async fn offer_template(&self, snapshot: &SnapshotId, _spec: &SandboxSpec) -> Result<(), SnapshotError> {
        let mut state = self.lock();
        if !state.snapshots.contains_key(snapshot) {
            return Err(SnapshotError::NoSnapshot(snapshot.clone()));
        }
        state.offered.insert(snapshot.clone());
        Ok(())
    }

    /// `/bin/false` fails, all else succeeds at once.
    async fn run_command(&self, id: &SandboxId, argv: Vec<String>, _wait: Duration) -> Result<i32, NodeError> {
        match self.lock().sandboxes.get(id).map(|sandbox| sandbox.seen.status) {
            Some(Status::Running) => Ok(i32::from(argv.first().is_some_and(|word| word == "/bin/false"))),
            Some(status) => Err(NodeError::NotRunning { id: id.clone(), status }),
            None => Err(NodeError::NotFound(id.clone())),
        }
    }

    async fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.lock().snapshots.values().cloned().collect()
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), SnapshotError> {
        self.lock().snapshots.remove(snapshot);
        Ok(())
    }

    fn info(&self) -> NodeInfo {
        let state = self.lock();
        let live = state.sandboxes.values().filter(|s| !s.seen.status.is_terminal());
        let memory_mib_promised = live.clone().map(|s| s.spec.shape.memory_mib).sum();
        NodeInfo {
            gateway_url: None,
            accel: "tcg".to_owned(),
            sandboxes: live.count() as u64,
            memory_mib_promised,
            memory_mib_capacity: 1 << 20,
        }
    }

    fn token(&self, id: &SandboxId, expires_at_ms: u64) -> String {
        self.inner.key.sign(id, expires_at_ms)
    }

    /// Pending until [`SimNode::set_checkpoint`] says what becomes of it.
    async fn checkpoint(&self, sandbox: &SandboxId, id: &CheckpointId) -> Result<(), NodeError> {
        let mut state = self.lock();
        let Some(known) = state.sandboxes.get(sandbox) else { return Err(NodeError::NotFound(sandbox.clone())) };
        if known.seen.status != Status::Running {
            return Err(NodeError::NotRunning { id: sandbox.clone(), status: known.seen.status });
        }
        state.checkpoints.entry(id.clone()).or_insert(CheckpointState::Pending);
        Ok(())
    }

    /// As a checkpoint.
    async fn publish_volume(&self, sandbox: &SandboxId, volume: usize, id: &CheckpointId) -> Result<(), NodeError> {
        let writable = self.spec(sandbox).is_some_and(|spec| spec.volumes.get(volume).is_some_and(|v| !v.read_only));
        if !writable {
            return Err(NodeError::NoAnswer {
                id: sandbox.clone(),
                problem: format!("no volume {volume} to write to"),
            });
        }
        self.checkpoint(sandbox, id).await
    }

    async fn checkpoint_state(&self, id: &CheckpointId) -> Option<CheckpointState> {
        const HOLD: Duration = Duration::from_millis(20);
        let state = self.lock().checkpoints.get(id).cloned();
        if state == Some(CheckpointState::Pending) {
            tokio::time::sleep(HOLD).await;
        }
        state
    }

    async fn remove_checkpoint(&self, id: &CheckpointId) -> Result<(), ImageError> {
        self.lock().checkpoints.remove(id);
        Ok(())
    }
}

fn first_seen(id: SandboxId) -> Observation {
    Observation {
        id,
        status: Status::Pending,
        image_digest: None,
        image_build: None,
        started_at_ms: None,
        end: None,
        last_oom: None,
        egress_generation: 0,
        generation: 0,
        template: None,
    }
}

fn image(reference: &str) -> ImageRecord {
    ImageRecord {
        reference: reference.to_owned(),
        digest: "sha256:5151".to_owned(),
        size_bytes: 1 << 20,
        created_at_ms: now_ms(),
        env: Default::default(),
        user: None,
        workdir: None,
        entrypoint: Vec::new(),
        cmd: Vec::new(),
        shell: Vec::new(),
        on_build: Vec::new(),
        architecture: "amd64".to_owned(),
        private: false,
    }
}

fn image_error(reference: &str, code: &'static str, message: &str) -> ImageError {
    ImageError { reference: reference.to_owned(), code, message: message.to_owned() }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
