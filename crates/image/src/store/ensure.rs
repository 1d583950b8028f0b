//! From a reference to an image: one that is here and may be had, or what a registry says.

use super::flight::Outcome;
use super::{Image, Shared, Store, blocking, chain, image_error, lock, parse};
use crate::progress::Progress;
use crate::registry::{Errand, Meaning, PullError, Resolved};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use warren_model::ImageAccess;
use warren_model::reference::Reference;
use warren_proto::node::{ImageError, ImageRecord};

/// Longest time for which it is believed that somebody may have an image to which his saved login gave access.
const ACCESS_BELIEVED_MAX: Duration = Duration::from_secs(300);
/// Longest wait for a registry that limits the rate of requests, where somebody only wants to know whether it has an image.
const CHECK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Whether a registry is asked again about a tag that it was asked about a short while ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Yes.
    Always,
    /// Not within [`super::Config::tag_fresh`].
    IfStale,
}

impl Store {
    /// Makes the image ready for whom `access` names, and leases it. An imported name or a digest that everybody may have is not
    /// asked about at a registry if it is here. However many ask for the same image at once, there is one pull and one conversion,
    /// which goes on even if all who asked go away.
    pub async fn ensure(&self, reference: &str, access: &ImageAccess, ask: Ask) -> Result<Image, ImageError> {
        let reference = parse(reference)?;
        let name = reference.to_string();
        if let Some(image) = self.shared.ready(&reference, &name, access, ask) {
            return Ok(image);
        }
        if let (None, Some(digest)) = (reference.registry(), reference.digest())
            && let Some(image) = self.shared.arrive(&reference, &name, digest, true).await
        {
            // Another node made it. It is nobody's by name here: it goes with its last lease.
            return Ok(image);
        }
        has_registry(&reference, &name)?;
        let progress = Progress::new(name.clone(), access.scope().map(str::to_owned));
        let errand = self.shared.errand(access, &progress);
        let key = flight_key(&name, access.scope());
        let shared = self.shared.clone();
        let flights = shared.flights.clone();
        flights.join(&key, &progress, || shared.fetch(reference, name, errand)).await
    }

    /// Whether the image could be had: the digest that it has, here or at its registry, which is always asked.
    pub async fn check(&self, reference: &str, access: &ImageAccess) -> Result<String, ImageError> {
        let reference = parse(reference)?;
        let name = reference.to_string();
        if let Some(image) = self.shared.ready(&reference, &name, access, Ask::Always) {
            return Ok(image.record.digest);
        }
        has_registry(&reference, &name)?;
        let errand = self.shared.errand(access, &Progress::new(name.clone(), access.scope().map(str::to_owned)));
        let errand = Errand { rate_wait_max: errand.rate_wait_max.min(CHECK_WAIT_MAX), ..errand };
        self.shared.look(&reference, &name, &errand).await.map_err(|error| pull_error(&name, &error))
    }
}

impl Shared {
    pub(super) fn errand(&self, access: &ImageAccess, progress: &Arc<Progress>) -> Errand {
        let rate_wait_max = self.registry.config().rate_wait_max;
        Errand { access: access.clone(), progress: progress.clone(), rate_wait_max }
    }

    /// An image that may be had without asking a registry.
    fn ready(self: &Arc<Self>, reference: &Reference, name: &str, access: &ImageAccess, ask: Ask) -> Option<Image> {
        let mut index = self.index();
        let Some(known) = index.name(name).cloned() else {
            let digest = reference.digest()?;
            let record = ImageRecord { reference: name.to_owned(), ..index.public(digest)? };
            return self.image(&mut index, digest, record);
        };
        let is_tag = reference.digest().is_none();
        let scope = access.scope().filter(|_| known.private);
        let believed = match (known.resolved.is_none(), known.private, is_tag) {
            // Imported, or public and never to mean anything else.
            (true, ..) | (_, false, false) => Duration::MAX,
            (_, _, true) if ask == Ask::Always => Duration::ZERO,
            (_, true, _) if scope.is_none() => Duration::ZERO,
            (_, false, true) => self.tag_fresh,
            (_, true, true) => self.tag_fresh.min(ACCESS_BELIEVED_MAX),
            (_, true, false) => ACCESS_BELIEVED_MAX,
        };
        let age = || lock(&self.asked).age(scope, name, Instant::now());
        if believed != Duration::MAX && age().is_none_or(|age| age >= believed) {
            return None;
        }
        let record = index.named(name)?;
        self.image(&mut index, &known.digest, record)
    }

