use super::row::to_db;
use super::{SandboxRow, Store, StoreError, volume};
use crate::auth::scope_of;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, Sqlite, Transaction};
use warren_model::SandboxId;

/// A row of `volume_attachments`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttachmentRow {
    /// Place in the request's list of volumes, and of the sandbox's volume disks.
    pub(crate) position: usize,
    pub(crate) volume_id: String,
    pub(crate) read_only: bool,
    /// The head that the sandbox's disk lies on, or that it has published itself; `None`: an empty volume.
    pub(crate) base_checkpoint_id: Option<String>,
    /// Of the image that the disk lies on.
    pub(crate) base_digest: Option<String>,
}

impl Store {
    /// Attaches the volumes that a new sandbox asks for, each at its head of this moment; otherwise the place of the first that its
    /// owner does not have.
    pub(super) async fn attach(
        tx: &mut Transaction<'_, Sqlite>,
        sandbox: &SandboxRow,
    ) -> Result<Result<(), usize>, StoreError> {
        let scope = scope_of(&sandbox.user_id, sandbox.team_id.as_deref());
        for (position, mount) in sandbox.request.volumes.iter().flatten().enumerate() {
            let select = "SELECT * FROM volumes WHERE scope = $1 AND name = $2";
            let found = sqlx::query(select).bind(&scope).bind(&mount.name).fetch_optional(&mut **tx).await?;
            let Some(volume) = found.as_ref().map(volume::read).transpose()? else { return Ok(Err(position)) };
            let (checkpoint_id, digest) = volume.head.map(|head| (head.checkpoint_id, head.digest)).unzip();
            let insert = "INSERT INTO volume_attachments \
                          (sandbox_id, position, volume_id, read_only, base_checkpoint_id, base_digest) \
                          VALUES ($1, $2, $3, $4, $5, $6)";
            sqlx::query(insert)
                .bind(sandbox.id.as_str())
                .bind(to_db(position as u64))
                .bind(&volume.id)
                .bind(mount.read_only)
                .bind(checkpoint_id)
                .bind(digest)
                .execute(&mut **tx)
                .await?;
        }
        Ok(Ok(()))
    }

    /// The volumes of a sandbox, in the order of its request.
    pub(crate) async fn attachments(&self, sandbox_id: &SandboxId) -> Result<Vec<AttachmentRow>, StoreError> {
        let select = "SELECT * FROM volume_attachments WHERE sandbox_id = $1 ORDER BY position";
        let rows = sqlx::query(select).bind(sandbox_id.as_str()).fetch_all(&self.read).await?;
        rows.iter().map(read).collect()
    }
}

fn read(row: &SqliteRow) -> Result<AttachmentRow, StoreError> {
    Ok(AttachmentRow {
        position: row.try_get::<i64, _>("position")?.unsigned_abs() as usize,
        volume_id: row.try_get("volume_id")?,
        read_only: row.try_get("read_only")?,
        base_checkpoint_id: row.try_get("base_checkpoint_id")?,
        base_digest: row.try_get("base_digest")?,
    })
}
