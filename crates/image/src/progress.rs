//! How far a build is, readable at any time.

use crate::store::lock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
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
    scope: Option<String>,
    began: Instant,
    step: AtomicU8,
    pulled: Done,
    converted: Done,
    /// Of the pulled bytes, those that were here before.
    cached: AtomicU64,
    total: Total,
    waits: Mutex<Vec<(u64, Wait)>>,
    /// Another build that this one waits for.
    followed: OnceLock<Arc<Progress>>,
}

#[derive(Debug, Default)]
struct Done {
    bytes: AtomicU64,
    layers: AtomicU64,
}

#[derive(Debug, Default)]
struct Total {
    bytes: AtomicU64,
    layers: AtomicU64,
}

/// Something that a build waits for.
#[derive(Debug, Clone)]
pub(crate) enum Wait {
    /// A registry that has to be asked again later.
    Registry {
        /// What happened, with the registry's name: `rate limited by docker.io`.
        why: String,
        /// When it is asked again.
        until: Instant,
        /// Which try that will be.
        attempt: u32,
    },
    /// Something of this node.
    Turn(&'static str),
}

/// Takes a [`Wait`] away when it is over.
#[derive(Debug)]
pub(crate) struct Waiting<'p> {
    progress: &'p Progress,
    key: u64,
}

impl Progress {
    /// Of a build that starts now. `scope`: whose it is, unless it may be shown to everybody.
    pub(crate) fn new(reference: String, scope: Option<String>) -> Arc<Self> {
        Arc::new(Self {
            id: format!("img-{}", uuid::Uuid::new_v4().simple()),
            reference,
            scope,
            began: Instant::now(),
            step: AtomicU8::new(Step::Resolving as u8),
            pulled: Done::default(),
            converted: Done::default(),
            cached: AtomicU64::new(0),
            total: Total::default(),
            waits: Mutex::default(),
            followed: OnceLock::new(),
        })
    }

    /// What is built.
    pub(crate) fn reference(&self) -> &str {
        &self.reference
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// All layers together have so many bytes, and there are so many of them.
    pub(crate) fn set_total(&self, bytes: u64, layers: usize) {
        self.total.bytes.store(bytes, Ordering::Relaxed);
        self.total.layers.store(layers as u64, Ordering::Relaxed);
    }

    /// A step begins.
    pub(crate) fn start(&self, step: Step) {
        self.step.store(step as u8, Ordering::Relaxed);
    }

    /// So many bytes of layers have come from the registry.
    pub(crate) fn add_pulled(&self, bytes: u64) {
        self.pulled.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes have to come again.
    pub(crate) fn take_pulled(&self, bytes: u64) {
        self.pulled.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A layer of so many bytes was here before.
    pub(crate) fn add_cached(&self, bytes: u64) {
        self.cached.fetch_add(bytes, Ordering::Relaxed);
        self.add_pulled(bytes);
    }

    /// A layer is here.
    pub(crate) fn layer_pulled(&self) {
        self.pulled.layers.fetch_add(1, Ordering::Relaxed);
    }

    /// So many bytes of layers have gone into the disk.
    pub(crate) fn add_converted(&self, bytes: u64) {
        self.converted.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A layer is in the disk.
    pub(crate) fn layer_converted(&self) {
        self.converted.layers.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of layers that came over the network.
    pub(crate) fn fetched_bytes(&self) -> u64 {
        let cached = self.cached.load(Ordering::Relaxed);
        self.pulled.bytes.load(Ordering::Relaxed).saturating_sub(cached)
    }

    /// Bytes of all layers.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total.bytes.load(Ordering::Relaxed)
    }

    /// Shows what is waited for until the answer is dropped.
    pub(crate) fn wait(&self, wait: Wait) -> Waiting<'_> {
        let mut waits = lock(&self.waits);
        let key = waits.last().map_or(0, |(last, _)| last + 1);
        waits.push((key, wait));
        Waiting { progress: self, key }
    }

    /// From now on `other` tells how far this is.
    pub(crate) fn follow(&self, other: &Arc<Progress>) {
        // A build waits for one other at most; a second call changes nothing.
        let _ = self.followed.set(other.clone());
    }

    /// How it stands.
    pub(crate) fn snapshot(&self) -> ImageBuild {
        let mut source = self;
        while let Some(next) = source.followed.get() {
            source = next;
        }
        let total = |value: &AtomicU64| Some(value.load(Ordering::Relaxed)).filter(|total| *total > 0);
        let done = |done: &Done| (done.bytes.load(Ordering::Relaxed), done.layers.load(Ordering::Relaxed));
        let (step, (bytes_done, layers_done)) = match source.step.load(Ordering::Relaxed) {
            s if s == Step::Resolving as u8 => ("resolving", (0, 0)),
            s if s == Step::Pulling as u8 => ("pulling", done(&source.pulled)),
            _ => ("converting", done(&source.converted)),
        };
        let now = Instant::now();
        let waiting = lock(&source.waits).last().map(|(_, wait)| wait.text(now));
        ImageBuild {
            id: self.id.clone(),
            reference: self.reference.clone(),
            step: step.to_owned(),
            bytes_done,
            bytes_total: total(&source.total.bytes),
            layers_done,
            layers_total: total(&source.total.layers),
            waiting,
            scope: self.scope.clone(),
        }
    }
}

impl Wait {
    fn text(&self, now: Instant) -> String {
        match self {
            Self::Turn(what) => (*what).to_owned(),
            Self::Registry { why, until, attempt } => {
                let left = until.saturating_duration_since(now).as_secs_f64().ceil();
                format!("{why}, next try in {left} s, attempt {attempt}")
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.progress.waits).retain(|(key, _)| *key != self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_tells_what_it_waits_for_and_those_who_follow_it_too() {
        let (build, follower, last) = (
            Progress::new("a".into(), None),
            Progress::new("b".into(), None),
            Progress::new("c".into(), Some("user:1".into())),
        );
        follower.follow(&build);
        last.follow(&follower);
        build.start(Step::Pulling);
        build.set_total(100, 3);
        build.add_cached(40);
        build.layer_pulled();
        let until = Instant::now() + Duration::from_millis(11_500);
        let turn = build.wait(Wait::Turn("its turn"));
        let registry = Wait::Registry { why: "rate limited by docker.io".into(), until, attempt: 3 };
        let registry = build.wait(registry);
        let seen = last.snapshot();
        assert_eq!((seen.reference.as_str(), seen.bytes_done, seen.bytes_total), ("c", 40, Some(100)));
        assert_eq!((seen.scope.as_deref(), build.snapshot().scope), (Some("user:1"), None));
        assert_eq!((seen.layers_done, seen.layers_total, build.fetched_bytes()), (1, Some(3), 0));
        assert_eq!(seen.waiting.as_deref(), Some("rate limited by docker.io, next try in 12 s, attempt 3"));
        drop(registry);
        assert_eq!(last.snapshot().waiting.as_deref(), Some("its turn"));
        drop(turn);
        assert_eq!(last.snapshot().waiting, None);
    }
}
