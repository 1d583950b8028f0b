use super::row::to_db;
use super::{Store, StoreError};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use warren_model::{SandboxId, SnapshotId};
use warren_proto::http::{CreateSandbox, TemplateState};

/// One row of `app_templates`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TemplateRow {
    pub(crate) id: String,
    pub(crate) user_id: String,
    pub(crate) team_id: Option<String>,
    pub(crate) name: String,
    /// The create call that it stands for.
    pub(crate) request: CreateSandbox,
    /// Exits with 0 once the snapshot may be taken.
    pub(crate) ready: Option<Vec<String>>,
    pub(crate) ready_within_ms: u64,
    pub(crate) state: TemplateState,
    /// What it is being made in.
    pub(crate) sandbox_id: Option<SandboxId>,
    pub(crate) snapshot_id: Option<SnapshotId>,
    pub(crate) image_digest: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
    pub(crate) used_at_ms: u64,
}

impl Store {
    /// Inserts one, before anything is done for it.
    pub(crate) async fn template_insert(&self, row: &TemplateRow) -> Result<(), StoreError> {
        let damaged = |column| StoreError::Damaged { table: "app_templates", column, id: row.id.clone() };
        let ready = row.ready.as_ref().map(serde_json::to_string).transpose().map_err(|_| damaged("ready"))?;
        sqlx::query(
            "INSERT INTO app_templates (id, user_id, team_id, name, request, ready, ready_within_ms, state, \
             created_at_ms, updated_at_ms, used_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        )
        .bind(&row.id)
        .bind(&row.user_id)
        .bind(&row.team_id)
        .bind(&row.name)
        .bind(serde_json::to_string(&row.request).map_err(|_| damaged("request"))?)
        .bind(ready)
        .bind(to_db(row.ready_within_ms))
        .bind(row.state.as_str())
        .bind(to_db(row.created_at_ms))
        .bind(to_db(row.updated_at_ms))
        .bind(to_db(row.used_at_ms))
        .execute(&self.write)
        .await?;
        Ok(())
    }

    /// One template.
    pub(crate) async fn template_get(&self, id: &str) -> Result<Option<TemplateRow>, StoreError> {
        let row = sqlx::query("SELECT * FROM app_templates WHERE id = $1").bind(id);
        row.fetch_optional(&self.read).await?.as_ref().map(read).transpose()
    }

    /// All templates, the oldest first: they are few.
    pub(crate) async fn templates_all(&self) -> Result<Vec<TemplateRow>, StoreError> {
        let rows = sqlx::query("SELECT * FROM app_templates ORDER BY created_at_ms, id").fetch_all(&self.read).await?;
        rows.iter().map(read).collect()
    }

    /// Writes down how far one is, unless it is being deleted and this says something else.
    pub(crate) async fn template_update(&self, row: &TemplateRow) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE app_templates SET state = $1, sandbox_id = $2, snapshot_id = $3, image_digest = $4, error = $5, \
             updated_at_ms = $6, used_at_ms = $7 WHERE id = $8 AND (state <> 'deleting' OR $1 = 'deleting')",
        )
        .bind(row.state.as_str())
        .bind(row.sandbox_id.as_ref().map(SandboxId::as_str))
        .bind(row.snapshot_id.as_ref().map(SnapshotId::as_str))
        .bind(&row.image_digest)
        .bind(&row.error)
        .bind(to_db(row.updated_at_ms))
        .bind(to_db(row.used_at_ms))
        .bind(&row.id)
        .execute(&self.write)
        .await?;
        Ok(())
    }

    /// Forgets one of which nothing is left.
    pub(crate) async fn template_delete(&self, id: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM app_templates WHERE id = $1").bind(id).execute(&self.write).await?;
        Ok(())
    }

    /// When a sandbox last went on from a template's snapshot, milliseconds since 1970.
    pub(crate) async fn template_used_at_ms(&self, snapshot: &SnapshotId) -> Result<Option<u64>, StoreError> {
        let select = "SELECT MAX(created_at_ms) FROM sandboxes WHERE template_id = $1";
        let at: Option<i64> = sqlx::query_scalar(select).bind(snapshot.as_str()).fetch_one(&self.read).await?;
        Ok(at.map(i64::unsigned_abs))
    }

    /// Whether a snapshot is a template's.
    pub(crate) async fn snapshot_is_of_template(&self, snapshot: &SnapshotId) -> Result<bool, StoreError> {
        let select = "SELECT COUNT(*) FROM app_templates WHERE snapshot_id = $1";
        let count: i64 = sqlx::query_scalar(select).bind(snapshot.as_str()).fetch_one(&self.read).await?;
        Ok(count > 0)
    }
}

fn read(row: &SqliteRow) -> Result<TemplateRow, StoreError> {
    let id: String = row.try_get("id")?;
    let damaged = |column| StoreError::Damaged { table: "app_templates", column, id: id.clone() };
    let text = |column| row.try_get::<String, _>(column);
    let number = |column| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    let maybe = |column| row.try_get::<Option<String>, _>(column);
    Ok(TemplateRow {
        user_id: text("user_id")?,
        team_id: maybe("team_id")?,
        name: text("name")?,
        request: serde_json::from_str(&text("request")?).map_err(|_| damaged("request"))?,
        ready: match maybe("ready")? {
            Some(argv) => Some(serde_json::from_str(&argv).map_err(|_| damaged("ready"))?),
            None => None,
        },
        ready_within_ms: number("ready_within_ms")?,
        state: TemplateState::parse(&text("state")?).ok_or_else(|| damaged("state"))?,
        sandbox_id: match maybe("sandbox_id")? {
            Some(id) => Some(SandboxId::parse(&id).map_err(|_| damaged("sandbox_id"))?),
            None => None,
        },
        snapshot_id: match maybe("snapshot_id")? {
            Some(id) => Some(SnapshotId::parse(&id).map_err(|_| damaged("snapshot_id"))?),
            None => None,
        },
        image_digest: maybe("image_digest")?,
        error: maybe("error")?,
        created_at_ms: number("created_at_ms")?,
        updated_at_ms: number("updated_at_ms")?,
        used_at_ms: number("used_at_ms")?,
        id,
    })
}
