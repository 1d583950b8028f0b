use super::row::{from_db, to_db};
use super::{SandboxRow, Store, StoreError};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row as _, Sqlite, Transaction};
use warren_model::{CheckpointId, SandboxId};
use warren_proto::node::{CheckpointMade, CheckpointState};

/// How far a checkpoint is. Which may follow which:
///
/// ```text
///  PENDING ──► DURABLE ──► DELETING ──► DELETED
///     └──────► FAILED ────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckpointStage {
    /// The node makes it.
    Pending,
    /// It can be restored.
    Durable,
    /// It never can.
    Failed,
    /// Nobody is shown it any more; the node is to let it go.
    Deleting,
    /// It has.
    Deleted,
}

impl CheckpointStage {
    const ALL: [Self; 5] = [Self::Pending, Self::Durable, Self::Failed, Self::Deleting, Self::Deleted];

    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Durable => "durable",
            Self::Failed => "failed",
            Self::Deleting => "deleting",
            Self::Deleted => "deleted",
        }
    }
}

/// One row of `checkpoints`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CheckpointRow {
    pub(crate) id: CheckpointId,
    pub(crate) sandbox_id: String,
    pub(crate) user_id: String,
    pub(crate) team_id: Option<String>,
    /// The volume whose version it is; `None`: it is of the sandbox's root disk.
    pub(crate) volume_id: Option<String>,
    pub(crate) parent_id: Option<String>,
    pub(crate) depth: u64,
    pub(crate) docker_image: String,
    pub(crate) stage: CheckpointStage,
    /// What it became, once durable.
    pub(crate) made: Option<CheckpointMade>,
    pub(crate) error: Option<String>,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
}

/// A checkpoint that was just asked for.
pub(crate) struct NewCheckpoint<'a> {
    pub(crate) id: &'a CheckpointId,
    pub(crate) sandbox: &'a SandboxRow,
    /// Checkpoints that a sandbox may have.
    pub(crate) count_max: u64,
    pub(crate) now_ms: u64,
}

/// What became of an insert.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Taken {
    /// The row is there, pending.
    New(Box<CheckpointRow>),
    /// The sandbox has as many as it may have.
    TooMany,
}

impl Store {
    /// The intent to make a checkpoint. It lies on the newest of the sandbox, or on the one that the sandbox was made from.
    pub(crate) async fn checkpoint_insert(&self, new: &NewCheckpoint<'_>) -> Result<Taken, StoreError> {
        let sandbox = new.sandbox;
        let mut tx = self.write.begin().await?;
        let select = "SELECT COUNT(*) FROM checkpoints WHERE sandbox_id = $1 AND volume_id IS NULL \
             AND state IN ('pending', 'durable', 'failed')";
        let count: i64 = sqlx::query_scalar(select).bind(sandbox.id.as_str()).fetch_one(&mut *tx).await?;
        if from_db(count) >= new.count_max {
            return Ok(Taken::TooMany);
        }
        let select = "SELECT id, depth FROM checkpoints WHERE sandbox_id = $1 AND volume_id IS NULL AND state <> 'failed' \
             ORDER BY depth DESC LIMIT 1";
        let newest: Option<(String, i64)> =
            sqlx::query_as(select).bind(sandbox.id.as_str()).fetch_optional(&mut *tx).await?;
        let select = "SELECT id, depth FROM checkpoints WHERE id = $1";
        let parent = match (newest, &sandbox.request.checkpoint_id) {
            (None, Some(source)) => sqlx::query_as(select).bind(source).fetch_optional(&mut *tx).await?,
            (newest, _) => newest,
        };
        let row = CheckpointRow {
            id: new.id.clone(),
            sandbox_id: sandbox.id.to_string(),
            user_id: sandbox.user_id.clone(),
            team_id: sandbox.team_id.clone(),
            volume_id: None,
            depth: parent.as_ref().map_or(0, |(_, depth)| from_db(*depth) + 1),
            parent_id: parent.map(|(id, _)| id),
            docker_image: sandbox.request.docker_image.clone().unwrap_or_default(),
            stage: CheckpointStage::Pending,
            made: None,
            error: None,
            created_at_ms: new.now_ms,
            updated_at_ms: new.now_ms,
        };
        insert(&mut tx, &row).await?;
        tx.commit().await?;
        Ok(Taken::New(Box::new(row)))
    }

