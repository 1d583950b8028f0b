//! An image whose parts the object store has lost, or has damaged, comes from its registry instead.
//!
//! The same image makes the same chunks: converted again, it brings what is missing to the disk that is arriving, and whoever waits
//! for a part of it goes on.

use super::ensure::{Listed, pull_error};
use super::{Image, Shared, lock};
use crate::progress::{Progress, Wait};
use crate::registry::Meaning;
use crate::remote::Arrival;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use warren_model::ImageAccess;
use warren_model::reference::{Digest, Reference};

/// Pause after a registry could not help either.
const PAUSE: Duration = Duration::from_secs(30);
/// What a build says that is under way for this reason.
const WHY: &str = "the object store's copy is damaged or gone: the registry is asked for the image instead";

/// Where an image can be had again, and for whom.
pub(super) type Origin = (Reference, ImageAccess);

impl Shared {
    /// Helps an arrival for as long as it lasts, whenever it needs that.
    pub(super) async fn stand_by(self: Arc<Self>, digest: Digest, arrival: Arc<Arrival>) {
        loop {
            arrival.until_stuck().await;
            match self.rescue(&digest).await {
                Ok(()) => arrival.rescued(),
                Err(problem) => {
                    tracing::warn!(%digest, problem, "a damaged image cannot be had elsewhere");
                    arrival.not_rescued(problem);
                    if timeout(PAUSE, arrival.until_stuck()).await.is_err() {
                        arrival.try_again();
                    }
                }
            }
        }
    }

    async fn rescue(self: &Arc<Self>, digest: &Digest) -> Result<(), String> {
        let mut problem = "no registry is known that has it".to_owned();
        for origin in self.origins(digest) {
            match self.convert_again(digest, &origin).await {
                Ok(()) => return Ok(()),
                Err(said) => problem = said,
            }
        }
        Err(problem)
    }

    /// Who asked for it last, then what names say.
    fn origins(&self, digest: &Digest) -> Vec<Origin> {
        let names = self.index().fetched_names(digest);
        let names = names.iter().filter_map(|name| Reference::parse(name).ok());
        let asked = lock(&self.origins).get(digest).cloned();
        asked.into_iter().chain(names.map(|name| (name, ImageAccess::default()))).collect()
    }

    async fn convert_again(self: &Arc<Self>, digest: &Digest, (name, access): &Origin) -> Result<(), String> {
        // By its digest, wherever its tag leads by now.
        let reference = name.at(digest);
        let progress = Progress::new(name.to_string(), access.scope().map(str::to_owned));
        let _listed = Listed::new(self.clone(), progress.clone());
        let _told = progress.wait(Wait::Turn(WHY));
        tracing::warn!(%digest, image = %name, "{WHY}");
        let errand = self.errand(access, &progress);
        let resolved = self.registry.resolve(&reference, &errand, None, &|| self.files.scratch()).await;
        match resolved.map_err(|error| pull_error(&reference.to_string(), &error).to_string())? {
            Meaning::New(resolved) if resolved.digest == *digest => {
                let made = self.pull_and_convert(&reference, &name.to_string(), *resolved, &errand).await;
                made.map(drop).map_err(|error| error.to_string())
            }
            _ => Err(format!("{reference}: its registry has another image under this digest")),
        }
    }

    /// An image has arrived that the object store had damaged: it is given the image anew.
    pub(super) fn end_rescued(self: &Arc<Self>, digest: &Digest) -> std::io::Result<()> {
        self.files.break_off_arrival(digest)?;
        self.offer(digest.clone());
        Ok(())
    }

    /// Notes where an image was just seen, and for whom, if it is arriving.
    pub(super) fn note_origin(&self, image: &Image, reference: &Reference, access: &ImageAccess) {
        if let Some(arrival) = &image.arrival {
            lock(&self.origins).insert(image.lease.digest().clone(), (reference.clone(), access.clone()));
            // Another login may do what the last could not.
            arrival.try_again();
        }
    }
}
