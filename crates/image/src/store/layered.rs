//! An image that is another with layers on it: what a disk was at one moment.

use super::{Image, Shared, Store, blocking, chain, image_error};
use crate::chunks::{ENTRIES, Manifest, TABLE_BYTES, Writer};
use crate::ext4::Target;
use crate::qcow2::{Cluster, Layer, LayerError};
use crate::source::BuildError;
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use warren_model::reference::{BadReference, Digest};
use warren_proto::node::{ImageError, ImageRecord};

/// Bytes of a chunk.
const CHUNK: u64 = crate::chunks::CHUNK as u64;
/// Most layers of one disk: all are open at once.
const LAYERS_MAX: usize = 256;
/// Longest wait for the rest of an image that is still arriving.
const ARRIVAL_WAIT_MAX: Duration = Duration::from_secs(3600);

/// An image that was made of layers.
#[derive(Debug, Clone)]
pub struct Layered {
    /// The image, under a name that no registry is asked for and nobody is shown.
    pub image: Image,
    /// Bytes of its chunks.
    pub occupied_bytes: u64,
    /// Bytes of those chunks that the image below does not have.
    pub added_bytes: u64,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
enum LayeredError {
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error("write the disk")]
    Write(#[source] io::Error),
}

impl Store {
    /// Makes an image of `base` and what `layers`, the lowest first, hold on it, and names it with `name`, which gets its digest: equal content
    /// has an equal digest. What processes need to know is that of `base`. Waits for a base that is still arriving; goes on if the caller goes away.
    pub async fn layered(
        &self,
        base: &Image,
        layers: Vec<File>,
        name: impl FnOnce(&str) -> String + Send + 'static,
    ) -> Result<Layered, ImageError> {
        let reference = base.record.reference.clone();
        let failed = |message: String| image_error(&reference, "failed", message);
        if layers.len() > LAYERS_MAX {
            return Err(failed(format!("its disk has more than {LAYERS_MAX} layers")));
        }
        let shared = self.shared.clone();
        let base = base.clone();
        let work = async move {
            let below = shared.whole(&base).await?;
            // Never closed.
            let _turn = shared.conversions.acquire().await.ok();
            let shared = shared.clone();
            blocking(move || shared.lay(&base, &below, layers, name)).await
        };
        match tokio::spawn(work).await {
            Ok(outcome) => outcome,
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Waits until the image is in the object store; at once where there is none.
    pub async fn until_stored(&self, image: &Image) -> Result<(), ImageError> {
        let (shared, reference) = (self.shared.clone(), image.record.reference.clone());
        let digest = image.lease.digest().clone();
        let Some(remote) = shared.remote.clone() else { return Ok(()) };
        let sent = tokio::spawn(async move { shared.send(&remote, &digest).await }).await;
        let problem = match sent {
            Ok(true) => return Ok(()),
            Ok(false) => "the object store did not take it; see the server's log".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(image_error(&reference, "failed", problem))
    }
}

impl Shared {
    /// What the disk of an image is made of, once all of that is here.
    async fn whole(&self, base: &Image) -> Result<Manifest, ImageError> {
        let failed = |message: String| image_error(&base.record.reference, "failed", message);
        let manifest = self.files.read_manifest(base.lease.digest()).map_err(|e| failed(chain(&e)))?;
        let manifest = manifest.ok_or_else(|| failed("its manifest is damaged".to_owned()))?;
        let all_here = async {
            for part in &manifest.parts {
                self.chunks.until_here(&part.id).await;
            }
        };
        let late = |_| failed(format!("it did not arrive within {ARRIVAL_WAIT_MAX:?}"));
        timeout(ARRIVAL_WAIT_MAX, all_here).await.map_err(late)?;
        Ok(manifest)
    }

    fn lay(
        self: &Arc<Self>,
        base: &Image,
        below: &Manifest,
        layers: Vec<File>,
        name: impl FnOnce(&str) -> String,
    ) -> Result<Layered, ImageError> {
        let reference = &base.record.reference;
        let refused = |error: LayeredError| {
            let code = match &error {
                LayeredError::Layer(LayerError::Malformed(_)) => "bad_content",
                LayeredError::Layer(LayerError::Io(_)) => "failed",
                LayeredError::Write(_) => "no_space",
            };
            image_error(reference, code, chain(&error))
        };
        let write_failed = |error: io::Error| {
            let error = BuildError::Write(error);
            image_error(reference, error.code(), chain(&error))
        };
        let manifest = write(self.chunks.writer(), below, layers).map_err(refused)?;
        let digest =
            digest_of(&base.record, &manifest).map_err(|error| image_error(reference, "failed", error.to_string()))?;
        let name = name(digest.as_str());
        let occupied_bytes = manifest.parts.len() as u64 * CHUNK;
        let before: HashSet<_> = below.parts.iter().map(|part| part.id).collect();
        let added: HashSet<_> = manifest.parts.iter().map(|part| part.id).filter(|id| !before.contains(id)).collect();
        let added_bytes = added.len() as u64 * CHUNK;
        let record = ImageRecord {
            reference: name.clone(),
            digest: digest.to_string(),
            size_bytes: occupied_bytes,
            created_at_ms: super::files::millis(std::time::SystemTime::now()),
            private: true,
            ..base.record.clone()
        };
        let image = {
            let mut index = self.index();
            self.add(&mut index, &digest, &record, &manifest).map_err(write_failed)?;
            self.image(&mut index, &digest, record)
        };
        let went = || image_error(reference, "failed", "the image went while it was being made".to_owned());
        let image = self.name(name, image.ok_or_else(went)?, None, Some(super::pin::SCOPE.to_owned()))?;
        self.keep_quota();
        Ok(Layered { image, occupied_bytes, added_bytes })
    }
}

/// What shows of one cluster.
#[derive(Clone, Copy)]
enum Shown {
    Base,
    Zero,
    /// Of this layer, at this offset.
    Layer(usize, u64),
}

/// Writes the disk that shows when the layers lie on what is below. A table's worth at a time, so that memory does not grow with the layers.
fn write(mut writer: Writer, below: &Manifest, layers: Vec<File>) -> Result<Manifest, LayeredError> {
    let mut layers = layers.into_iter().map(Layer::open).collect::<Result<Vec<_>, _>>()?;
    let size = layers.first().map_or(below.size, Layer::size);
    if size < below.size || layers.iter().any(|layer| layer.size() != size) {
        return Err(LayerError::Malformed("the layers' disks are not of the same size").into());
    }
    let clusters = size.div_ceil(CHUNK);
    for number in 0..size.div_ceil(TABLE_BYTES) as usize {
        let first = (number * ENTRIES) as u32;
        let mut shown = vec![Shown::Base; (clusters - u64::from(first)).min(ENTRIES as u64) as usize];
        for (of, layer) in layers.iter_mut().enumerate() {
            for (shown, cluster) in shown.iter_mut().zip(layer.table(number)?.into_iter().flatten()) {
                match cluster {
                    Cluster::Absent => {}
                    Cluster::Zero => *shown = Shown::Zero,
                    Cluster::Data(at) => *shown = Shown::Layer(of, at),
                }
            }
        }
        write_table(&mut writer, first, &shown, below, &layers)?;
    }
    writer.end(size).map_err(LayeredError::Write)?;
    writer.commit().map_err(LayeredError::Write)
}

fn write_table(
    writer: &mut Writer,
    first: u32,
    shown: &[Shown],
    below: &Manifest,
    layers: &[Layer<File>],
) -> Result<(), LayeredError> {
    let mut parts = below.parts[below.parts.partition_point(|part| part.index < first)..].iter().peekable();
    for (index, shown) in (first..).zip(shown) {
        let part = parts.next_if(|part| part.index == index);
        match (*shown, part) {
            (Shown::Base, Some(part)) => writer.share(part).map_err(LayeredError::Write)?,
            (Shown::Base, None) | (Shown::Zero, _) => {}
            (Shown::Layer(of, at), _) => {
                let bytes = layers[of].read(at).map_err(LayerError::Io)?;
                writer.write_at(u64::from(index) * CHUNK, &bytes[..]).map_err(LayeredError::Write)?;
            }
        }
    }
    Ok(())
}

/// Names what an image made of layers is: what its processes need, and its disk.
fn digest_of(base: &ImageRecord, manifest: &Manifest) -> Result<Digest, BadReference> {
    let ImageRecord { env, user, workdir, entrypoint, cmd, architecture, .. } = base;
    let config = serde_json::json!({
        "env": env, "user": user, "workdir": workdir, "entrypoint": entrypoint, "cmd": cmd, "architecture": architecture,
        "size": manifest.size,
    });
    let mut hasher = Sha256::new();
    hasher.update(config.to_string());
    for part in &manifest.parts {
        hasher.update(format!("\n{} {:?}", part.index, part.id));
    }
    let hex: String = hasher.finalize().iter().map(|b| format!("{b:02x}")).collect();
    Digest::parse(&format!("sha256:{hex}"))
}
