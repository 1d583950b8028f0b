//! The content-addressed store: names, records, disks, leases.
//!
//! ```text
//! images/lock               held by the one process that has the store open
//! images/tmp/               what is being made; emptied at open
//! images/chunks             the bytes of all disks, see `chunks`
//! images/manifests/<hex>    which chunks the root file system of an image is made of; named by the image's digest
//! images/records/<hex>.json what is known of it; written after the manifest, removed before it
//! images/artifacts/<hex>    of an image that the object store has, too: where it has its chunks
//! images/arriving/<hex>     the same, of one whose chunks are still to come from there; moves to `artifacts` once all are here
//! images/blobs/             what registries gave, by digest; see [`crate::registry::Blobs`]
//! images/names/<hex>.json   a reference and the digest that it leads to; the file is named by the reference's hash
//! ```
//! Every file is made in `tmp`, synced and renamed into place, so a kill at any moment leaves nothing half-made.

mod arrive;
mod asked;
mod blank;
mod ensure;
mod files;
mod flight;
mod gc;
mod import;
mod index;
mod layered;
mod lease;
mod make;
mod pin;
mod quota;
mod rescue;

pub use ensure::Ask;
pub use layered::Layered;
pub use lease::Lease;

use crate::chunks::{Chunks, Disk};
use crate::progress::Progress;
use crate::registry::{Blobs, Client, RegistryConfig};
use crate::remote::{Arrival, Remote};
use asked::Asked;
use files::{Files, millis};
use flight::Flights;
use index::Index;
use lease::Leases;
use rescue::Origin;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;
use warren_model::reference::{Digest, Reference};
use warren_proto::node::{ImageBuild, ImageError, ImageRecord};

/// Layers that are converted at the same time.
const CONVERSIONS_MAX: usize = 2;
/// Time for which a tag is not asked about again, if the operator says nothing.
const TAG_FRESH_DEFAULT: Duration = Duration::from_secs(300);
/// Bytes of layers that are kept as they came, if the operator says nothing.
const BLOBS_BYTES_DEFAULT: u64 = 10 << 30;

/// How a store behaves.
#[derive(Debug, Clone)]
pub struct Config {
    /// Registries.
    pub registry: RegistryConfig,
    /// Whether a tag that is known here serves when its registry cannot be reached.
    pub offline_ok: bool,
    /// Time for which a registry is not asked again what a tag means.
    pub tag_fresh: Duration,
    /// Bytes of layers, manifests and configs that are kept as they came.
    pub blobs_bytes: u64,
    /// Bytes of images above which those that registries can give again go, the least recently used first. `None`: what leaves a
    /// tenth of the file system free.
    pub quota_bytes: Option<u64>,
    /// URL of an object store that images are kept in, too, and come from: `file:///folder`, `s3://bucket/prefix`, `http(s)://host/prefix`.
    pub objects: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            registry: RegistryConfig::default(),
            offline_ok: false,
            tag_fresh: TAG_FRESH_DEFAULT,
            blobs_bytes: BLOBS_BYTES_DEFAULT,
            quota_bytes: None,
            objects: None,
        }
    }
}

/// A store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("the image store {0:?} is in use by another process")]
    Locked(PathBuf),
    /// The file system refused something.
    #[error("the image store {path:?} cannot be used")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The configuration of registries makes no sense.
    #[error("registries: {0}")]
    Registry(String),
    /// The URL of the object store makes no sense.
    #[error("object store {url:?}: {problem}")]
    Objects {
        /// As given.
        url: String,
        /// What is wrong.
        problem: String,
    },
}

/// An image that is ready, kept by its lease.
#[derive(Debug, Clone)]
pub struct Image {
    /// What is known of it.
    pub record: ImageRecord,
    /// Its root file system: ext4, never written to.
    pub disk: Disk,
    /// While its bytes are still on their way: what reads the disk and waits for them. The disk itself must not be read then.
    pub arrival: Option<Arc<Arrival>>,
    /// Keeps the disk while it lives.
    pub lease: Lease,
}

/// The store. A clone is another handle.
#[derive(Debug, Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    files: Files,
    chunks: Chunks,
    index: Mutex<Index>,
    leases: Leases,
    flights: Flights,
    builds: Mutex<BTreeMap<u64, Arc<Progress>>>,
    conversions: Semaphore,
    registry: Client,
    asked: Mutex<Asked>,
    offline_ok: bool,
    tag_fresh: Duration,
    quota_bytes: Option<u64>,
    remote: Option<Remote>,
    /// Images whose chunks are still to come.
    arrivals: Mutex<HashMap<Digest, Arc<Arrival>>>,
    /// Where those can be had if the object store fails.
    origins: Mutex<HashMap<Digest, Origin>>,
    /// Images that go to the object store, one after the other.
    uploads: tokio::sync::Mutex<()>,
}

