use super::files::millis;
use super::flight::Outcome;
use super::index::{Index, Name, Stored};
use super::{Image, Shared, Store, blocking, chain, image_error, lock, parse};
use crate::chunks::Manifest;
use crate::oci::Config;
use crate::progress::{Progress, Step};
use crate::registry::{PullError, Resolved};
use crate::source::{self, BuildError, Built, Package};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use warren_model::reference::{Digest, Reference};
use warren_proto::node::{ImageError, ImageRecord};

impl Store {
    /// Makes the image ready and leases it. A tag is asked of its registry each time; an imported name or a digest that
    /// is here is not. However many ask for the same image at once, there is one pull and one conversion, which goes on
    /// even if all who asked go away.
    pub async fn ensure(&self, reference: &str) -> Result<Image, ImageError> {
        let reference = parse(reference)?;
        let name = reference.to_string();
        if let Some(image) = self.shared.local(&reference, &name) {
            return Ok(image);
        }
        if reference.registry().is_none() {
            let advice = "no image of this name was imported on this node".to_owned();
            return Err(image_error(&name, "not_found", advice));
        }
        let progress = Progress::new(name.clone());
        let shared = self.shared.clone();
        let flights = shared.flights.clone();
        flights.join(&name.clone(), &progress.clone(), || shared.ensure(reference, name, progress)).await
    }
}

impl Shared {
    /// An image that needs no registry.
    fn local(self: &Arc<Self>, reference: &Reference, name: &str) -> Option<Image> {
        let mut index = self.index();
        let known = index.name(name).filter(|n| n.resolved.is_none() || reference.digest().is_some());
        let digest = known.map(|n| &n.digest).or(reference.digest())?.clone();
        let record = ImageRecord { reference: name.to_owned(), ..index.record(&digest)? };
        self.image(&mut index, &digest, record)
    }

    async fn ensure(self: Arc<Self>, reference: Reference, name: String, progress: Arc<Progress>) -> Outcome {
        let _listed = Listed::new(self.clone(), progress.clone());
        match self.resolve(&reference, &name).await {
            Ok(Found::Here(image)) => Ok(*image),
            Ok(Found::There(resolved)) => self.pull(&reference, name, *resolved, progress).await,
            Err(error) if self.offline_ok && error.is_unreachable() => match self.known(&name) {
                Some(image) => Ok(image),
                None => Err(pull_error(&name, &error)),
            },
            Err(error) => Err(pull_error(&name, &error)),
        }
    }

    /// What the registry says the reference is now; the image, if it is here already.
    async fn resolve(self: &Arc<Self>, reference: &Reference, name: &str) -> Result<Found, PullError> {
        let known = self.index().name(name).and_then(|n| n.resolved.clone());
        if let Some(known) = known
            && self.registry.head(reference).await? == Some(known)
            && let Some(image) = self.known(name)
        {
            return Ok(Found::Here(Box::new(image)));
        }
        let resolved = self.registry.resolve(reference).await?;
        Ok(Found::There(Box::new(resolved)))
    }

    /// The image that the name leads to, whatever the registry says.
    fn known(self: &Arc<Self>, name: &str) -> Option<Image> {
        let mut index = self.index();
        let record = index.named(name)?;
        let digest = index.named_digest(name)?;
        self.image(&mut index, &digest, record)
    }

    async fn pull(
        self: &Arc<Self>,
        reference: &Reference,
        name: String,
        resolved: Resolved,
        progress: Arc<Progress>,
    ) -> Outcome {
        let digest = resolved.digest.clone();
        let asked = resolved.asked.clone();
        let flights = self.flights.clone();
        let image = flights
            .join(digest.as_str(), &progress, || {
                self.clone().make(reference.clone(), name.clone(), resolved, progress.clone())
            })
            .await
            .map_err(|error| ImageError { reference: name.clone(), ..error })?;
        let shared = self.clone();
        // The lease of `image` keeps it until the name does.
        blocking(move || shared.name(name, image, Some(asked))).await
    }

