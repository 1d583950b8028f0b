use super::row::to_db;
use super::{Page, Store, StoreError};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

/// A row of `volumes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeRow {
    pub(crate) id: String,
    /// `user:ID` or `team:ID`.
    pub(crate) scope: String,
    pub(crate) name: String,
    pub(crate) creator_id: String,
    /// What was published last; `None`: nothing yet.
    pub(crate) head: Option<Head>,
    pub(crate) created_at_ms: u64,
}

/// A published version of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) checkpoint_id: String,
    /// Of the image on the node that has its bytes.
    pub(crate) digest: String,
    /// How many.
    pub(crate) bytes: u64,
}

/// What became of the delete of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VolumeDeleted {
    /// It is gone.
    Gone,
    /// This sandbox, which has not ended, has it.
    Attached(String),
    /// This publish of it is not over.
    Publishing(String),
}

impl Store {
    /// Adds a volume; `false` if its scope has `max` already. Refuses a name that is taken in its scope.
    pub(crate) async fn volume_insert(&self, row: &VolumeRow, max: u64) -> Result<bool, StoreError> {
        let insert = "INSERT INTO volumes (id, scope, name, creator_id, head_bytes, created_at_ms) \
                      SELECT $1, $2, $3, $4, 0, $5 WHERE (SELECT COUNT(*) FROM volumes WHERE scope = $2) < $6";
        let done = sqlx::query(insert)
            .bind(&row.id)
            .bind(&row.scope)
            .bind(&row.name)
            .bind(&row.creator_id)
            .bind(to_db(row.created_at_ms))
            .bind(to_db(max))
            .execute(&self.write)
            .await
            .map_err(|error| StoreError::unique(error, "the name of the volume"))?;
        Ok(done.rows_affected() == 1)
    }

    /// The volume of a scope with this name.
    pub(crate) async fn volume_get(&self, scope: &str, name: &str) -> Result<Option<VolumeRow>, StoreError> {
        let select = "SELECT * FROM volumes WHERE scope = $1 AND name = $2";
        sqlx::query(select).bind(scope).bind(name).fetch_optional(&self.read).await?.as_ref().map(read).transpose()
    }

    /// A page of a scope's volumes by name, and the number on all pages.
    pub(crate) async fn volumes_list(&self, scope: &str, page: Page) -> Result<(Vec<VolumeRow>, u64), StoreError> {
        let count = "SELECT COUNT(*) FROM volumes WHERE scope = $1";
        let total: i64 = sqlx::query_scalar(count).bind(scope).fetch_one(&self.read).await?;
        let select = "SELECT * FROM volumes WHERE scope = $1 ORDER BY name LIMIT $2 OFFSET $3";
        let query = sqlx::query(select).bind(scope).bind(to_db(page.limit)).bind(to_db(page.offset));
        let rows = query.fetch_all(&self.read).await?;
        Ok((rows.iter().map(read).collect::<Result<_, _>>()?, total.unsigned_abs()))
    }

    /// Bytes of what was published last of all volumes of a scope.
    pub(crate) async fn volumes_bytes(&self, scope: &str) -> Result<u64, StoreError> {
        let select = "SELECT CAST(COALESCE(SUM(head_bytes), 0) AS BIGINT) FROM volumes WHERE scope = $1";
        let bytes: i64 = sqlx::query_scalar(select).bind(scope).fetch_one(&self.read).await?;
        Ok(bytes.unsigned_abs())
    }

    /// Deletes a volume that no sandbox has which has not ended, and intends to let its versions go.
    pub(crate) async fn volume_delete(&self, id: &str, now_ms: u64) -> Result<VolumeDeleted, StoreError> {
        let mut tx = self.write.begin().await?;
        let select = "SELECT a.sandbox_id FROM volume_attachments a JOIN sandboxes s ON s.id = a.sandbox_id \
                      WHERE a.volume_id = $1 AND s.ended_at_ms IS NULL LIMIT 1";
        if let Some(sandbox_id) = sqlx::query_scalar(select).bind(id).fetch_optional(&mut *tx).await? {
            return Ok(VolumeDeleted::Attached(sandbox_id));
        }
        let select = "SELECT id FROM checkpoints WHERE volume_id = $1 AND state = 'pending' LIMIT 1";
        if let Some(checkpoint_id) = sqlx::query_scalar(select).bind(id).fetch_optional(&mut *tx).await? {
            return Ok(VolumeDeleted::Publishing(checkpoint_id));
        }
        let update = "UPDATE checkpoints SET state = 'deleting', updated_at_ms = $2 \
                      WHERE volume_id = $1 AND state IN ('durable', 'failed')";
        sqlx::query(update).bind(id).bind(to_db(now_ms)).execute(&mut *tx).await?;
        sqlx::query("DELETE FROM volumes WHERE id = $1").bind(id).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(VolumeDeleted::Gone)
    }
}

pub(super) fn read(row: &SqliteRow) -> Result<VolumeRow, StoreError> {
    let (checkpoint_id, digest): (Option<String>, Option<String>) =
        (row.try_get("head_checkpoint_id")?, row.try_get("head_digest")?);
    let bytes = row.try_get::<i64, _>("head_bytes")?.unsigned_abs();
    Ok(VolumeRow {
        id: row.try_get("id")?,
        scope: row.try_get("scope")?,
        name: row.try_get("name")?,
        creator_id: row.try_get("creator_id")?,
        head: checkpoint_id.zip(digest).map(|(checkpoint_id, digest)| Head { checkpoint_id, digest, bytes }),
        created_at_ms: row.try_get::<i64, _>("created_at_ms")?.unsigned_abs(),
    })
}
