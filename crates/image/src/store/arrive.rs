//! Images come from an object store, and go there.

use super::files::Arriving;
use super::{Image, Lease, Shared, blocking, chain, lock};
use crate::chunks::ChunkId;
use crate::remote::{Arrival, Artifact, PackId, Place, Remote, upload};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warren_model::reference::{Digest, Reference};
use warren_proto::node::ImageRecord;

/// Pause before an upload that failed is tried again.
const UPLOAD_RETRY_PAUSE: Duration = Duration::from_secs(30);
/// Times that an upload is tried; then the next start tries again.
const UPLOAD_TRIES_MAX: u32 = 20;

impl Shared {
    /// The image, if the object store has it: ready at once, its bytes follow. A private one only for whoever a registry shows the
    /// repository that it came from: a digest alone gives nobody the bytes.
    pub(super) async fn arrive(
        self: &Arc<Self>,
        reference: &Reference,
        name: &str,
        digest: &Digest,
        private: bool,
    ) -> Option<Image> {
        let remote = self.remote.clone()?;
        let artifact = match remote.artifact(digest).await {
            Ok(artifact) => artifact?,
            Err(error) => {
                tracing::warn!(%digest, error = chain(&error), "the object store cannot tell whether it has the image");
                return None;
            }
        };
        let origin = Reference::parse(&artifact.record.reference);
        if artifact.record.private && !origin.is_ok_and(|origin| origin.shares_repository_with(reference)) {
            return None;
        }
        let record = ImageRecord { reference: name.to_owned(), private, ..artifact.record.clone() };
        let (shared, digest, reference) = (self.clone(), digest.clone(), reference.clone());
        let began = blocking(move || shared.begin_arrival(remote, &reference, &digest, record, artifact)).await;
        began.unwrap_or_else(|error| {
            tracing::warn!(image = name, error = chain(&error), "the image cannot come from the object store");
            None
        })
    }

    fn begin_arrival(
        self: &Arc<Self>,
        remote: Remote,
        reference: &Reference,
        digest: &Digest,
        record: ImageRecord,
        artifact: Artifact,
    ) -> io::Result<Option<Image>> {
        let mark = artifact.encode()?;
        let parts = artifact.parts.iter().map(|part| (part.index, part.id));
        let manifest = self.chunks.assemble(artifact.size, parts)?;
        let arrival = Arrival::new(remote, self.chunks.clone(), artifact, &manifest);
        let image = {
            let mut index = self.index();
            if index.record(digest).is_some() {
                // It came in the meantime, maybe for others only.
                self.chunks.release(&manifest);
                let shown = index.shown_in(digest, reference);
                return Ok(shown.and_then(|record| self.image(&mut index, digest, record)));
            }
            // The mark comes before the manifest, so that a kill leaves no image that seems whole.
            if let Err(error) = self.files.begin_arrival(digest, &mark) {
                self.chunks.release(&manifest);
                return Err(error);
            }
            if let Err(error) = self.add(&mut index, digest, &record, &manifest) {
                self.files.break_off_arrival(digest)?;
                return Err(error);
            }
            lock(&self.arrivals).insert(digest.clone(), arrival.clone());
            self.image(&mut index, digest, record)
        };
        self.keep_quota();
        self.spawn_arrival(digest.clone(), arrival);
        Ok(image)
    }

    /// Goes on where an earlier run was.
    pub(super) fn resume(self: &Arc<Self>, arriving: Arriving) {
        let Arriving { digest, manifest, artifact } = arriving;
        let Some(remote) = self.remote.clone() else { return };
        let arrival = Arrival::new(remote, self.chunks.clone(), artifact, &manifest);
        lock(&self.arrivals).insert(digest.clone(), arrival.clone());
        self.spawn_arrival(digest, arrival);
    }

    fn spawn_arrival(self: &Arc<Self>, digest: Digest, arrival: Arc<Arrival>) {
        let shared = self.clone();
        tokio::spawn(async move {
            let began = Instant::now();
            let (_, total) = arrival.progress();
            tracing::info!(%digest, bytes = total, "image arrives from the object store");
            let finished = tokio::select! {
                finished = arrival.finish() => finished,
                () = shared.clone().stand_by(digest.clone(), arrival.clone()) => return,
            };
            if let Err(error) = finished {
                tracing::info!(%digest, %error, "image is not needed any more");
                return;
            }
            let (received, _) = arrival.progress();
            tracing::info!(%digest, bytes = received, seconds = began.elapsed().as_secs_f32(), "image has arrived");
            blocking(move || shared.end_arrival(&digest, &arrival)).await;
        });
    }