    /// Pulls and converts one digest, unless that was done since it was asked for.
    async fn make(
        self: Arc<Self>,
        reference: Reference,
        name: String,
        resolved: Resolved,
        progress: Arc<Progress>,
    ) -> Outcome {
        let here = {
            let mut index = self.index();
            let record = index.record(&resolved.digest);
            record.and_then(|record| self.image(&mut index, &resolved.digest, record))
        };
        if let Some(image) = here {
            return Ok(image);
        }
        if let Some(image) = self.arrive(&name, &resolved.digest).await {
            return Ok(image);
        }
        let scratch = || self.files.scratch();
        let package = self.registry.package(&reference, resolved, scratch, &progress).await;
        let package = package.map_err(|e| pull_error(&name, &e))?;
        self.convert(&name, package, progress).await
    }

    /// Makes the disk of a package and takes it into the store, without a name yet.
    pub(super) async fn convert(self: &Arc<Self>, name: &str, package: Package, progress: Arc<Progress>) -> Outcome {
        // Never closed.
        let _permit = self.conversions.acquire().await.ok();
        progress.set_total(package.bytes);
        let shared = self.clone();
        let name = name.to_owned();
        blocking(move || {
            let target = shared.chunks.writer();
            let built = source::build(package, target, &progress).map_err(|e| build_error(&name, &e))?;
            let image = shared.admit(&name, built)?;
            shared.keep_quota();
            Ok(image)
        })
        .await
        .inspect(|image| self.offer(image))
    }

    fn admit(self: &Arc<Self>, name: &str, built: Built) -> Outcome {
        let record = record(name, &built);
        let mut index = self.index();
        self.add(&mut index, &built.digest, &record, &built.manifest)
            .map_err(|e| build_error(name, &BuildError::Write(e)))?;
        self.image(&mut index, &built.digest, record)
            .ok_or_else(|| image_error(name, "failed", "the image went while it was being made".to_owned()))
    }

    /// Adds an image unless it is there; then its new disk goes: an import of the same content may have come first, and is as good.
    pub(super) fn add(
        &self,
        index: &mut Index,
        digest: &Digest,
        record: &ImageRecord,
        disk: &Manifest,
    ) -> io::Result<()> {
        let added = match index.record(digest) {
            Some(_) => Ok(false),
            None => self.files.add_image(digest, record, disk).map(|()| true),
        };
        match added {
            Ok(true) => index.add(digest.clone(), Stored::new(record.clone(), disk, now_ms())),
            _ => self.chunks.release(disk),
        }
        added.map(drop)
    }

    /// Gives an image that is in the store a name; what the name led to before may go.
    pub(super) fn name(&self, name: String, image: Image, resolved: Option<Digest>) -> Outcome {
        let digest = image.lease.digest().clone();
        let to = Name { digest, resolved };
        let old = {
            let mut index = self.index();
            if index.name(&name) != Some(&to) {
                self.files.write_name(&name, &to).map_err(|e| build_error(&name, &BuildError::Write(e)))?;
            }
            index.set_name(name.clone(), to)
        };
        if let Some(old) = old {
            self.collect(&old);
        }
        Ok(Image { record: ImageRecord { reference: name, ..image.record }, ..image })
    }
}

/// Where an image was found.
enum Found {
    Here(Box<Image>),
    There(Box<Resolved>),
}

/// Shows a build to [`Store::builds`] while it lives.
pub(super) struct Listed {
    shared: Arc<Shared>,
    key: u64,
}

impl Listed {
    pub(super) fn new(shared: Arc<Shared>, progress: Arc<Progress>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let key = NEXT.fetch_add(1, Ordering::Relaxed);
        progress.start(Step::Resolving);
        lock(&shared.builds).insert(key, progress);
        Self { shared, key }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.shared.builds).remove(&self.key);
    }
}

fn now_ms() -> u64 {
    millis(SystemTime::now())
}

fn record(name: &str, built: &Built) -> ImageRecord {
    let Config { architecture, env, user, workdir, entrypoint, cmd, diff_ids: _ } = built.config.clone();
    ImageRecord {
        reference: name.to_owned(),
        digest: built.digest.to_string(),
        size_bytes: built.summary.used,
        created_at_ms: now_ms(),
        env,
        user,
        workdir,
        entrypoint,
        cmd,
        architecture,
    }
}

fn pull_error(name: &str, error: &PullError) -> ImageError {
    image_error(name, error.code(), chain(error))
}

fn build_error(name: &str, error: &BuildError) -> ImageError {
    image_error(name, error.code(), chain(error))
}
