//! Which sandboxes have an effect under way, so that a plan does not begin the same a second time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warren_model::SandboxId;

/// Effects that have begun and not ended, by sandbox.
#[derive(Clone, Default)]
pub(crate) struct Underway {
    counts: Arc<Mutex<HashMap<SandboxId, usize>>>,
}

/// One effect; it has ended when this is dropped.
pub(crate) struct Begun {
    underway: Underway,
    id: SandboxId,
}

impl Underway {
    /// Notes an effect, whatever else is under way: for requests of clients.
    pub(crate) fn begin(&self, id: &SandboxId) -> Begun {
        *self.lock().entry(id.clone()).or_default() += 1;
        Begun { underway: self.clone(), id: id.clone() }
    }

    /// Notes an effect unless one is under way: for plans, which come again.
    pub(crate) fn try_begin(&self, id: &SandboxId) -> Option<Begun> {
        let mut counts = self.lock();
        if counts.contains_key(id) {
            return None;
        }
        counts.insert(id.clone(), 1);
        Some(Begun { underway: self.clone(), id: id.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, usize>> {
        // No code panics while it holds the lock, and the map is whole at any time.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut counts = self.underway.lock();
        match counts.get_mut(&self.id) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_waits_for_the_last_effect() {
        let underway = Underway::default();
        let id = SandboxId::from_bits(1);
        let (one, two) = (underway.begin(&id), underway.begin(&id));
        drop(one);
        assert!(underway.try_begin(&id).is_none());
        drop(two);
        let again = underway.try_begin(&id);
        assert!(again.is_some() && underway.try_begin(&id).is_none());
        drop(again);
        assert!(underway.lock().is_empty());
    }
}
