use super::row::to_db;
use super::{Store, StoreError};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row as _};
use warren_model::egress::EgressPolicy;
use warren_model::{SandboxId, SnapshotId};
use warren_proto::http::{CreateSandbox, SnapshotState};
use warren_proto::node::SnapshotInfo;

/// Most snapshots in one answer.
const LIST_MAX: i64 = 1000;

/// One row of `snapshots`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SnapshotRow {
    pub(crate) id: SnapshotId,
    pub(crate) sandbox_id: SandboxId,
    pub(crate) user_id: String,
    pub(crate) team_id: Option<String>,
    pub(crate) name: Option<String>,
    /// Taken for a fork; goes by itself.
    pub(crate) passing: bool,
    pub(crate) state: SnapshotState,
    /// The sandbox's create call, the values of its secrets replaced.
    pub(crate) request: CreateSandbox,
    /// The secrets' JSON, sealed for this snapshot.
    pub(crate) secrets: Option<String>,
    /// What the sandbox might reach.
    pub(crate) egress: EgressPolicy,
    pub(crate) node_image: Option<String>,
    pub(crate) image_digest: Option<String>,
    /// What the node said when it was ready.
    pub(crate) paused_us: Option<u64>,
    pub(crate) stored_bytes: Option<u64>,
    pub(crate) digest: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
}

impl SnapshotRow {
    /// Takes note of what the node has.
    pub(crate) fn is_ready(&mut self, info: &SnapshotInfo) {
        self.state = SnapshotState::Ready;
        self.image_digest = Some(info.image_digest.clone());
        self.paused_us = Some((info.paused_ms * 1000.0) as u64);
        self.stored_bytes = Some(info.stored_bytes);
        self.digest.clone_from(&info.digest);
    }
}

