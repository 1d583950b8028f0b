//! How far a build is, readable at any time.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use warren_proto::node::ImageBuild;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Asking what the reference means.
    Resolving,
    /// Fetching layers; those that are here are converted meanwhile.
    Pulling,
    /// Making the disk, all layers being here.
    Converting,
}

/// Progress of one build.
#[derive(Debug)]
pub(crate) struct Progress {
    id: String,
    reference: String,
    step: AtomicU8,
    pulled: AtomicU64,
    converted: AtomicU64,
    total: AtomicU64,
    /// Another build that this one waits for.
    followed: OnceLock<Arc<Progress>>,
}

impl Progress {
    /// Of a build that starts now.
    pub(crate) fn new(reference: String) -> Arc<Self> {
        Arc::new(Self {
            id: format!("img-{}", uuid::Uuid::new_v4().simple()),
            reference,
            step: AtomicU8::new(Step::Resolving as u8),
            pulled: AtomicU64::new(0),
            converted: AtomicU64::new(0),
            total: AtomicU64::new(0),
            followed: OnceLock::new(),
        })
    }

    /// All layers together have so many bytes.
    pub(crate) fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    /// A step begins.
    pub(crate) fn start(&self, step: Step) {
        self.step.store(step as u8, Ordering::Relaxed);
    }

    /// So many bytes of layers have come from the registry.
    pub(crate) fn add_pulled(&self, bytes: u64) {
        self.pulled.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes have to come again.
    pub(crate) fn take_pulled(&self, bytes: u64) {
        self.pulled.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// So many bytes of layers have gone into the disk.
    pub(crate) fn add_converted(&self, bytes: u64) {
        self.converted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// From now on `other` tells how far this is.
    pub(crate) fn follow(&self, other: &Arc<Progress>) {
        // A build waits for one other at most; a second call changes nothing.
        let _ = self.followed.set(other.clone());
    }

    /// How it stands.
    pub(crate) fn snapshot(&self) -> ImageBuild {
        let source = self.followed.get().map_or(self, |other| other);
        let total = source.total.load(Ordering::Relaxed);
        let (step, done) = match source.step.load(Ordering::Relaxed) {
            s if s == Step::Resolving as u8 => ("resolving", 0),
            s if s == Step::Pulling as u8 => ("pulling", source.pulled.load(Ordering::Relaxed)),
            _ => ("converting", source.converted.load(Ordering::Relaxed)),
        };
        ImageBuild {
            id: self.id.clone(),
            reference: self.reference.clone(),
            step: step.to_owned(),
            bytes_done: done,
            bytes_total: (total > 0).then_some(total),
        }
    }
}
