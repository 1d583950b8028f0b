use super::{Shared, lock};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use warren_model::reference::Digest;

/// Keeps an image's disk. A clone is the same lease; the last one to go lets the disk go if no name keeps it.
#[derive(Clone)]
pub struct Lease {
    held: Arc<Held>,
}

/// How many leases each image has.
#[derive(Debug, Default)]
pub(super) struct Leases {
    counts: Mutex<HashMap<Digest, usize>>,
}

struct Held {
    digest: Digest,
    store: Weak<Shared>,
}

impl Lease {
    /// Digest of the image that it keeps.
    pub fn digest(&self) -> &Digest {
        &self.held.digest
    }

    /// A new lease. The index must be locked, so that the image cannot go before.
    pub(super) fn take(store: &Arc<Shared>, digest: &Digest) -> Self {
        *lock(&store.leases.counts).entry(digest.clone()).or_default() += 1;
        Self { held: Arc::new(Held { digest: digest.clone(), store: Arc::downgrade(store) }) }
    }
}

impl Leases {
    /// Whether anybody holds the image.
    pub(super) fn held(&self, digest: &Digest) -> bool {
        lock(&self.counts).contains_key(digest)
    }

    /// Takes one away; whether it was the last.
    fn release(&self, digest: &Digest) -> bool {
        let mut counts = lock(&self.counts);
        match counts.get_mut(digest) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            _ => counts.remove(digest).is_some(),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(store) = self.store.upgrade()
            && store.leases.release(&self.digest)
        {
            store.collect(&self.digest);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({})", self.held.digest)
    }
}
