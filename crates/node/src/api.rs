//! The node as control sees it.

use crate::admit::{self, Verdict};
use crate::builder::Builder;
use crate::host;
use crate::node::Node;
use crate::sandbox::{Driver, Folder, Handle, Intent, Order, apply};
use crate::shim_client::ShimClient;
use crate::snapshots::template_key;
use crate::template::Devices;
use async_trait::async_trait;
use futures_util::future::try_join_all;
use hyper::Method;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, oneshot};
use warren_image::Ask;
use warren_model::egress::EgressPolicy;
use warren_model::{CheckpointId, EndReason, ImageAccess, SandboxId, SandboxSpec, SnapshotId, Status};
use warren_proto::guest::{GuestStatus, JobState, JobsAnswer, JobsRequest};
use warren_proto::node::{
    BuildOrder, CheckpointState, CreateError, ImageBuild, ImageError, ImageGc, ImageRecord, NodeApi, NodeError,
    NodeInfo, Observation, SnapshotError, SnapshotInfo,
};
use warren_proto::shim::{SetEgress, ShimState, paths};

/// Longest wait for a shim or guest to answer a call.
const CALL_WAIT: Duration = Duration::from_secs(10);
/// Longest wait for the end of a sandbox; a shim gets a grace period and is killed after it.
const TERMINATE_WAIT: Duration = Duration::from_secs(30);

/// A node that can be shared: the tasks of its sandboxes hold it too.
#[derive(Clone)]
pub struct SharedNode(pub Arc<Node>);

impl SharedNode {
    fn handle(&self, id: &SandboxId) -> Result<Handle, NodeError> {
        let known = self.0.known();
        match (known.live.get(id), known.ended.get(id)) {
            (Some(handle), _) => Ok(handle.clone()),
            (None, Some(seen)) => Err(NodeError::NotRunning { id: id.clone(), status: seen.status }),
            (None, None) => Err(NodeError::NotFound(id.clone())),
        }
    }

    fn shim(&self, id: &SandboxId) -> Result<(Handle, ShimClient), NodeError> {
        let handle = self.handle(id)?;
        let seen = handle.observation();
        match handle.shim.borrow().clone() {
            Some(client) if seen.status == Status::Running => Ok((handle.clone(), client)),
            _ => Err(NodeError::NotRunning { id: id.clone(), status: seen.status }),
        }
    }

    /// Makes a checkpoint of the root disk, or of the volume of that place.
    async fn freeze(&self, sandbox: &SandboxId, id: &CheckpointId, volume: Option<usize>) -> Result<(), NodeError> {
        let handle = self.handle(sandbox)?;
        let (reply, answer) = oneshot::channel();
        let not_running = || NodeError::NotRunning { id: sandbox.clone(), status: handle.observation().status };
        let sent = handle.orders.send(Order::Checkpoint(id.clone(), volume, reply)).await;
        sent.map_err(|_| not_running())?;
        answer.await.unwrap_or_else(|_| Err(not_running()))
    }

    async fn call<A: serde::de::DeserializeOwned>(
        &self,
        id: &SandboxId,
        method: Method,
        path: &str,
        body: Option<&(impl serde::Serialize + Sync)>,
    ) -> Result<A, NodeError> {
        let (_, client) = self.shim(id)?;
        let no_answer =
            |e: crate::shim_client::ShimClientError| NodeError::NoAnswer { id: id.clone(), problem: e.to_string() };
        client.call(method, path, body, CALL_WAIT).await.map_err(no_answer)
    }

    /// Asks the shim, which asks the guest: out-of-memory kills show up here.
    async fn refresh(&self, handle: &Handle, client: &ShimClient) {
        if let Ok(state) = client.fresh_state().await {
            let mut seen = handle.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if apply(&mut seen, crate::sandbox::Event::Shim(state)) {
                let _ = self.0.services.observations.send(seen.clone());
            }
        }
    }
}

