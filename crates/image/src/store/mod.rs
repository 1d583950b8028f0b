//! The content-addressed store: names, records, disks, leases.
//!
//! ```text
//! images/lock               held by the one process that has the store open
//! images/tmp/               what is being made; emptied at open
//! images/disks/<hex>.ext4   a converted root file system, named by the image's digest
//! images/records/<hex>.json what is known of it; written after the disk, removed before it
//! images/names/<hex>.json   a reference and the digest that it leads to; the file is named by the reference's hash
//! ```
//! Every file is made in `tmp`, synced and renamed into place, so a kill at any moment leaves nothing half-made.

mod ensure;
mod files;
mod flight;
mod import;
mod index;
mod lease;
mod pin;

pub use lease::Lease;

use crate::progress::Progress;
use crate::registry::{Client, RegistryConfig};
use files::Files;
use flight::Flights;
use index::Index;
use lease::Leases;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;
use warren_model::reference::{Digest, Reference};
use warren_proto::node::{ImageBuild, ImageError, ImageRecord};

/// Disks that are made at the same time.
const CONVERSIONS_MAX: usize = 2;

/// How a store behaves.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Registries.
    pub registry: RegistryConfig,
    /// Whether a tag that is known here serves when its registry cannot be reached.
    pub offline_ok: bool,
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
}

/// An image that is ready, kept by its lease.
#[derive(Debug, Clone)]
pub struct Image {
    /// What is known of it.
    pub record: ImageRecord,
    /// Its root file system: raw ext4, never written to.
    pub disk: PathBuf,
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
    index: Mutex<Index>,
    leases: Leases,
    flights: Flights,
    builds: Mutex<BTreeMap<u64, Arc<Progress>>>,
    conversions: Semaphore,
    registry: Client,
    offline_ok: bool,
}

impl Store {
    /// Opens the store in `dir`, made if need be, and mends what a kill left behind. Nothing is garbage-collected yet:
    /// first take [`Store::lease`]s for what still runs, then call [`Store::collect`].
    pub fn open(dir: &Path, config: Config) -> Result<Self, StoreError> {
        let registry = Client::new(config.registry).map_err(StoreError::Registry)?;
        let files = Files::open(dir)?;
        let index = files.load().map_err(|error| StoreError::Io { path: dir.to_owned(), error })?;
        let shared = Shared {
            files,
            index: Mutex::new(index),
            leases: Leases::default(),
            flights: Flights::default(),
            builds: Mutex::default(),
            conversions: Semaphore::new(CONVERSIONS_MAX),
            registry,
            offline_ok: config.offline_ok,
        };
        Ok(Self { shared: Arc::new(shared) })
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

    /// Removes a name. The bytes go when no other name leads to them and the last lease has gone.
    pub async fn remove(&self, reference: &str) -> Result<(), ImageError> {
        let name = parse(reference)?.to_string();
        let shared = self.shared.clone();
        blocking(move || shared.remove(&name)).await
    }

    /// A lease on an image by digest, for a sandbox that already runs; `None` if it is not here.
    pub fn lease(&self, digest: &str) -> Option<Image> {
        let digest = Digest::parse(digest).ok()?;
        let index = self.shared.index();
        let record = index.record(&digest)?;
        Some(self.shared.image(&index, &digest, record))
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
    fn image(self: &Arc<Self>, _locked: &Index, digest: &Digest, record: ImageRecord) -> Image {
        Image { record, disk: self.files.disk(digest), lease: Lease::take(self, digest) }
    }

    fn remove(&self, name: &str) -> Result<(), ImageError> {
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
        Ok(())
    }

    /// Removes an image if nothing keeps it. Whether it went.
    pub(crate) fn collect(&self, digest: &Digest) -> bool {
        let mut index = self.index();
        if self.leases.held(digest) || !index.is_unnamed(digest) {
            return false;
        }
        match self.files.remove_image(digest) {
            Ok(()) => {
                index.forget(digest);
                true
            }
            Err(error) => {
                tracing::warn!(%digest, error = chain(&error), "image cannot be removed; tried again at the next start");
                false
            }
        }
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
