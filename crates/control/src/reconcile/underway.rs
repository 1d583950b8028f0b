//! Which sandboxes, or snapshots, have an effect under way, so that a plan does not begin the same a second time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
/// Effects that have begun and not ended, by the object's id.
#[derive(Clone)]
pub(crate) struct Underway<Id: Hash + Eq + Clone> {
    counts: Arc<Mutex<HashMap<Id, usize>>>,
}

/// One effect; it has ended when this is dropped.
pub(crate) struct Begun<Id: Hash + Eq + Clone> {
    underway: Underway<Id>,
    id: Id,
}

impl<Id: Hash + Eq + Clone> Default for Underway<Id> {
    fn default() -> Self {
        Underway { counts: Arc::default() }
    }
}

impl<Id: Hash + Eq + Clone> Underway<Id> {
    /// Notes an effect, whatever else is under way: for requests of clients.
    pub(crate) fn begin(&self, id: &Id) -> Begun<Id> {
        *self.lock().entry(id.clone()).or_default() += 1;
        Begun { underway: self.clone(), id: id.clone() }
    }

    /// Notes an effect unless one is under way: for plans, which come again.
    pub(crate) fn try_begin(&self, id: &Id) -> Option<Begun<Id>> {
        let mut counts = self.lock();
        if counts.contains_key(id) {
            return None;
        }
        counts.insert(id.clone(), 1);
        Some(Begun { underway: self.clone(), id: id.clone() })
    }

    /// Whether an effect is under way.
    pub(crate) fn is_begun(&self, id: &Id) -> bool {
        self.lock().contains_key(id)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Id, usize>> {
        // No code panics while it holds the lock, and the map is whole at any time.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Id: Hash + Eq + Clone> Drop for Begun<Id> {
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
    use warren_model::SandboxId;

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
