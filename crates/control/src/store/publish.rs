//! Versions of volumes: checkpoints that become the heads of their volumes.

use super::checkpoint::insert;
use super::row::{from_db, to_db};
use super::{CheckpointRow, CheckpointStage, SandboxRow, Store, StoreError, volume};
use sqlx::{Row as _, Sqlite, Transaction};
use warren_model::CheckpointId;
use warren_proto::node::CheckpointMade;

/// Versions, or failures to make one, that no volume leads to and that were settled before `$1`.
const SUPERSEDED: &str = "UPDATE checkpoints SET state = 'deleting' WHERE state IN ('durable', 'failed') \
     AND volume_id IS NOT NULL AND updated_at_ms < $1 \
     AND NOT EXISTS (SELECT 1 FROM volumes v WHERE v.head_checkpoint_id = checkpoints.id)";

/// A publish that was just asked for.
pub(crate) struct NewPublish<'a> {
    pub(crate) id: &'a CheckpointId,
    pub(crate) sandbox: &'a SandboxRow,
    /// Name of the volume.
    pub(crate) volume: &'a str,
    /// Also if another sandbox has published meanwhile.
    pub(crate) force: bool,
    pub(crate) now_ms: u64,
}

/// What became of the intent to publish.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Publish {
    /// The row is there, pending; the volume's place in the sandbox.
    New(Box<CheckpointRow>, usize),
    /// The sandbox has no such volume.
    NotAttached,
    /// The sandbox may only read it.
    ReadOnly,
    /// Another publish is not over: this one.
    Pending(String),
    /// Somebody else has published this since the sandbox was made, or since it published last.
    HeadMoved(String),
}

impl Store {
    /// The intent to publish a volume of a sandbox, unless its head has moved or another publish of it is not over.
    pub(crate) async fn publish_insert(&self, new: &NewPublish<'_>) -> Result<Publish, StoreError> {
        let sandbox = new.sandbox;
        let mut tx = self.write.begin().await?;
        let select = "SELECT v.*, a.position, a.read_only, a.base_checkpoint_id FROM volume_attachments a \
                      JOIN volumes v ON v.id = a.volume_id WHERE a.sandbox_id = $1 AND v.name = $2";
        let found = sqlx::query(select).bind(sandbox.id.as_str()).bind(new.volume).fetch_optional(&mut *tx).await?;
        let Some(attached) = found else { return Ok(Publish::NotAttached) };
        if attached.try_get("read_only")? {
            return Ok(Publish::ReadOnly);
        }
        let position = from_db(attached.try_get("position")?) as usize;
        let base: Option<String> = attached.try_get("base_checkpoint_id")?;
        let volume = volume::read(&attached)?;
        let select = "SELECT id FROM checkpoints WHERE volume_id = $1 AND state = 'pending' LIMIT 1";
        if let Some(pending) = sqlx::query_scalar(select).bind(&volume.id).fetch_optional(&mut *tx).await? {
            return Ok(Publish::Pending(pending));
        }
        let head = volume.head.map(|head| head.checkpoint_id);
        if let Some(moved_to) = head.as_ref().filter(|_| head != base && !new.force) {
            return Ok(Publish::HeadMoved(moved_to.clone()));
        }
        let select = "SELECT depth FROM checkpoints WHERE id = $1";
        let depth: Option<i64> = sqlx::query_scalar(select).bind(&head).fetch_optional(&mut *tx).await?;
        let row = CheckpointRow {
            id: new.id.clone(),
            sandbox_id: sandbox.id.to_string(),
            user_id: sandbox.user_id.clone(),
            team_id: sandbox.team_id.clone(),
            volume_id: Some(volume.id),
            parent_id: head,
            depth: depth.map_or(0, |depth| from_db(depth) + 1),
            docker_image: sandbox.request.docker_image.clone().unwrap_or_default(),
            stage: CheckpointStage::Pending,
            made: None,
            error: None,
            created_at_ms: new.now_ms,
            updated_at_ms: new.now_ms,
        };
        insert(&mut tx, &row).await?;
        tx.commit().await?;
        Ok(Publish::New(Box::new(row), position))
    }

    /// Makes a checkpoint that has become durable the head of its volume, if it is of one; its sandbox has published that.
    pub(super) async fn move_head(
        tx: &mut Transaction<'_, Sqlite>,
        id: &CheckpointId,
        made: &CheckpointMade,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE volumes SET head_checkpoint_id = $1, head_digest = $2, head_bytes = $3 \
             WHERE id = (SELECT volume_id FROM checkpoints WHERE id = $1)",
        )
        .bind(id.as_str())
        .bind(&made.digest)
        .bind(to_db(made.occupied_bytes))
        .execute(&mut **tx)
        .await?;
        sqlx::query(
            "UPDATE volume_attachments SET base_checkpoint_id = $1 \
             WHERE volume_id = (SELECT volume_id FROM checkpoints WHERE id = $1) \
             AND sandbox_id = (SELECT sandbox_id FROM checkpoints WHERE id = $1)",
        )
        .bind(id.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// The intent to let go of versions that were durable, or failed, before this time, and that no volume leads to any more.
    pub(crate) async fn superseded_delete(&self, before_ms: u64) -> Result<u64, StoreError> {
        Ok(sqlx::query(SUPERSEDED).bind(to_db(before_ms)).execute(&self.write).await?.rows_affected())
    }

    /// Whether a checkpoint is what a volume leads to now.
    pub(crate) async fn is_head(&self, id: &CheckpointId) -> Result<bool, StoreError> {
        let select = "SELECT 1 FROM volumes WHERE head_checkpoint_id = $1";
        Ok(sqlx::query(select).bind(id.as_str()).fetch_optional(&self.read).await?.is_some())
    }

    /// Whether a sandbox that has not ended has a volume that lies on the image of this digest.
    pub(crate) async fn volume_image_needed(&self, digest: &str) -> Result<bool, StoreError> {
        let select = "SELECT 1 FROM volume_attachments a JOIN sandboxes s ON s.id = a.sandbox_id \
                      WHERE a.base_digest = $1 AND s.ended_at_ms IS NULL LIMIT 1";
        Ok(sqlx::query(select).bind(digest).fetch_optional(&self.read).await?.is_some())
    }
}

#[cfg(test)]
#[path = "publish_tests.rs"]
mod tests;
