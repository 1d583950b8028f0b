//! Builds of owned images: uploads of contexts, turns, builder sandboxes, and what tags lead to.
//!
//! `machine` says what may follow in a build, `plan` whose turn it is; both are pure. `driver` waits and begins, `run` does one build,
//! `builder` has the sandboxes in which Dockerfiles are built, `dockerfile` and `bases` say what they build on, `artifacts` keeps the bytes on the node that tags lead to.

mod artifacts;
mod bases;
mod builder;
mod dockerfile;
pub(crate) mod driver;
mod fault;
mod files;
mod machine;
mod plan;
mod run;

pub(crate) use builder::{BUILDER_USER_ID, has_image, missing as builder_missing};
pub(crate) use files::Files;
pub(crate) use machine::{Event, State};
pub use plan::Room;

use crate::context::Context;
use crate::store::StoreError;
use builder::Builders;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What the builds of one server share.
pub(crate) struct Builds {
    pub(crate) files: Files,
    /// Asks for a look at what is to be done.
    nudge: Notify,
    /// Builds that are under way here, each with what ends it.
    running: Mutex<HashMap<String, CancellationToken>>,
    builders: Builders,
    /// Read while a tag or a sandbox comes to need the bytes of a digest; written while bytes that nothing needs are let go.
    pub(crate) pins: tokio::sync::RwLock<()>,
}

impl Builds {
    pub(crate) fn new(data_dir: &Path) -> Self {
        Builds {
            files: Files::new(data_dir),
            nudge: Notify::new(),
            running: Mutex::default(),
            builders: Builders::default(),
            pins: tokio::sync::RwLock::default(),
        }
    }

    /// Says that there may be something to do.
    pub(crate) fn nudge(&self) {
        self.nudge.notify_one();
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        // No code panics while it holds the lock, and the map is whole at any time.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the work on builds that the store says are cancelled.
pub(crate) async fn cancelled(cx: &Context, ids: &[String]) {
    for id in ids {
        let running = cx.builds.running().get(id).cloned();
        match running {
            // Whoever works on it clears up.
            Some(cancel) => cancel.cancel(),
            None => run::settle(cx, id).await,
        }
    }
    cx.builds.nudge();
}

/// Ends the layer cache of an owner.
pub(crate) async fn drop_cache(cx: &Context, owner: &crate::images::Owner) -> Result<(), StoreError> {
    for id in cx.builds.builders.take_all(owner) {
        builder::end(cx, &id).await?;
    }
    Ok(())
}
