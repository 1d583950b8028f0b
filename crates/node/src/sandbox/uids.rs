//! Users of this machine that nobody else has: one for each sandbox whose shim is locked in.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The first of them. Numbers from here to 2^31 - 1 are left free by all of the conventions that give out ranges of users.
const FIRST: u32 = 0x7000_0000;
/// How many there are.
const COUNT: u32 = 1 << 20;

/// Which users are taken.
#[derive(Debug, Default)]
pub(crate) struct Uids {
    taken: Mutex<BTreeSet<u32>>,
}

/// A user that is taken; free again when dropped.
#[derive(Debug)]
pub(crate) struct TakenUid {
    uids: Arc<Uids>,
    uid: u32,
}

impl Uids {
    fn taken(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a free one; `None` if there is none.
    pub(crate) fn take(self: &Arc<Self>) -> Option<TakenUid> {
        let mut taken = self.taken();
        let uid = (FIRST..FIRST + COUNT).find(|uid| !taken.contains(uid))?;
        taken.insert(uid);
        Some(TakenUid { uids: self.clone(), uid })
    }

    /// Takes the one that a sandbox of an earlier run has.
    pub(crate) fn take_again(self: &Arc<Self>, uid: u32) -> TakenUid {
        self.taken().insert(uid);
        TakenUid { uids: self.clone(), uid }
    }
}

impl TakenUid {
    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.uid
    }
}

impl Drop for TakenUid {
    fn drop(&mut self) {
        self.uids.taken().remove(&self.uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_sandboxes_have_the_same() {
        let uids = Arc::new(Uids::default());
        let adopted = uids.take_again(FIRST + 1);
        let (first, second) = (uids.take().unwrap(), uids.take().unwrap());
        assert_eq!((first.number(), adopted.number(), second.number()), (FIRST, FIRST + 1, FIRST + 2));
        drop(adopted);
        assert_eq!(uids.take().unwrap().number(), FIRST + 1);
    }
}