/// Which snapshots.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SnapshotsOf<'a> {
    /// Of one sandbox.
    Sandbox(&'a SandboxId),
    /// A user's own, of no team.
    User(&'a str),
    /// A team's.
    Team(&'a str),
    /// Those for which something may be left to do.
    Unsettled,
}

impl Store {
    /// Inserts one, before the node is asked.
    pub(crate) async fn snapshot_insert(&self, row: &SnapshotRow) -> Result<(), StoreError> {
        let damaged = |column| StoreError::Damaged { table: "snapshots", column, id: row.id.to_string() };
        sqlx::query(
            "INSERT INTO snapshots (id, sandbox_id, user_id, team_id, name, passing, state, request, secrets, egress, \
             node_image, image_digest, created_at_ms, updated_at_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        )
        .bind(row.id.as_str())
        .bind(row.sandbox_id.as_str())
        .bind(&row.user_id)
        .bind(&row.team_id)
        .bind(&row.name)
        .bind(row.passing)
        .bind(row.state.as_str())
        .bind(serde_json::to_string(&row.request).map_err(|_| damaged("request"))?)
        .bind(&row.secrets)
        .bind(serde_json::to_string(&row.egress).map_err(|_| damaged("egress"))?)
        .bind(&row.node_image)
        .bind(&row.image_digest)
        .bind(to_db(row.created_at_ms))
        .bind(to_db(row.updated_at_ms))
        .execute(&self.write)
        .await?;
        Ok(())
    }

    /// One snapshot.
    pub(crate) async fn snapshot_get(&self, id: &SnapshotId) -> Result<Option<SnapshotRow>, StoreError> {
        let row = sqlx::query("SELECT * FROM snapshots WHERE id = $1").bind(id.as_str());
        row.fetch_optional(&self.read).await?.as_ref().map(read).transpose()
    }

    /// Snapshots, the oldest first, at most [`LIST_MAX`].
    pub(crate) async fn snapshots_list(&self, of: SnapshotsOf<'_>) -> Result<Vec<SnapshotRow>, StoreError> {
        let (condition, value) = match of {
            SnapshotsOf::Sandbox(id) => ("NOT passing AND state <> 'deleting' AND sandbox_id = ", Some(id.as_str())),
            SnapshotsOf::User(id) => {
                ("NOT passing AND state <> 'deleting' AND team_id IS NULL AND user_id = ", Some(id))
            }
            SnapshotsOf::Team(id) => ("NOT passing AND state <> 'deleting' AND team_id = ", Some(id)),
            SnapshotsOf::Unsettled => {
                ("(state IN ('pending', 'deleting') OR passing OR (state = 'ready' AND digest IS NULL))", None)
            }
        };
        let mut query = QueryBuilder::new("SELECT * FROM snapshots WHERE ");
        query.push(condition);
        if let Some(value) = value {
            query.push_bind(value);
        }
        query.push(" ORDER BY created_at_ms, id LIMIT ").push_bind(LIST_MAX);
        let rows = query.build().fetch_all(&self.read).await?;
        rows.iter().map(read).collect()
    }

    /// The newest of a sandbox that is ready.
    pub(crate) async fn snapshot_newest(&self, sandbox: &SandboxId) -> Result<Option<SnapshotRow>, StoreError> {
        let select = "SELECT * FROM snapshots WHERE sandbox_id = $1 AND state = 'ready' AND NOT passing \
                      ORDER BY created_at_ms DESC, id DESC LIMIT 1";
        let row = sqlx::query(select).bind(sandbox.as_str()).fetch_optional(&self.read).await?;
        row.as_ref().map(read).transpose()
    }

    /// How many a user has.
    pub(crate) async fn snapshots_count(&self, user_id: &str) -> Result<u64, StoreError> {
        let select = "SELECT COUNT(*) FROM snapshots WHERE user_id = $1 AND NOT passing";
        let count: i64 = sqlx::query_scalar(select).bind(user_id).fetch_one(&self.read).await?;
        Ok(count.unsigned_abs())
    }

    /// Whether a sandbox that was asked for from it has not started yet.
    pub(crate) async fn snapshot_is_awaited(&self, id: &SnapshotId) -> Result<bool, StoreError> {
        let select =
            "SELECT COUNT(*) FROM sandboxes WHERE snapshot_id = $1 AND started_at_ms IS NULL AND ended_at_ms IS NULL";
        let count: i64 = sqlx::query_scalar(select).bind(id.as_str()).fetch_one(&self.read).await?;
        Ok(count > 0)
    }

    /// Writes down what became of one.
    pub(crate) async fn snapshot_update(&self, row: &SnapshotRow) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE snapshots SET state = $1, image_digest = $2, paused_us = $3, stored_bytes = $4, digest = $5, \
             error = $6, updated_at_ms = $7 WHERE id = $8 AND (state <> 'deleting' OR $1 = 'deleting')",
        )
        .bind(row.state.as_str())
        .bind(&row.image_digest)
        .bind(row.paused_us.map(to_db))
        .bind(row.stored_bytes.map(to_db))
        .bind(&row.digest)
        .bind(&row.error)
        .bind(to_db(row.updated_at_ms))
        .bind(row.id.as_str())
        .execute(&self.write)
        .await?;
        Ok(())
    }

    /// Forgets one that the node has let go.
    pub(crate) async fn snapshot_delete(&self, id: &SnapshotId) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM snapshots WHERE id = $1").bind(id.as_str()).execute(&self.write).await?;
        Ok(())
    }
}

fn read(row: &SqliteRow) -> Result<SnapshotRow, StoreError> {
    let id: String = row.try_get("id")?;
    let damaged = |column| StoreError::Damaged { table: "snapshots", column, id: id.clone() };
    let text = |column| row.try_get::<String, _>(column);
    let maybe_number = |column| row.try_get::<Option<i64>, _>(column).map(|n| n.map(i64::unsigned_abs));
    Ok(SnapshotRow {
        sandbox_id: SandboxId::parse(&text("sandbox_id")?).map_err(|_| damaged("sandbox_id"))?,
        user_id: text("user_id")?,
        team_id: row.try_get("team_id")?,
        name: row.try_get("name")?,
        passing: row.try_get("passing")?,
        state: SnapshotState::parse(&text("state")?).ok_or_else(|| damaged("state"))?,
        request: serde_json::from_str(&text("request")?).map_err(|_| damaged("request"))?,
        secrets: row.try_get("secrets")?,
        egress: serde_json::from_str(&text("egress")?).map_err(|_| damaged("egress"))?,
        node_image: row.try_get("node_image")?,
        image_digest: row.try_get("image_digest")?,
        paused_us: maybe_number("paused_us")?,
        stored_bytes: maybe_number("stored_bytes")?,
        digest: row.try_get("digest")?,
        error: row.try_get("error")?,
        created_at_ms: row.try_get::<i64, _>("created_at_ms")?.unsigned_abs(),
        updated_at_ms: row.try_get::<i64, _>("updated_at_ms")?.unsigned_abs(),
        id: SnapshotId::parse(&id).map_err(|_| damaged("id"))?,
    })
}