    fn end_arrival(self: &Arc<Self>, digest: &Digest, arrival: &Arc<Arrival>) {
        let ended = self.chunks.sync().and_then(|()| {
            // Locked, so that the image does not go in the meantime; and it may have gone and come again since.
            let _index = self.index();
            let mut arrivals = lock(&self.arrivals);
            if !arrivals.get(digest).is_some_and(|known| Arc::ptr_eq(known, arrival)) {
                return Ok(());
            }
            arrivals.remove(digest);
            lock(&self.origins).remove(digest);
            if arrival.is_damaged() { self.end_rescued(digest) } else { self.files.end_arrival(digest) }
        });
        if let Err(error) = ended {
            tracing::warn!(%digest, error = chain(&error), "an arrived image is looked at again at the next start");
        }
    }

    /// Sends what an earlier run did not get to send.
    pub(super) fn offer_all(self: &Arc<Self>) {
        let digests: Vec<Digest> = self.index().digests().into_iter().cloned().collect();
        digests.into_iter().filter(|digest| !self.files.is_uploaded(digest)).for_each(|digest| self.offer(digest));
    }

    /// Sends an image of this node to the object store, if there is one and the image is still here when its turn comes.
    pub(super) fn offer(self: &Arc<Self>, digest: Digest) {
        let Some(remote) = self.remote.clone() else { return };
        let shared = self.clone();
        tokio::spawn(async move { shared.send(&remote, &digest).await });
    }

    /// Sends an image to the object store. Whether it is there; not if it went meanwhile, or if no try succeeded.
    pub(super) async fn send(self: &Arc<Self>, remote: &Remote, digest: &Digest) -> bool {
        let _one_at_a_time = self.uploads.lock().await;
        for _ in 0..UPLOAD_TRIES_MAX {
            // Held for one try at a time: what nobody needs may go.
            let Some((record, lease)) = self.hold(digest) else { return false };
            match self.upload(remote, record, &lease).await {
                Ok(()) => return true,
                Err(error) => {
                    let error = chain(&*error);
                    tracing::warn!(%digest, error, "an image cannot be uploaded; tried again");
                }
            }
            drop(lease);
            tokio::time::sleep(UPLOAD_RETRY_PAUSE).await;
        }
        false
    }

    /// A lease that does not count as a use.
    fn hold(self: &Arc<Self>, digest: &Digest) -> Option<(ImageRecord, Lease)> {
        let index = self.index();
        let record = index.record(digest)?;
        Some((record, Lease::take(self, digest)))
    }

    async fn upload(
        self: &Arc<Self>,
        remote: &Remote,
        record: ImageRecord,
        lease: &Lease,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let digest = lease.digest().clone();
        if self.files.is_uploaded(&digest) {
            return Ok(());
        }
        let Some(manifest) = self.files.read_manifest(&digest)? else { return Ok(()) };
        let began = Instant::now();
        let artifacts = self.files.artifacts()?;
        let wanted: HashSet<ChunkId> = manifest.parts.iter().map(|part| part.id).collect();
        let there = blocking(move || places(artifacts, &wanted)).await?;
        let artifact = upload(remote, &self.chunks, record, &digest, &manifest, &there).await?;
        let (files, name) = (self.clone(), digest.clone());
        blocking(move || files.files.write_artifact(&name, &artifact)).await?;
        tracing::info!(%digest, seconds = began.elapsed().as_secs_f32(), "image is in the object store");
        Ok(())
    }
}

/// Where those artifacts have the wanted chunks.
fn places(artifacts: Vec<PathBuf>, wanted: &HashSet<ChunkId>) -> io::Result<HashMap<ChunkId, (PackId, Place)>> {
    let mut there = HashMap::new();
    for path in artifacts {
        // One that went in the meantime, or is damaged, only costs an upload.
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let Some(artifact) = Artifact::decode(&bytes) else { continue };
        for part in artifact.parts.iter().filter(|part| wanted.contains(&part.id)) {
            there.insert(part.id, (artifact.packs[part.place.pack as usize], part.place));
        }
    }
    Ok(there)
}