    /// Has the registry say what the reference is now, and makes that ready.
    async fn fetch(self: Arc<Self>, reference: Reference, name: String, errand: Errand) -> Outcome {
        let _listed = Listed::new(self.clone(), errand.progress.clone());
        match self.resolve(&reference, &name, &errand).await {
            Ok(Found::Here(image)) => {
                self.note_origin(&image, &reference, &errand.access);
                Ok(*image)
            }
            Ok(Found::There(resolved)) => self.pull(&reference, name, *resolved, errand).await,
            Err(error) => match self.known_offline(&name, &errand).filter(|_| error.is_unreachable()) {
                Some(image) => {
                    tracing::warn!(
                        image = name,
                        error = chain(&error),
                        "the registry is away; what is known here serves"
                    );
                    Ok(image)
                }
                None => Err(pull_error(&name, &error)),
            },
        }
    }

    /// What the registry says the reference is now; the image, if it is here already.
    async fn resolve(self: &Arc<Self>, reference: &Reference, name: &str, errand: &Errand) -> Result<Found, PullError> {
        loop {
            let known = self.index().name(name).and_then(|n| n.resolved.clone());
            let scratch = || self.files.scratch();
            match self.registry.resolve(reference, errand, known.as_ref(), &scratch).await? {
                Meaning::New(resolved) => return Ok(Found::There(resolved)),
                Meaning::Same { private } => {
                    // If it went while the registry was asked, the next answer tells more.
                    let Some(image) = self.known(name) else { continue };
                    let (shared, name) = (self.clone(), name.to_owned());
                    let scope = errand.access.scope().map(str::to_owned).filter(|_| private);
                    let named = blocking(move || shared.name(name, image, known, scope)).await;
                    return named.map(|image| Found::Here(Box::new(image))).map_err(PullError::Naming);
                }
            }
        }
    }

    /// Digest of what the registry has, if it is for this machine.
    async fn look(self: &Arc<Self>, reference: &Reference, name: &str, errand: &Errand) -> Result<String, PullError> {
        match self.resolve(reference, name, errand).await? {
            Found::Here(image) => Ok(image.record.digest),
            Found::There(resolved) => {
                self.registry.config_of(reference, errand, &resolved, &|| self.files.scratch()).await?;
                Ok(resolved.digest.to_string())
            }
        }
    }

    /// The image that the name leads to, whatever the registry says.
    fn known(self: &Arc<Self>, name: &str) -> Option<Image> {
        let mut index = self.index();
        let record = index.named(name)?;
        let digest = index.named_digest(name)?;
        self.image(&mut index, &digest, record)
    }

    /// The same while its registry is away, for whoever was shown it before.
    fn known_offline(self: &Arc<Self>, name: &str, errand: &Errand) -> Option<Image> {
        let scope = errand.access.scope();
        let image = self.known(name).filter(|_| self.offline_ok)?;
        let shown = || scope.is_some() && lock(&self.asked).age(scope, name, Instant::now()).is_some();
        (!image.record.private || shown()).then_some(image)
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
        lock(&shared.builds).insert(key, progress);
        Self { shared, key }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.shared.builds).remove(&self.key);
    }
}

/// Work that is shared by all who may have its result.
pub(super) fn flight_key(what: &str, scope: Option<&str>) -> String {
    // No reference, digest or owner has a line end in it.
    format!("{what}\n{}", scope.unwrap_or_default())
}

fn has_registry(reference: &Reference, name: &str) -> Result<(), ImageError> {
    let advice = || image_error(name, "not_found", "no image of this name was imported on this node".to_owned());
    reference.registry().map(drop).ok_or_else(advice)
}

pub(super) fn pull_error(name: &str, error: &PullError) -> ImageError {
    image_error(name, error.code(), chain(error))
}