impl SharedNode {
    /// Hands an order to the sandbox's owner.
    pub(crate) async fn order(&self, id: &SandboxId, order: Order) -> Result<(), SnapshotError> {
        let handle = self.handle(id).map_err(|error| match error {
            NodeError::NotRunning { id, status } => not_now(&id, status),
            _ => SnapshotError::NoSandbox(id.clone()),
        })?;
        let seen = handle.observation();
        if !matches!(seen.status, Status::Running | Status::Paused) {
            return Err(not_now(id, seen.status));
        }
        if seen.status == Status::Paused && matches!(order, Order::Resume(_) | Order::Reset(..)) {
            let host = host::measure(&self.0.config.data_dir);
            let promised = self.0.known().promised();
            if let Verdict::Full(problem) | Verdict::Never(problem) = admit::admit(&host, &promised, handle.shape) {
                return Err(SnapshotError::Conflict { id: id.clone(), status: seen.status, problem });
            }
        }
        handle.orders.send(order).await.map_err(|_| not_now(id, handle.observation().status))
    }

    /// What the owner says; a sandbox that ends meanwhile says nothing.
    pub(crate) async fn answered<T>(
        &self,
        id: &SandboxId,
        answer: oneshot::Receiver<Result<T, SnapshotError>>,
    ) -> Result<T, SnapshotError> {
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(not_now(id, self.get(id).await.map_or(Status::Terminated, |seen| seen.status))),
        }
    }
}

fn not_now(id: &SandboxId, status: Status) -> SnapshotError {
    SnapshotError::Conflict {
        id: id.clone(),
        status,
        problem: "it must be RUNNING, or PAUSED to be reset or resumed".to_owned(),
    }
}

fn guest_path(path: &str) -> String {
    format!("{}{path}", paths::GUEST)
}

#[async_trait]
impl NodeApi for SharedNode {
    async fn create(&self, id: SandboxId, spec: SandboxSpec) -> Result<(), CreateError> {
        let node = &self.0;
        let host = host::measure(&node.config.data_dir);
        let mut known = node.known();
        if known.live.contains_key(&id) {
            return Ok(());
        }
        if known.was_deleted(&id) || known.ended.contains_key(&id) {
            return Err(CreateError::Deleted(id));
        }
        match admit::admit(&host, &known.promised(), spec.shape) {
            Verdict::Admit => {}
            Verdict::Full(why) => return Err(CreateError::Full(why)),
            Verdict::Never(why) => return Err(CreateError::Refused(why)),
        }
        let intent = Intent::of(&id, &spec);
        let folder = Folder::create(&node.sandboxes_dir(), &id, &intent)
            .map_err(|e| CreateError::Failed(format!("make the folder of sandbox {id}: {e}")))?;
        let (driver, handle) = Driver::new(id.clone(), folder, intent, node.services.clone());
        known.live.insert(id.clone(), handle.clone());
        drop(known);
        node.run(id, &handle, driver.create(spec));
        Ok(())
    }

    async fn terminate(&self, id: &SandboxId, reason: EndReason, message: &str) -> Result<(), NodeError> {
        let handle = {
            let mut known = self.0.known();
            match known.live.get(id) {
                Some(handle) => handle.clone(),
                None => {
                    if !known.ended.contains_key(id) {
                        known.remember_deleted(id.clone());
                    }
                    return Ok(());
                }
            }
        };
        let (done, ended) = oneshot::channel();
        // A closed queue means that it is ending already: then `ended` resolves at once, and the live list is the truth.
        let _ = handle.terminate.send((reason, message.to_owned(), done)).await;
        let wait = tokio::time::timeout(TERMINATE_WAIT, ended).await;
        wait.map(drop).map_err(|_| NodeError::NoAnswer {
            id: id.clone(),
            problem: format!("it did not end within {TERMINATE_WAIT:?}"),
        })
    }

    async fn get(&self, id: &SandboxId) -> Option<Observation> {
        if let Ok((handle, client)) = self.shim(id) {
            self.refresh(&handle, &client).await;
            return Some(handle.observation());
        }
        let known = self.0.known();
        known.live.get(id).map(Handle::observation).or_else(|| known.ended.get(id).cloned())
    }

    async fn list(&self) -> Vec<Observation> {
        let known = self.0.known();
        known.live.values().map(Handle::observation).chain(known.ended.values().cloned()).collect()
    }

