//! A checkpoint's row as the public API shows it.

use crate::store::{CheckpointRow, CheckpointStage};
use warren_proto::http::{Checkpoint, CheckpointWord, Timestamp};

/// Whether anybody is shown it: one that was deleted is gone, whatever the node still has to do.
pub(super) fn is_shown(row: &CheckpointRow) -> bool {
    !matches!(row.stage, CheckpointStage::Deleting | CheckpointStage::Deleted)
}

/// For all calls.
pub(super) fn checkpoint(row: CheckpointRow) -> Checkpoint {
    let state = match row.stage {
        CheckpointStage::Pending => CheckpointWord::Pending,
        CheckpointStage::Durable => CheckpointWord::Durable,
        CheckpointStage::Failed | CheckpointStage::Deleting | CheckpointStage::Deleted => CheckpointWord::Failed,
    };
    Checkpoint {
        id: row.id.to_string(),
        sandbox_id: row.sandbox_id,
        parent_id: row.parent_id,
        team_id: row.team_id,
        state,
        depth: row.depth,
        docker_image: row.docker_image,
        disk_size_bytes: row.made.as_ref().map(|made| made.disk_size_bytes),
        stored_bytes: row.made.as_ref().map(|made| made.stored_bytes),
        occupied_bytes: row.made.as_ref().map_or(0, |made| made.occupied_bytes),
        error: row.error,
        created_at: Timestamp::from_ms(row.created_at_ms),
        updated_at: Timestamp::from_ms(row.updated_at_ms),
    }
}