    /// Takes back an intent of which the node has nothing.
    pub(crate) async fn checkpoint_withdraw(&self, id: &CheckpointId) -> Result<(), StoreError> {
        let delete = "DELETE FROM checkpoints WHERE id = $1 AND state = 'pending'";
        sqlx::query(delete).bind(id.as_str()).execute(&self.write).await?;
        Ok(())
    }

    /// Those of `ids` that exist, in no order.
    pub(crate) async fn checkpoints_get(&self, ids: &[CheckpointId]) -> Result<Vec<CheckpointRow>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut query = QueryBuilder::new("SELECT * FROM checkpoints WHERE id IN (");
        let mut list = query.separated(", ");
        for id in ids {
            list.push_bind(id.as_str());
        }
        query.push(")");
        read_all(&query.build().fetch_all(&self.read).await?)
    }

    /// One checkpoint.
    pub(crate) async fn checkpoint_get(&self, id: &CheckpointId) -> Result<Option<CheckpointRow>, StoreError> {
        Ok(self.checkpoints_get(std::slice::from_ref(id)).await?.pop())
    }

    /// All of a sandbox's root disk that were not deleted, the oldest first.
    pub(crate) async fn checkpoints_of(&self, sandbox: &SandboxId) -> Result<Vec<CheckpointRow>, StoreError> {
        let select = "SELECT * FROM checkpoints WHERE sandbox_id = $1 AND volume_id IS NULL \
                      AND state IN ('pending', 'durable', 'failed') ORDER BY depth, created_at_ms, id";
        read_all(&sqlx::query(select).bind(sandbox.as_str()).fetch_all(&self.read).await?)
    }

    /// All that are at this stage.
    pub(crate) async fn checkpoints_at(&self, stage: CheckpointStage) -> Result<Vec<CheckpointRow>, StoreError> {
        let select = "SELECT * FROM checkpoints WHERE state = $1 ORDER BY updated_at_ms, id";
        read_all(&sqlx::query(select).bind(stage.as_str()).fetch_all(&self.read).await?)
    }

    /// Writes down what became of a pending checkpoint. A volume's that is durable is the head of its volume from then on.
    pub(crate) async fn checkpoint_settle(
        &self,
        id: &CheckpointId,
        state: &CheckpointState,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        let (stage, made, error) = match state {
            CheckpointState::Pending => return Ok(()),
            CheckpointState::Durable(made) => (CheckpointStage::Durable, Some(made), None),
            CheckpointState::Failed { problem } => (CheckpointStage::Failed, None, Some(problem)),
        };
        let mut tx = self.write.begin().await?;
        let settled = sqlx::query(
            "UPDATE checkpoints SET state = $1, digest = $2, disk_size_bytes = $3, stored_bytes = $4, occupied_bytes = $5, \
             error = $6, updated_at_ms = $7 WHERE id = $8 AND state = 'pending'",
        )
        .bind(stage.as_str())
        .bind(made.map(|made| &made.digest))
        .bind(made.map(|made| to_db(made.disk_size_bytes)))
        .bind(made.map(|made| to_db(made.stored_bytes)))
        .bind(made.map(|made| to_db(made.occupied_bytes)))
        .bind(error)
        .bind(to_db(now_ms))
        .bind(id.as_str())
        .execute(&mut *tx)
        .await?;
        if settled.rows_affected() == 1
            && let Some(made) = made
        {
            Self::move_head(&mut tx, id, made).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// The intent to let a checkpoint go; `false` if it is pending or deleted already.
    pub(crate) async fn checkpoint_delete(&self, id: &CheckpointId, now_ms: u64) -> Result<bool, StoreError> {
        let update = "UPDATE checkpoints SET state = 'deleting', updated_at_ms = $1 \
                      WHERE id = $2 AND state IN ('durable', 'failed')";
        let done = sqlx::query(update).bind(to_db(now_ms)).bind(id.as_str()).execute(&self.write).await?;
        Ok(done.rows_affected() == 1)
    }

    /// The node has let it go.
    pub(crate) async fn checkpoint_deleted(&self, id: &CheckpointId, now_ms: u64) -> Result<(), StoreError> {
        let update =
            "UPDATE checkpoints SET state = 'deleted', updated_at_ms = $1 WHERE id = $2 AND state = 'deleting'";
        sqlx::query(update).bind(to_db(now_ms)).bind(id.as_str()).execute(&self.write).await?;
        Ok(())
    }

    /// Whether a sandbox that has not ended runs, or is to run, this image of the node, or a snapshot lies on it.
    pub(crate) async fn image_needed(&self, node_image: &str) -> Result<bool, StoreError> {
        let select = "SELECT 1 FROM sandboxes WHERE node_image = $1 AND ended_at_ms IS NULL \
                      UNION ALL SELECT 1 FROM snapshots WHERE node_image = $1 LIMIT 1";
        Ok(sqlx::query(select).bind(node_image).fetch_optional(&self.read).await?.is_some())
    }
}

pub(super) async fn insert(tx: &mut Transaction<'_, Sqlite>, row: &CheckpointRow) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO checkpoints (id, sandbox_id, user_id, team_id, volume_id, parent_id, depth, docker_image, state, \
         created_at_ms, updated_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)",
    )
    .bind(row.id.as_str())
    .bind(&row.sandbox_id)
    .bind(&row.user_id)
    .bind(&row.team_id)
    .bind(&row.volume_id)
    .bind(&row.parent_id)
    .bind(to_db(row.depth))
    .bind(&row.docker_image)
    .bind(row.stage.as_str())
    .bind(to_db(row.created_at_ms))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

fn read_all(rows: &[SqliteRow]) -> Result<Vec<CheckpointRow>, StoreError> {
    rows.iter().map(read).collect()
}

fn read(row: &SqliteRow) -> Result<CheckpointRow, StoreError> {
    let id: String = row.try_get("id")?;
    let damaged = |column| StoreError::Damaged { table: "checkpoints", column, id: id.clone() };
    let number = |column| row.try_get::<i64, _>(column).map(from_db);
    let maybe_number = |column| row.try_get::<Option<i64>, _>(column).map(|n| from_db(n.unwrap_or(0)));
    let state: String = row.try_get("state")?;
    let stage = CheckpointStage::ALL.into_iter().find(|stage| stage.as_str() == state);
    let made = match row.try_get::<Option<String>, _>("digest")? {
        Some(digest) => Some(CheckpointMade {
            digest,
            disk_size_bytes: maybe_number("disk_size_bytes")?,
            stored_bytes: maybe_number("stored_bytes")?,
            occupied_bytes: maybe_number("occupied_bytes")?,
        }),
        None => None,
    };
    Ok(CheckpointRow {
        sandbox_id: row.try_get("sandbox_id")?,
        user_id: row.try_get("user_id")?,
        team_id: row.try_get("team_id")?,
        volume_id: row.try_get("volume_id")?,
        parent_id: row.try_get("parent_id")?,
        depth: number("depth")?,
        docker_image: row.try_get("docker_image")?,
        stage: stage.ok_or_else(|| damaged("state"))?,
        made,
        error: row.try_get("error")?,
        created_at_ms: number("created_at_ms")?,
        updated_at_ms: number("updated_at_ms")?,
        id: CheckpointId::parse(&id).map_err(|_| damaged("id"))?,
    })
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