impl Store {
    /// Opens the store in `dir`, made if need be, and mends what a kill left behind; within a tokio runtime. Nothing is garbage-collected yet:
    /// first take [`Store::lease`]s for what still runs, then call [`Store::collect`].
    pub fn open(dir: &Path, config: Config) -> Result<Self, StoreError> {
        let files = Files::open(dir)?;
        let failed = |error| StoreError::Io { path: dir.to_owned(), error };
        let chunks = Chunks::open(&files.chunks()).map_err(failed)?;
        let remote =
            config.objects.map(|url| Remote::open(&url).map_err(|problem| StoreError::Objects { url, problem }));
        let remote = remote.transpose()?;
        let (index, arriving) = files.load(&chunks, remote.is_some()).map_err(failed)?;
        let blobs = Blobs::open(dir, config.blobs_bytes).map_err(failed)?;
        let registry = Client::new(config.registry, blobs).map_err(StoreError::Registry)?;
        let shared = Shared {
            files,
            chunks,
            index: Mutex::new(index),
            leases: Leases::default(),
            flights: Flights::default(),
            builds: Mutex::default(),
            conversions: Semaphore::new(CONVERSIONS_MAX),
            registry,
            asked: Mutex::default(),
            offline_ok: config.offline_ok,
            tag_fresh: config.tag_fresh,
            quota_bytes: config.quota_bytes,
            remote,
            arrivals: Mutex::default(),
            origins: Mutex::default(),
            uploads: tokio::sync::Mutex::default(),
        };
        let store = Self { shared: Arc::new(shared) };
        arriving.into_iter().for_each(|arriving| store.shared.resume(arriving));
        if store.shared.remote.is_some() {
            store.shared.offer_all();
        }
        Ok(store)
    }

    /// Every name with what it leads to, ordered by name.
    pub fn list(&self) -> Vec<ImageRecord> {
        self.shared.index().list()
    }

    /// What a name leads to, without asking a registry.
    pub fn get(&self, reference: &str) -> Option<ImageRecord> {
        let reference = Reference::parse(reference).ok()?;
        self.shared.index().named(&reference.to_string())
    }

    /// Removes a name. The bytes go when no other name leads to them and the last lease has gone; whether a lease keeps them.
    pub async fn remove(&self, reference: &str) -> Result<bool, ImageError> {
        let name = parse(reference)?.to_string();
        let shared = self.shared.clone();
        blocking(move || shared.remove(&name)).await
    }

    /// A lease on an image by digest, for a sandbox that already runs; `None` if it is not here.
    pub fn lease(&self, digest: &str) -> Option<Image> {
        let digest = Digest::parse(digest).ok()?;
        let mut index = self.shared.index();
        let record = index.record(&digest)?;
        self.shared.image(&mut index, &digest, record)
    }

    /// Removes everything that no name and no lease keeps. How many images went.
    pub async fn collect(&self) -> usize {
        let shared = self.shared.clone();
        blocking(move || {
            let unnamed = shared.index().unnamed();
            unnamed.iter().filter(|digest| shared.collect(digest)).count()
        })
        .await
    }

    /// Pulls and conversions under way.
    pub fn builds(&self) -> Vec<ImageBuild> {
        lock(&self.shared.builds).values().map(|progress| progress.snapshot()).collect()
    }

    /// The build of one reference, if there is one.
    pub fn build_for(&self, reference: &str) -> Option<ImageBuild> {
        let name = Reference::parse(reference).ok()?.to_string();
        self.builds().into_iter().find(|build| build.reference == name)
    }
}

impl Shared {
    fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }

    /// An image with a new lease. That the index is locked keeps the image until the lease is there.
    fn image(self: &Arc<Self>, index: &mut Index, digest: &Digest, record: ImageRecord) -> Option<Image> {
        let stored = index.stored(digest)?;
        let disk = self.chunks.disk(stored.header, stored.size);
        let now = SystemTime::now();
        if index.used(digest, millis(now))
            && let Err(error) = self.files.note_use(digest, now)
        {
            tracing::warn!(%digest, %error, "the use of an image cannot be written down");
        }
        let arrival = lock(&self.arrivals).get(digest).cloned();
        arrival.iter().for_each(|arrival| arrival.try_again());
        Some(Image { record, disk, arrival, lease: Lease::take(self, digest) })
    }

    fn remove(&self, name: &str) -> Result<bool, ImageError> {
        let digest = {
            let mut index = self.index();
            let digest = index.named_digest(name).ok_or_else(|| {
                image_error(name, "not_found", "there is no image of this name; see the list of images".to_owned())
            })?;
            self.files.remove_name(name).map_err(|e| image_error(name, "failed", chain(&e)))?;
            index.forget_name(name);
            digest
        };
        self.collect(&digest);
        Ok(self.leases.held(&digest))
    }

    /// Removes an image if nothing keeps it. Whether it went.
    pub(crate) fn collect(&self, digest: &Digest) -> bool {
        let manifest = {
            let mut index = self.index();
            if self.leases.held(digest) || !index.is_unnamed(digest) {
                return false;
            }
            let manifest = self.files.read_manifest(digest);
            match manifest.and_then(|manifest| self.files.remove_image(digest).map(|()| manifest)) {
                Ok(manifest) => {
                    index.forget(digest);
                    if let Some(arrival) = lock(&self.arrivals).remove(digest) {
                        lock(&self.origins).remove(digest);
                        arrival.give_up();
                    }
                    manifest
                }
                Err(error) => {
                    tracing::warn!(%digest, error = chain(&error), "image cannot be removed; tried again at the next start");
                    return false;
                }
            }
        };
        // One that cannot be read is swept up at the next start.
        manifest.iter().for_each(|manifest| self.chunks.release(manifest));
        true
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what blocks away from the runtime's own threads, to its end even if the caller goes away.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is being shut down; nobody waits for an answer.
            Err(_) => std::future::pending().await,
        },
    }
}

pub(crate) fn parse(reference: &str) -> Result<Reference, ImageError> {
    Reference::parse(reference).map_err(|e| {
        let shown: String = reference.chars().filter(|c| !c.is_control()).take(80).collect();
        image_error(&shown, "bad_reference", e.to_string())
    })
}

pub(crate) fn image_error(reference: &str, code: &'static str, message: String) -> ImageError {
    ImageError { reference: reference.to_owned(), code, message }
}

/// An error with all its causes, for people.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
