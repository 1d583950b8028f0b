use super::Checkpoints;
use super::folder::{Folder, Record, Stage};
use crate::shim_client::ShimClient;
use hyper::Method;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use warren_model::{CheckpointId, SandboxId};
use warren_proto::shim::{Layers, NewLayer, paths};

/// Longest time for a shim to freeze the disk: the guest writes out what it has in memory first.
const LAYER_WAIT: Duration = Duration::from_secs(26);

/// A running sandbox, one of whose disks is to be frozen.
pub(crate) struct FrozenFrom {
    pub(crate) sandbox: SandboxId,
    pub(crate) shim: ShimClient,
    /// The folder of its VM.
    pub(crate) vm: PathBuf,
    /// The disk, by its serial number.
    pub(crate) disk: String,
    /// Digest of the image that it lies on.
    pub(crate) image_digest: Option<String>,
    /// Layers of snapshots on that image, the lowest first, that the disk lies on.
    pub(crate) below: Vec<PathBuf>,
    /// Of the layers in the VM's folder, those that are among them.
    pub(crate) layers_had: usize,
}

impl Checkpoints {
    /// Freezes the disk of a sandbox and writes down that it is; the rest goes on by itself. Nothing is left of one that fails; why it did.
    pub(crate) async fn begin(self: &Arc<Self>, id: CheckpointId, from: FrozenFrom) -> Result<(), String> {
        if self.known().contains_key(&id) {
            return Ok(());
        }
        let base = from.image_digest.as_deref().and_then(|digest| self.images.lease(digest));
        let base = base.ok_or("its image is not on this node any more")?;
        let mut record = Record {
            sandbox: from.sandbox.to_string(),
            base: base.record.digest.clone(),
            boot: crate::host::boot_id(),
            stage: Stage::Freezing,
        };
        let folder =
            Folder::create(&self.root, &id, &record).map_err(|e| format!("make the folder of checkpoint {id}: {e}"))?;
        match freeze(&from, &folder, &mut record).await {
            Ok(()) => {
                self.finish(id, folder, record, Some(base));
                Ok(())
            }
            Err(problem) => {
                folder.remove();
                Err(problem)
            }
        }
    }
}

async fn freeze(from: &FrozenFrom, folder: &Folder, record: &mut Record) -> Result<(), String> {
    let body = NewLayer { disk: from.disk.clone() };
    let layers: Layers =
        from.shim.call(Method::POST, paths::LAYER, Some(&body), LAYER_WAIT).await.map_err(|error| error.to_string())?;
    let kept = |error: std::io::Error| format!("keep the frozen disk: {error}");
    let own = layers.files.get(from.layers_had..).unwrap_or_default();
    folder.link_layers(&from.below, &from.vm, own).map_err(kept)?;
    record.stage = Stage::Frozen { layers: from.below.len() + own.len() };
    folder.write(record).map_err(kept)
}