    async fn forget(&self, id: &SandboxId) {
        self.0.services.ended.remove(id);
        self.0.known().ended.remove(id);
    }

    fn observe(&self) -> broadcast::Receiver<Observation> {
        self.0.services.observations.subscribe()
    }

    async fn logs(&self, id: &SandboxId) -> Result<String, NodeError> {
        let ended = self.0.known().ended.get(id).and_then(|seen| seen.end.clone());
        if let Some(end) = ended {
            return Ok(end.logs);
        }
        match self.shim(id) {
            Ok(_) => {
                let path = guest_path(warren_proto::guest::paths::STATUS);
                let status: GuestStatus = self.call(id, Method::GET, &path, None::<&()>).await?;
                Ok(status.logs)
            }
            Err(NodeError::NotRunning { .. }) => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    async fn set_egress(&self, id: &SandboxId, policy: EgressPolicy, generation: u64) -> Result<(), NodeError> {
        let body = SetEgress { policy, generation };
        let written = self.handle(id)?.folder.write_egress(&body);
        written.map_err(|e| NodeError::NoAnswer { id: id.clone(), problem: format!("write the policy down: {e}") })?;
        let _: ShimState = self.call(id, Method::PUT, paths::EGRESS, Some(&body)).await?;
        Ok(())
    }

    async fn jobs(&self, id: &SandboxId, job_ids: Vec<String>) -> Result<Vec<JobState>, NodeError> {
        let asked = job_ids.len();
        let path = guest_path(warren_proto::guest::paths::JOBS);
        let answer: JobsAnswer = self.call(id, Method::POST, &path, Some(&JobsRequest { job_ids })).await?;
        if answer.jobs.len() != asked {
            let problem = format!("the guest told of {} jobs, asked were {asked}", answer.jobs.len());
            return Err(NodeError::NoAnswer { id: id.clone(), problem });
        }
        Ok(answer.jobs)
    }

    async fn pull_image(&self, reference: &str, access: &ImageAccess) -> Result<ImageRecord, ImageError> {
        self.0.services.images.ensure(reference, access, Ask::Always).await.map(|image| image.record)
    }

    async fn check_image(&self, reference: &str, access: &ImageAccess) -> Result<String, ImageError> {
        self.0.services.images.check(reference, access).await
    }

    async fn import_image(&self, path: PathBuf, name: &str) -> Result<ImageRecord, ImageError> {
        self.0.services.images.import(path, name).await.map(|image| image.record)
    }

    async fn pin_image(&self, digest: &str, name: &str) -> Result<ImageRecord, ImageError> {
        self.0.services.images.pin(digest, name).await.map(|image| image.record)
    }

    async fn build_image(&self, builder: &SandboxId, order: BuildOrder) -> Result<ImageRecord, ImageError> {
        let unknown =
            |e: NodeError| ImageError { reference: order.name.clone(), code: "failed", message: e.to_string() };
        let (handle, shim) = self.shim(builder).map_err(unknown)?;
        // Counts as use of the sandbox until the end.
        let _operation = handle.activity.begin();
        let images = &self.0.services.images;
        // All at once, and first: the leases keep them.
        let bases = order.bases.iter().map(|base| images.ensure(&base.image, &base.access, Ask::IfStale));
        let bases = try_join_all(bases).await?;
        let imported = match Builder::new(shim, &order).build(&bases).await {
            Ok(()) => {
                let imported = self.0.services.images.import_private(order.archive.clone(), &order.name).await;
                imported.map(|image| image.record)
            }
            Err(error) => Err(error),
        };
        // It may never have been made.
        let _ = tokio::fs::remove_file(&order.archive).await;
        imported
    }

    async fn images(&self) -> Result<Vec<ImageRecord>, ImageError> {
        Ok(self.0.services.images.list())
    }

    async fn remove_image(&self, reference: &str) -> Result<bool, ImageError> {
        self.0.services.images.remove(reference).await
    }

    async fn collect_images(&self, keep: Option<u64>, dry_run: bool) -> Result<ImageGc, ImageError> {
        self.0.services.images.gc(keep, dry_run).await
    }

    async fn image_builds(&self) -> Vec<ImageBuild> {
        self.0.services.images.builds()
    }

    async fn snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<SnapshotInfo, SnapshotError> {
        let (reply, answer) = oneshot::channel();
        self.order(id, Order::Snapshot(snapshot.clone(), reply)).await?;
        self.answered(id, answer).await
    }

    async fn reset(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<(), SnapshotError> {
        let (done, answer) = oneshot::channel();
        self.order(id, Order::Reset(snapshot.clone(), done)).await?;
        self.answered(id, answer).await
    }

    async fn pause(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<(), SnapshotError> {
        let (done, answer) = oneshot::channel();
        self.order(id, Order::Pause(snapshot.clone(), done)).await?;
        self.answered(id, answer).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), SnapshotError> {
        let (done, answer) = oneshot::channel();
        self.order(id, Order::Resume(done)).await?;
        self.answered(id, answer).await
    }

    async fn offer_template(&self, snapshot: &SnapshotId, spec: &SandboxSpec) -> Result<(), SnapshotError> {
        let snapshots = &self.0.services.snapshots;
        let record = snapshots.get(snapshot).ok_or_else(|| SnapshotError::NoSnapshot(snapshot.clone()))?;
        let key = template_key(spec, &record.image_digest);
        let key = key.ok_or_else(|| SnapshotError::Failed("a sandbox with secrets cannot be a template".to_owned()))?;
        snapshots.offer(snapshot, key)
    }

    async fn run_command(&self, id: &SandboxId, argv: Vec<String>, wait: Duration) -> Result<i32, NodeError> {
        let (handle, shim) = self.shim(id)?;
        let ended = crate::ready::exit_code(&handle, shim, argv, wait).await;
        ended.map_err(|problem| NodeError::NoAnswer { id: id.clone(), problem })
    }

    async fn snapshots(&self) -> Vec<SnapshotInfo> {
        let services = &self.0.services;
        services.snapshots.list(|record| services.templates.has(Devices::of(record.shape), &record.template))
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), SnapshotError> {
        let deleted = self.0.services.snapshots.delete(snapshot);
        deleted.map_err(|e| SnapshotError::Failed(format!("delete snapshot {snapshot}: {e}")))
    }

    fn info(&self) -> NodeInfo {
        let promised = self.0.known().promised();
        NodeInfo {
            gateway_url: self.0.config.gateway_url.clone(),
            accel: match self.0.verdict.accel {
                warren_proto::shim::Accel::Kvm => "kvm".to_owned(),
                warren_proto::shim::Accel::Tcg => "tcg".to_owned(),
            },
            sandboxes: promised.sandboxes,
            memory_mib_promised: promised.memory_mib,
            memory_mib_capacity: self.0.capacity_mib(),
        }
    }

    fn token(&self, id: &SandboxId, expires_at_ms: u64) -> String {
        self.0.token_key.sign(id, expires_at_ms)
    }

    async fn checkpoint(&self, sandbox: &SandboxId, id: &CheckpointId) -> Result<(), NodeError> {
        self.freeze(sandbox, id, None).await
    }

    async fn publish_volume(&self, sandbox: &SandboxId, volume: usize, id: &CheckpointId) -> Result<(), NodeError> {
        self.freeze(sandbox, id, Some(volume)).await
    }

    async fn checkpoint_state(&self, id: &CheckpointId) -> Option<CheckpointState> {
        self.0.services.checkpoints.state(id).await
    }

    async fn remove_checkpoint(&self, id: &CheckpointId) -> Result<(), ImageError> {
        self.0.services.checkpoints.remove(id).await
    }

    async fn open_build(&self, builder: &SandboxId, order: &BuildOrder) -> Result<String, ImageError> {
        let unknown =
            |e: NodeError| ImageError { reference: order.name.clone(), code: "failed", message: e.to_string() };
        let (handle, shim) = self.shim(builder).map_err(unknown)?;
        Builder::new(shim, order).open(&handle).await
    }
}
