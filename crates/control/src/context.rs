//! What handlers and reconciler share.

use crate::builds::Builds;
use crate::checkpoints::Checkpoints;
use crate::config::Config;
use crate::reconcile::{Changes, Underway};
use crate::seal::Sealer;
use crate::store::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use warren_model::{SandboxId, SnapshotId};
use warren_proto::node::NodeApi;

/// One per server.
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) node: Arc<dyn NodeApi>,
    pub(crate) sealer: Sealer,
    pub(crate) config: Config,
    /// Builds of owned images.
    pub(crate) builds: Builds,
    /// Checkpoints of sandboxes.
    pub(crate) checkpoints: Checkpoints,
    /// Told after each change of a row.
    pub(crate) changes: Changes,
    /// Effects on the node that have begun.
    pub(crate) underway: Underway<SandboxId>,
    /// Snapshots that are being taken.
    pub(crate) snapshots_underway: Underway<SnapshotId>,
    /// App templates that somebody works on.
    pub(crate) templates_underway: Underway<String>,
    /// App templates that may be made at once.
    pub(crate) templates_at_once: Semaphore,
    /// Asks for a look at the app templates.
    pub(crate) templates_nudge: Notify,
    /// Effects of plans that may run at once.
    pub(crate) effects: Arc<Semaphore>,
    /// Asks for a plan soon.
    pub(crate) nudge: Notify,
    /// Whether the node refused the last offer for lack of room: new sandboxes then queue up behind the waiting ones.
    pub(crate) node_full: AtomicBool,
    /// Says that the server is to end.
    pub(crate) stop: CancellationToken,
    /// Everything that must finish before it does.
    pub(crate) tasks: TaskTracker,
}

impl Context {
    /// Says that a sandbox ended, so that one that waits for room may get it.
    pub(crate) fn room(&self) {
        if self.node_full.load(Ordering::Relaxed) {
            self.nudge.notify_one();
        }
    }
}
