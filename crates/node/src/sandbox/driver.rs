//! The one task that owns a sandbox on this node.

use super::arriving::ArrivingDisk;
use super::change::Order;
use super::folder::Turn;
use super::uids::{TakenUid, Uids};
use super::{Activity, Event, Folder, Intent, apply};
use crate::checkpoint::Checkpoints;
use crate::ended::{Ended, EndedRecords};
use crate::expiry::{self, Clocks};
use crate::host::now_ms;
use crate::shim_client::{ProcessHandle, ShimClient};
use crate::snapshots::{SnapshotLease, Snapshots};
use crate::template::Templates;
use hyper::Method;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};
use warren_model::{EndReason, SandboxId, SandboxSpec, Shape, Status};
use warren_proto::node::Observation;
use warren_proto::shim::{End, Machine, Phase, ShimState, Terminate, paths};

/// Time for a start command between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// Longest wait for a shim to end its machine, on top of the grace.
const TERMINATE_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for a killed process to be gone.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// Pause between two looks at a shim that refuses to answer but lives.
const STATE_RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Operations on one sandbox that wait for each other.
const ORDERS_QUEUED_MAX: usize = 16;

/// What the driver of each sandbox uses.
pub(crate) struct Services {
    pub(crate) warren: PathBuf,
    pub(crate) machine: Machine,
    pub(crate) images: warren_image::Store,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) templates: Arc<Templates>,
    pub(crate) snapshots: Arc<Snapshots>,
    /// Starts that may run at once.
    pub(crate) starts: Semaphore,
    pub(crate) ended: EndedRecords,
    /// Whom locked-in shims become; `None` where shims are not locked in.
    pub(crate) uids: Option<Arc<Uids>>,
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
    pub(crate) orders: mpsc::Sender<Order>,
    /// Of the guest, MiB; 0 while it is paused.
    pub(crate) memory_mib: Arc<AtomicU64>,
    /// Of its guest.
    pub(crate) shape: Shape,
    /// Where its network policy is written down.
    pub(crate) folder: Folder,
    /// A command that comes while it is paused lets it go on.
    pub(crate) resumes_by_itself: bool,
}

impl Handle {
    /// Whether a paused sandbox goes on at the next command.
    pub(crate) fn wants_to_resume(&self) -> bool {
        self.resumes_by_itself && self.observation().status == Status::Paused
    }

    /// Whether it is being given another machine.
    pub(crate) fn is_turning(&self) -> bool {
        self.observation().status == Status::Running && self.shim.borrow().is_none()
    }

