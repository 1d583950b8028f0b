use super::Checkpoints;
use super::folder::{Folder, Record, Stage};
use crate::shim_client::ShimClient;
use hyper::Method;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use warren_model::{CheckpointId, SandboxId};
use warren_proto::node::NodeError;
use warren_proto::shim::{Layers, NewLayer, paths};

/// Longest time for a shim to freeze the disk: the guest writes out what it has in memory first.
const LAYER_WAIT: Duration = Duration::from_secs(26);

/// A running sandbox, one of whose disks is to be frozen.
pub(crate) struct Running {
    pub(crate) id: SandboxId,
    pub(crate) shim: ShimClient,
    /// The folder of its VM.
    pub(crate) vm: PathBuf,
    /// The disk, by its serial number.
    pub(crate) disk: String,
    /// Digest of the image that it lies on.
    pub(crate) image_digest: Option<String>,
}

impl Checkpoints {
    /// Freezes that disk and writes down that it is; the rest goes on by itself. One at a time for each sandbox. Nothing is left
    /// of one that fails.
    pub(crate) async fn begin(self: &Arc<Self>, id: CheckpointId, sandbox: Running) -> Result<(), NodeError> {
        if self.known().contains_key(&id) {
            return Ok(());
        }
        let no_answer = |problem: String| NodeError::NoAnswer { id: sandbox.id.clone(), problem };
        let base = sandbox.image_digest.as_deref().and_then(|digest| self.images.lease(digest));
        let base = base.ok_or_else(|| no_answer("its image is not on this node any more".to_owned()))?;
        let mut record =
            Record { sandbox: sandbox.id.to_string(), base: base.record.digest.clone(), stage: Stage::Freezing };
        let folder = Folder::create(&self.root, &id, &record)
            .map_err(|e| no_answer(format!("make the folder of checkpoint {id}: {e}")))?;
        match freeze(&sandbox, &folder, &mut record).await {
            Ok(()) => {
                self.finish(id, folder, record, Some(base));
                Ok(())
            }
            Err(problem) => {
                folder.remove();
                Err(no_answer(problem))
            }
        }
    }
}

async fn freeze(sandbox: &Running, folder: &Folder, record: &mut Record) -> Result<(), String> {
    let body = NewLayer { disk: sandbox.disk.clone() };
    let layers: Layers = sandbox
        .shim
        .call(Method::POST, paths::LAYER, Some(&body), LAYER_WAIT)
        .await
        .map_err(|error| error.to_string())?;
    let kept = |error: std::io::Error| format!("keep the frozen disk: {error}");
    folder.link_layers(&sandbox.vm, &layers.files).map_err(kept)?;
    record.stage = Stage::Frozen { layers: layers.files.len() };
    folder.write(record).map_err(kept)
}
