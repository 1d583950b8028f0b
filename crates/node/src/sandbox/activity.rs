//! Which operations are active in a sandbox: what the idle timeout counts.

use crate::host::now_ms;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Counts the active operations of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Activity(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    active: AtomicU64,
    last_ms: AtomicU64,
    changed: Notify,
}

/// One operation; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Operation(Activity);

impl Activity {
    pub(crate) fn new() -> Self {
        let counters = Counters { active: 0.into(), last_ms: now_ms().into(), changed: Notify::new() };
        Self(Arc::new(counters))
    }

    /// Starts an operation.
    pub(crate) fn begin(&self) -> Operation {
        self.0.active.fetch_add(1, Ordering::SeqCst);
        Operation(self.clone())
    }

    /// Operations that run now, and the end of the last one, milliseconds since 1970.
    pub(crate) fn now(&self) -> (u64, u64) {
        (self.0.active.load(Ordering::SeqCst), self.0.last_ms.load(Ordering::SeqCst))
    }

    /// Resolves after an operation ended.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let counters = &self.0.0;
        counters.last_ms.store(now_ms(), Ordering::SeqCst);
        counters.active.fetch_sub(1, Ordering::SeqCst);
        counters.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_nest() {
        let activity = Activity::new();
        let (a, b) = (activity.begin(), activity.begin());
        drop(a);
        assert_eq!(activity.now().0, 1);
        drop(b);
        assert_eq!(activity.now().0, 0);
    }
}