    pub(crate) fn observation(&self) -> Observation {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The owner of one sandbox.
pub(crate) struct Driver {
    pub(super) id: SandboxId,
    pub(super) folder: Folder,
    pub(super) intent: Intent,
    pub(super) services: Arc<Services>,
    pub(super) handle: Handle,
    pub(super) shim: watch::Sender<Option<ShimClient>>,
    /// The shim of a machine that does not run yet.
    pub(super) starting: Option<ShimClient>,
    terminations: mpsc::Receiver<Termination>,
    pub(super) orders: mpsc::Receiver<Order>,
    /// Keeps the image's bytes while the sandbox needs them.
    pub(super) lease: Option<warren_image::Lease>,
    /// The same for what its volumes lie on.
    pub(super) volume_leases: Vec<warren_image::Lease>,
    /// Snapshots that its memory and its disk lie on.
    pub(super) needs: Vec<SnapshotLease>,
    /// What its VMM reads an image through that was still arriving at the start.
    pub(super) served: Option<ArrivingDisk>,
    /// The user that the shim and its VMM are, where they are locked in.
    pub(super) uid: Option<TakenUid>,
    pub(super) processes: Vec<ProcessHandle>,
    waiters: Waiters,
}

/// A sandbox that a run before left.
pub(crate) struct Adopted {
    /// Its shim, if it answers.
    pub(crate) live: Option<(ShimClient, ShimState)>,
    /// The shim's process, if there is one.
    pub(crate) shim: Option<ProcessHandle>,
    /// The image that it runs.
    pub(crate) image: Option<warren_image::Image>,
    /// Snapshots that its memory and its disk lie on, or will.
    pub(crate) needs: Vec<SnapshotLease>,
}

/// Why a sandbox is over.
pub(super) struct Over {
    reason: EndReason,
    message: String,
}

impl std::fmt::Display for Over {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// What follows the time in which a machine runs, or in which there is none.
pub(super) enum Next {
    Over(Over),
    /// Its machine is to be ended, and another one started or not.
    Turn(Turn, Option<Done>),
}

/// Whom to tell that a sandbox is as it was asked to be.
pub(super) type Done = oneshot::Sender<Result<(), warren_proto::node::SnapshotError>>;

impl Over {
    pub(super) fn new(reason: EndReason, message: impl Into<String>) -> Over {
        Over { reason, message: message.into() }
    }

    /// Whether the platform failed, and nobody wanted it.
    pub(super) fn is_fault(&self) -> bool {
        self.reason.infra_fault()
    }
}

impl Driver {
    pub(crate) fn new(id: SandboxId, folder: Folder, intent: Intent, services: Arc<Services>) -> (Driver, Handle) {
        // A few callers may want it ended at once; more of them wait their turn.
        const TERMINATIONS_QUEUED_MAX: usize = 8;
        let (terminate, terminations) = mpsc::channel(TERMINATIONS_QUEUED_MAX);
        let (order, orders) = mpsc::channel(ORDERS_QUEUED_MAX);
        let (shim, shims) = watch::channel(None);
        let mut seen = super::pending(id.clone());
        seen.generation = intent.generation;
        let handle = Handle {
            seen: Arc::new(Mutex::new(seen)),
            shim: shims,
            activity: Activity::new(),
            terminate,
            orders: order,
            memory_mib: Arc::new(AtomicU64::new(intent.shape.memory_mib)),
            shape: intent.shape,
            folder: folder.clone(),
            resumes_by_itself: intent.resumes_by_itself,
        };
        let driver = Driver {
            id,
            folder,
            intent,
            services,
            handle: handle.clone(),
            shim,
            starting: None,
            terminations,
            orders,
            lease: None,
            volume_leases: Vec::new(),
            needs: Vec::new(),
            served: None,
            uid: None,
            processes: Vec::new(),
            waiters: Vec::new(),
        };
        (driver, handle)
    }

    pub(super) fn tell(&self, event: Event) {
        let mut seen = self.handle.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if apply(&mut seen, event) {
            // Nobody may be listening yet: `list` gives the same.
            let _ = self.services.observations.send(seen.clone());
        }
    }

    /// From an accepted create to the end.
    pub(crate) async fn create(mut self, spec: SandboxSpec) -> Waiters {
        let over = match self.start(spec).await {
            Ok((client, state)) => self.live(client, state).await,
            Err(over) => over,
        };
        self.finish(over).await
    }

    /// From an adoption to the end.
    pub(crate) async fn adopt(mut self, adopted: Adopted) -> Waiters {
        let over = self.go_on(adopted).await;
        self.finish(over).await
    }

    async fn go_on(&mut self, adopted: Adopted) -> Over {
        let services = self.services.clone();
        self.lease = adopted.image.as_ref().map(|image| image.lease.clone());
        self.uid = self.intent.uid.zip(services.uids.as_ref()).map(|(uid, uids)| uids.take_again(uid));
        self.needs = adopted.needs;
        if let Some(digest) = self.intent.image_digest.clone() {
            self.tell(Event::ImageReady { digest });
        }
        self.processes.extend(adopted.shim);
        if !matches!(self.intent.turn, Turn::Running) {
            self.shim.send_replace(adopted.live.map(|(client, _)| client));
            let turn = self.intent.turn.clone();
            return self.turn_and_live(turn, None).await;
        }
        let Some((client, state)) = adopted.live else {
            return Over::new(EndReason::NodeLost, "its shim does not answer");
        };
        let served = match &adopted.image {
            Some(image) if self.intent.image_served => self.serve_image(image).map_err(|error| error.to_string()),
            None if self.intent.image_digest.is_some() => Err("it is not on this node any more".to_owned()),
            _ => Ok(()),
        };
        match (served.and(self.lease_volumes()), state.phase) {
            (Err(problem), _) => {
                self.shim.send_replace(Some(client));
                image_lost(&problem)
            }
            (Ok(()), Phase::Running) => self.live(client, state).await,
            _ => {
                self.shim.send_replace(Some(client));
                Over::new(EndReason::StartFailed, "the node was restarted while the sandbox was being started")
            }
        }
    }

    /// From a running machine to the end, through all the machines that follow it.
    async fn live(&mut self, client: ShimClient, state: ShimState) -> Over {
        match self.keep(client, state).await {
            Next::Over(over) => over,
            Next::Turn(turn, done) => self.turn_and_live(turn, done).await,
        }
    }

    async fn turn_and_live(&mut self, mut turn: Turn, mut done: Option<Done>) -> Over {
        loop {
            let next = match self.turn(turn, done).await {
                Ok(Some((client, state))) => self.keep(client, state).await,
                Ok(None) => self.rest().await,
                Err(over) => return over,
            };
            match next {
                Next::Over(over) => return over,
                Next::Turn(next, asked) => (turn, done) = (next, asked),
            }
        }
    }

    /// Waits for `work`, unless somebody wants the sandbox ended first.
    pub(super) async fn unless_terminated<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Over> {
        tokio::select! {
            biased;
            over = self.terminated() => Err(over),
            value = work => Ok(value),
        }
    }

    /// Waits until somebody wants the sandbox ended.
    pub(super) async fn terminated(&mut self) -> Over {
        match self.terminations.recv().await {
            Some((reason, message, done)) => {
                self.waiters.push(done);
                Over { reason, message }
            }
            None => std::future::pending().await,
        }
    }

    /// Keeps a running sandbox until something ends it.
    async fn keep(&mut self, mut client: ShimClient, mut state: ShimState) -> Next {
        self.processes.extend(state.vmm_pid.and_then(ProcessHandle::open));
        self.starting = None;
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
                    return Next::Over(Over { reason, message });
                }
                () = client.gone() => match self.reconnect().await {
                    Some((again, next)) => {
                        (client, state) = (again, next);
                        self.shim.send_replace(Some(client.clone()));
                        self.tell(Event::Shim(state.clone()));
                    }
                    None => return Next::Over(self.shim_ended(&client).await),
                },
                next = client.state_after(state.version) => match next {
                    Ok(next) if next.phase == Phase::Ended => return Next::Over(self.shim_ended(&client).await),
                    Ok(next) => {
                        state = next;
                        self.tell(Event::Shim(state.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(sandbox = %self.id, %error, "the shim gave no state");
                        tokio::time::sleep(STATE_RETRY_PAUSE).await;
                    }
                },
                Some(order) = self.orders.recv() => match self.obey(&client, order).await {
                    Ok(None) => {}
                    Ok(Some((turn, done))) => return Next::Turn(turn, Some(done)),
                    Err(over) => return Next::Over(over),
                },
                problem = lost_image(&mut self.served) => return Next::Over(image_lost(&problem)),
                () = activity.changed() => {}
                () = expiry => {
                    // What was true when the timer was set may not be any more.
                    if let Some((at_ms, reason)) = self.next_expiry(&state)
                        && at_ms <= now_ms()
                    {
                        if reason != EndReason::Idle || !self.intent.idle_pauses {
                            return Next::Over(Over::new(reason, self.expiry_message(reason)));
                        }
                        match self.pause_by_itself(&client).await {
                            Ok(Some(turn)) => return Next::Turn(turn, None),
                            Ok(None) => {}
                            Err(over) => return Next::Over(over),
                        }
                    }
                }
            }
        }
    }

    /// Keeps a paused sandbox until something ends it or lets it go on.
    async fn rest(&mut self) -> Next {
        loop {
            let deadline = self.intent.timeout.zip(self.handle.observation().started_at_ms);
            let expiry = async {
                match deadline {
                    Some((timeout, started_at_ms)) => {
                        let at_ms = started_at_ms.saturating_add(timeout.as_millis() as u64);
                        tokio::time::sleep(Duration::from_millis(at_ms.saturating_sub(now_ms()))).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some((reason, message, done)) = self.terminations.recv() => {
                    self.waiters.push(done);
                    return Next::Over(Over { reason, message });
                }
                Some(order) = self.orders.recv() => {
                    if let Some((turn, done)) = self.obey_at_rest(order) {
                        return Next::Turn(turn, Some(done));
                    }
                }
                () = expiry => {
                    return Next::Over(Over::new(EndReason::Timeout, self.expiry_message(EndReason::Timeout)));
                }
            }
        }
    }

    /// Ends the machine, not the sandbox, at once.
    pub(super) async fn end_machine(&mut self) {
        self.shim.send_replace(None);
        self.starting = None;
        self.kill_processes().await;
        self.processes.clear();
        self.served = None;
    }

    /// Whatever of the machine still runs.
    async fn kill_processes(&self) {
        for process in &self.processes {
            process.kill();
        }
        for process in &self.processes {
            if !process.gone(KILL_WAIT).await {
                tracing::error!(sandbox = %self.id, "a killed process is still there");
            }
        }
    }

    fn next_expiry(&self, state: &ShimState) -> Option<(u64, EndReason)> {
        let (active, last_activity_ms) = self.handle.activity.now();
        let machine_since_ms = state.running_since_ms.unwrap_or_else(now_ms);
        // A reset or a resume is no new life.
        let started_at_ms = self.intent.started_at_ms.unwrap_or(machine_since_ms);
        let clocks = Clocks { started_at_ms, machine_since_ms, active, last_activity_ms };
        expiry::next(self.intent.timeout, self.intent.idle_timeout, clocks)
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
    pub(super) async fn shim_ended(&mut self, client: &ShimClient) -> Over {
        let _ = tokio::time::timeout(KILL_WAIT, client.gone()).await;
        match self.folder.end() {
            Some(end) => Over { reason: end.reason, message: end.message },
            None => Over::new(EndReason::VmmDied, "the sandbox's shim was killed"),
        }
    }

    /// Ends what is left, keeps how it ended, removes every trace, and tells everybody.
    async fn finish(mut self, over: Over) -> Waiters {
        let client = self.shim.send_replace(None).or(self.starting.take());
        if let Some(client) = client {
            self.end_shim(&client, &over).await;
        }
        self.kill_processes().await;
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
        self.needs.clear();
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
pub(super) async fn lost_image(served: &mut Option<ArrivingDisk>) -> String {
    match served {
        Some(served) => served.failed().await,
        None => std::future::pending().await,
    }
}

pub(super) fn image_lost(problem: &str) -> Over {
    Over::new(EndReason::NodeLost, format!("the sandbox's image cannot be read: {problem}"))
}
