//! From what a registry says to an image of the store with a name: pull, conversion, admission.

use super::ensure::{flight_key, pull_error};
use super::files::millis;
use super::flight::Outcome;
use super::index::{Index, Name, Stored};
use super::{Image, Shared, blocking, chain, image_error, lock};
use crate::chunks::Manifest;
use crate::oci::Config;
use crate::progress::{Progress, Wait};
use crate::registry::{Errand, Resolved};
use crate::source::{self, BuildError, Built, Package};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokio::sync::SemaphorePermit;
use warren_model::reference::{Digest, Reference};
use warren_proto::node::{ImageError, ImageRecord};

/// Bytes of a MB, as in logs.
const MB: f64 = 1e6;

impl Shared {
    pub(super) async fn pull(
        self: &Arc<Self>,
        reference: &Reference,
        name: String,
        resolved: Resolved,
        errand: Errand,
    ) -> Outcome {
        let (asked, scope) = (resolved.asked.clone(), resolved.scope.clone());
        let key = flight_key(resolved.digest.as_str(), scope.as_deref());
        let flights = self.flights.clone();
        let progress = errand.progress.clone();
        let image = flights
            .join(&key, &progress, || self.clone().make(reference.clone(), name.clone(), resolved, errand))
            .await
            .map_err(|error| ImageError { reference: name.clone(), ..error })?;
        let shared = self.clone();
        // The lease of `image` keeps it until the name does.
        blocking(move || shared.name(name, image, Some(asked), scope)).await
    }

    /// Pulls and converts one digest, unless it is here for whoever sees this repository.
    async fn make(self: Arc<Self>, reference: Reference, name: String, resolved: Resolved, errand: Errand) -> Outcome {
        let here = {
            let mut index = self.index();
            let record = index.shown_in(&resolved.digest, &reference);
            record.and_then(|record| self.image(&mut index, &resolved.digest, record))
        };
        if let Some(image) = here {
            self.note_origin(&image, &reference, &errand.access);
            return Ok(image);
        }
        if let Some(image) = self.arrive(&reference, &name, &resolved.digest, resolved.scope.is_some()).await {
            self.note_origin(&image, &reference, &errand.access);
            return Ok(image);
        }
        tracing::info!(image = name, digest = %resolved.digest, "pulling an image");
        let made = self.pull_and_convert(&reference, &name, resolved, &errand).await;
        let (progress, seconds) = (&errand.progress, errand.progress.elapsed().as_secs_f64());
        let (fetched_mb, mb) = (progress.fetched_bytes() as f64 / MB, progress.total_bytes() as f64 / MB);
        match &made {
            Ok(_) => tracing::info!(image = name, seconds, mb, fetched_mb, "image is ready"),
            Err(error) => {
                tracing::warn!(image = name, seconds, mb, fetched_mb, code = error.code, %error, "no image");
                match error.code {
                    "no_space" => self.registry.blobs().clear(),
                    "digest_mismatch" | "bad_content" => self.registry.blobs().doubt(),
                    _ => {}
                }
            }
        }
        made
    }

    pub(super) async fn pull_and_convert(
        self: &Arc<Self>,
        reference: &Reference,
        name: &str,
        resolved: Resolved,
        errand: &Errand,
    ) -> Outcome {
        let private = resolved.scope.is_some();
        let scratch: &(dyn Fn() -> PathBuf + Sync) = &|| self.files.scratch();
        let package = self.registry.package(reference, errand, resolved, scratch).await;
        let package = package.map_err(|error| pull_error(name, &error))?;
        self.convert(name, package, errand.progress.clone(), private).await
    }

    /// Makes the disk of a package and takes it into the store, without a name yet.
    pub(super) async fn convert(
        self: &Arc<Self>,
        name: &str,
        package: Package,
        progress: Arc<Progress>,
        private: bool,
    ) -> Outcome {
        progress.set_total(package.bytes, package.layers.len());
        let shared = self.clone();
        let name = name.to_owned();
        let runtime = tokio::runtime::Handle::current();
        blocking(move || {
            let (began, mb) = (Instant::now(), package.bytes as f64 / MB);
            tracing::info!(image = name, mb, layers = package.layers.len(), "converting an image");
            let target = shared.chunks.writer();
            let turn = || runtime.block_on(shared.turn(&progress));
            let built = source::build(package, target, &progress, turn).map_err(|e| build_error(&name, &e))?;
            let (seconds, disk_mb) = (began.elapsed().as_secs_f64(), built.summary.used as f64 / MB);
            tracing::info!(image = name, seconds, mb, disk_mb, "converted an image");
            let image = shared.admit(&name, built, private)?;
            shared.keep_quota();
            Ok(image)
        })
        .await
        .inspect(|image| self.offer(image.lease.digest().clone()))
    }

    /// Waits until fewer than [`super::CONVERSIONS_MAX`] layers are being converted.
    async fn turn(&self, progress: &Progress) -> Option<SemaphorePermit<'_>> {
        if let Ok(permit) = self.conversions.try_acquire() {
            return Some(permit);
        }
        let _shown = progress.wait(Wait::Turn("its turn: other images are being converted"));
        // Never closed.
        self.conversions.acquire().await.ok()
    }

    fn admit(self: &Arc<Self>, name: &str, built: Built, private: bool) -> Outcome {
        let record = ImageRecord { private, ..record(name, &built) };
        let mut index = self.index();
        self.add(&mut index, &built.digest, &record, &built.manifest)
            .map_err(|e| build_error(name, &BuildError::Write(e)))?;
        let went = || image_error(name, "failed", "the image went while it was being made".to_owned());
        self.image(&mut index, &built.digest, record).ok_or_else(went)
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
        match &added {
            Ok(true) => index.add(digest.clone(), Stored::new(record.clone(), disk, now_ms())),
            Ok(false) => self.chunks.release(disk),
            // What cannot be taken back keeps its chunks; the next start finds out.
            Err(_) if self.files.remove_image(digest).is_err() => {}
            Err(_) => self.chunks.release(disk),
        }
        added.map(drop)
    }

    /// Gives an image that is in the store a name, which a registry has said to the owner of a saved login or to everybody just
    /// now; what the name led to before may go.
    pub(super) fn name(&self, name: String, image: Image, resolved: Option<Digest>, scope: Option<String>) -> Outcome {
        let digest = image.lease.digest().clone();
        let private;
        let old = {
            let mut index = self.index();
            let was_public = index.name(&name).is_some_and(|old| old.digest == digest && !old.private);
            private = scope.is_some() && !was_public;
            let to = Name { digest, resolved, private };
            if index.name(&name) != Some(&to) {
                self.files.write_name(&name, &to).map_err(|e| build_error(&name, &BuildError::Write(e)))?;
            }
            index.set_name(name.clone(), to)
        };
        if let Some(old) = old {
            self.collect(&old);
        }
        lock(&self.asked).note(scope.as_deref().filter(|_| private), &name, Instant::now());
        Ok(Image { record: ImageRecord { reference: name, private, ..image.record }, ..image })
    }
}

fn now_ms() -> u64 {
    millis(SystemTime::now())
}

fn record(name: &str, built: &Built) -> ImageRecord {
    let Config { architecture, env, user, workdir, entrypoint, cmd, shell, on_build, diff_ids: _ } =
        built.config.clone();
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
        shell,
        on_build,
        architecture,
        private: false,
    }
}

fn build_error(name: &str, error: &BuildError) -> ImageError {
    image_error(name, error.code(), chain(error))
}
