//! Images come from an object store, and go there.

use super::files::Arriving;
use super::{Image, Shared, blocking, chain, lock};
use crate::chunks::ChunkId;
use crate::remote::{Arrival, Artifact, PackId, Place, Remote, upload};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warren_model::reference::Digest;
use warren_proto::node::ImageRecord;

/// Pause before an upload that failed is tried again.
const UPLOAD_RETRY_PAUSE: Duration = Duration::from_secs(30);
/// Times that an upload is tried; then the next start tries again.
const UPLOAD_TRIES_MAX: u32 = 20;

impl Shared {
    /// The image, if the object store has it: ready at once, its bytes follow.
    pub(super) async fn arrive(self: &Arc<Self>, name: &str, digest: &Digest, private: bool) -> Option<Image> {
        let remote = self.remote.clone()?;
        let artifact = match remote.artifact(digest).await {
            Ok(artifact) => artifact?,
            Err(error) => {
                tracing::warn!(%digest, error = chain(&error), "the object store cannot tell whether it has the image");
                return None;
            }
        };
        let record = ImageRecord { reference: name.to_owned(), private, ..artifact.record.clone() };
        let (shared, digest) = (self.clone(), digest.clone());
        blocking(move || match shared.begin_arrival(remote, &digest, record, artifact) {
            Ok(image) => image,
            Err(error) => {
                tracing::warn!(%digest, error = chain(&error), "the image cannot come from the object store");
                None
            }
        })
        .await
    }

    fn begin_arrival(
        self: &Arc<Self>,
        remote: Remote,
        digest: &Digest,
        record: ImageRecord,
        artifact: Artifact,
    ) -> io::Result<Option<Image>> {
        self.files.begin_arrival(digest, &artifact.encode()?)?;
        let parts = artifact.parts.iter().map(|part| (part.index, part.id));
        let manifest = self.chunks.assemble(artifact.size, parts)?;
        let arrival = Arrival::new(remote, self.chunks.clone(), artifact, &manifest);
        let mut index = self.index();
        if index.record(digest).is_none() {
            lock(&self.arrivals).insert(digest.clone(), arrival.clone());
        }
        self.add(&mut index, digest, &record, &manifest).inspect_err(|_| {
            lock(&self.arrivals).remove(digest);
        })?;
        let image = self.image(&mut index, digest, record);
        drop(index);
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
            if let Err(error) = arrival.finish().await {
                tracing::info!(%digest, %error, "image is not needed any more");
                return;
            }
            let (received, _) = arrival.progress();
            tracing::info!(%digest, bytes = received, seconds = began.elapsed().as_secs_f32(), "image has arrived");
            blocking(move || shared.end_arrival(&digest)).await;
        });
    }

    fn end_arrival(&self, digest: &Digest) {
        // The index is locked, so that the image does not go in the meantime.
        let index = self.index();
        if index.record(digest).is_none() {
            return;
        }
        match self.chunks.sync().and_then(|()| self.files.end_arrival(digest)) {
            Ok(()) => drop(lock(&self.arrivals).remove(digest)),
            Err(error) => {
                tracing::warn!(%digest, error = chain(&error), "an arrived image is looked at again at the next start")
            }
        }
    }

    /// Sends what an earlier run did not get to send.
    pub(super) fn offer_all(self: &Arc<Self>) {
        let images: Vec<Image> = {
            let mut index = self.index();
            let digests: Vec<Digest> = index.digests().into_iter().cloned().collect();
            let missing = digests.into_iter().filter(|digest| !self.files.is_uploaded(digest));
            let lease = |digest: Digest| {
                let record = index.record(&digest)?;
                self.image(&mut index, &digest, record)
            };
            missing.filter_map(lease).collect()
        };
        images.iter().for_each(|image| self.offer(image));
    }

    /// Sends an image of this node to the object store, if there is one.
    pub(super) fn offer(self: &Arc<Self>, image: &Image) {
        let Some(remote) = self.remote.clone() else { return };
        let (shared, image) = (self.clone(), image.clone());
        tokio::spawn(async move {
            let _one_at_a_time = shared.uploads.lock().await;
            for _ in 0..UPLOAD_TRIES_MAX {
                match shared.upload(&remote, &image).await {
                    Ok(()) => return,
                    Err(error) => {
                        let error = chain(&*error);
                        tracing::warn!(digest = image.record.digest, error, "an image cannot be uploaded; tried again");
                    }
                }
                tokio::time::sleep(UPLOAD_RETRY_PAUSE).await;
            }
        });
    }

    async fn upload(
        self: &Arc<Self>,
        remote: &Remote,
        image: &Image,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let digest = image.lease.digest().clone();
        if self.files.is_uploaded(&digest) {
            return Ok(());
        }
        let Some(manifest) = self.files.read_manifest(&digest)? else { return Ok(()) };
        let began = Instant::now();
        let artifacts = self.files.artifacts()?;
        let wanted: HashSet<ChunkId> = manifest.parts.iter().map(|part| part.id).collect();
        let there = blocking(move || places(artifacts, &wanted)).await?;
        let artifact = upload(remote, &self.chunks, image.record.clone(), &digest, &manifest, &there).await?;
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
