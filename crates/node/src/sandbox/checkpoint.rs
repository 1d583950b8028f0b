//! A disk of a running sandbox, frozen as a checkpoint: its root, or a volume that it publishes.

use super::driver::{Driver, Over};
use crate::checkpoint::FrozenFrom;
use crate::shim_client::ShimClient;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;
use warren_model::CheckpointId;
use warren_proto::guest::{ROOT_DISK, volume_disk};
use warren_proto::node::{NodeError, SnapshotError};

/// Longest that an end of the sandbox waits for a checkpoint that was asked for before: so it is whole, and a delete is quick all the same.
const FREEZE_ENDS_WAIT: Duration = Duration::from_secs(6);

impl Driver {
    /// Freezes the root disk, or the volume of that place, and tells whether that went well. An error ends the sandbox.
    pub(super) async fn checkpoint(
        &mut self,
        client: &ShimClient,
        id: CheckpointId,
        volume: Option<usize>,
        reply: oneshot::Sender<Result<(), NodeError>>,
    ) -> Result<(), Over> {
        let from = volume.map_or_else(|| self.frozen_from(client), |place| Ok(self.frozen_volume(client, place)));
        let from = match from {
            Ok(from) => from,
            Err(error) => {
                let _ = reply.send(Err(NodeError::NoAnswer { id: self.id.clone(), problem: error.to_string() }));
                return Ok(());
            }
        };
        let (checkpoints, sandbox) = (self.services.checkpoints.clone(), self.id.clone());
        // In a task of its own, which goes on to its end whatever happens here.
        let mut begun = tokio::spawn(async move {
            let begun = checkpoints.begin(id, from).await;
            // Whoever asked may have gone.
            let _ = reply.send(begun.map_err(|problem| NodeError::NoAnswer { id: sandbox, problem }));
        });
        tokio::select! {
            biased;
            over = self.terminated() => {
                let _ = timeout(FREEZE_ENDS_WAIT, &mut begun).await;
                Err(over)
            }
            _ = &mut begun => Ok(()),
        }
    }

    /// What a volume's disk is made of.
    fn frozen_volume(&self, client: &ShimClient, place: usize) -> FrozenFrom {
        FrozenFrom {
            sandbox: self.id.clone(),
            shim: client.clone(),
            vm: self.folder.vm(),
            disk: volume_disk(place),
            image_digest: self.intent.volumes.get(place).cloned(),
            below: Vec::new(),
            layers_had: 0,
        }
    }

    /// What the root disk is made of, as far as it is known here.
    fn frozen_from(&self, client: &ShimClient) -> Result<FrozenFrom, SnapshotError> {
        let snapshots = &self.services.snapshots;
        let below = match &self.intent.disk_on {
            Some(id) => {
                let lease = snapshots.lease(id).ok_or_else(|| SnapshotError::NoSnapshot(id.clone()))?;
                snapshots.origin(&lease)?.layers
            }
            None => Vec::new(),
        };
        Ok(FrozenFrom {
            sandbox: self.id.clone(),
            shim: client.clone(),
            vm: self.folder.vm(),
            disk: ROOT_DISK.to_owned(),
            image_digest: self.intent.image_digest.clone(),
            below,
            layers_had: self.intent.layers_had,
        })
    }
}
