//! Wakes those who wait for a change of a sandbox.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use warren_model::SandboxId;

/// Who waits for which sandbox.
#[derive(Default)]
pub(crate) struct Changes {
    waiting: Mutex<HashMap<SandboxId, Vec<Arc<Notify>>>>,
}

/// Waits for changes of some sandboxes from its making on. Dropping it ends that.
pub(crate) struct Waiter<'a> {
    changes: &'a Changes,
    ids: Vec<SandboxId>,
    notify: Arc<Notify>,
}

impl Changes {
    /// Begins to listen: a change after this call is never missed.
    pub(crate) fn listen(&self, ids: Vec<SandboxId>) -> Waiter<'_> {
        let notify = Arc::new(Notify::new());
        let mut waiting = self.lock();
        for id in &ids {
            waiting.entry(id.clone()).or_default().push(notify.clone());
        }
        drop(waiting);
        Waiter { changes: self, ids, notify }
    }

    /// Tells all who wait for `id`.
    pub(crate) fn tell(&self, id: &SandboxId) {
        for notify in self.lock().get(id).into_iter().flatten() {
            notify.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Vec<Arc<Notify>>>> {
        // No code panics while it holds the lock, and the map is whole at any time.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter<'_> {
    /// Ends at the next change, `true`, or at `deadline`, `false`. A change since the last call counts.
    pub(crate) async fn changed(&self, deadline: Instant) -> bool {
        timeout_at(deadline, self.notify.notified()).await.is_ok()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiting = self.changes.lock();
        for id in &self.ids {
            if let Some(list) = waiting.get_mut(id) {
                list.retain(|notify| !Arc::ptr_eq(notify, &self.notify));
                if list.is_empty() {
                    waiting.remove(id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_change_before_the_wait_is_not_missed_and_nothing_is_left() {
        let changes = Changes::default();
        let ids = [1, 2].map(SandboxId::from_bits);
        let waiter = changes.listen(ids.to_vec());
        let other = changes.listen(vec![ids[0].clone()]);
        changes.tell(&ids[1]);
        assert!(waiter.changed(Instant::now() + Duration::from_secs(5)).await);
        assert!(!other.changed(Instant::now()).await);
        drop((waiter, other));
        assert!(changes.lock().is_empty());
    }
}
