//! The control plane as one value: opened, asked for its router, shut down.

use crate::api;
use crate::bootstrap::{BootstrapError, bootstrap};
use crate::builds::{self, Builds};
use crate::checkpoints::{self, Checkpoints};
use crate::config::Config;
use crate::context::Context;
use crate::reconcile::{Changes, Underway, driver};
use crate::seal::{KEY_FILE, Sealer};
use crate::store::{Store, StoreError};
use crate::templates;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use warren_proto::node::NodeApi;

/// Longest wait at shutdown for what is under way, seconds.
const SHUTDOWN_SECS_MAX: u64 = 30;

/// The control plane. Must live inside a tokio runtime.
pub struct App {
    pub(crate) context: Arc<Context>,
    owner_key: String,
}

/// Why the control plane cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot open {step}: {problem}")]
pub struct OpenError {
    step: &'static str,
    problem: String,
}

impl OpenError {
    fn new(step: &'static str, error: &dyn std::error::Error) -> Self {
        OpenError { step, problem: driver::chain(error) }
    }
}

impl App {
    /// Opens what is in `data_dir` (made if missing), makes the owner and his key on the first start, and begins to compare
    /// with `node` what should run.
    pub async fn open(data_dir: &Path, node: Arc<dyn NodeApi>, config: Config) -> Result<App, OpenError> {
        make_dir(data_dir).map_err(|e| OpenError::new("the data directory", &e))?;
        let sealer = Sealer::open(data_dir).map_err(|e| OpenError::new(KEY_FILE, &e))?;
        let store = Store::open(data_dir).await.map_err(|e: StoreError| OpenError::new("the store", &e))?;
        let key = bootstrap(&store, data_dir).await;
        let owner_key = key.map_err(|e: BootstrapError| OpenError::new("the owner's account", &e))?;
        let context = Arc::new(Context {
            store,
            node,
            sealer,
            config,
            builds: Builds::new(data_dir),
            checkpoints: Checkpoints::default(),
            changes: Changes::default(),
            underway: Underway::default(),
            snapshots_underway: Underway::default(),
            templates_underway: Underway::default(),
            templates_at_once: Semaphore::new(templates::AT_ONCE_MAX),
            templates_nudge: Notify::new(),
            effects: Arc::new(Semaphore::new(driver::EFFECTS_MAX)),
            nudge: Notify::new(),
            node_full: AtomicBool::new(false),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        builds::driver::recover(&context).await.map_err(|e| OpenError::new("the builds of the last run", &e))?;
        let recovered = checkpoints::driver::recover(&context).await;
        recovered.map_err(|e| OpenError::new("the checkpoints of the last run", &e))?;
        // Listening begins before the first plan, so that no change falls between the two.
        let observations = context.node.observe();
        context.tasks.spawn(driver::observe(context.clone(), observations));
        context.tasks.spawn(driver::reconcile(context.clone()));
        context.tasks.spawn(builds::driver::drive(context.clone()));
        context.tasks.spawn(checkpoints::driver::drive(context.clone()));
        context.tasks.spawn(templates::drive(context.clone()));
        Ok(App { context, owner_key })
    }

    /// The owner's API key, as in the file `api-key`.
    pub fn owner_key(&self) -> &str {
        &self.owner_key
    }

    /// All routes of the public API, with answers for unknown routes: merge it last, into a router without a fallback.
    pub fn router(&self) -> axum::Router {
        api::router(self.context.clone())
    }

    /// Ends the tasks between two effects, waits for handlers that are under way (bounded), and closes the store.
    /// Sandboxes stay as they are.
    pub async fn shutdown(&self) {
        self.context.stop.cancel();
        self.context.tasks.close();
        let limit = Duration::from_secs(SHUTDOWN_SECS_MAX);
        if tokio::time::timeout(limit, self.context.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.context.tasks.len(), "shut down with work under way");
        }
        self.context.store.close().await;
    }
}

fn make_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
