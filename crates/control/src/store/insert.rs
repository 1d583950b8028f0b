use super::row::to_db;
use super::{SandboxRow, Store, StoreError};
use sqlx::{Sqlite, Transaction};
use std::collections::BTreeSet;
use warren_model::SandboxId;

/// A row to insert, and the conditions for it.
pub(crate) struct NewSandbox {
    /// With status PENDING and placement `Queued`.
    pub(crate) row: SandboxRow,
    /// Key and keyed hash of the request.
    pub(crate) idempotency: Option<(String, String)>,
    /// Most live sandboxes of the user, this one included.
    pub(crate) live_max: Option<u64>,
}

/// What became of an insert.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Inserted {
    /// The row is there now.
    New,
    /// The same request made this sandbox before.
    Before(SandboxId),
    /// The key belongs to another request.
    OtherRequest,
    /// The user has as many live sandboxes as he may have.
    LimitReached,
}

impl Store {
    /// Inserts a sandbox, its labels and its idempotency key together, or nothing.
    pub(crate) async fn sandbox_insert(&self, new: &NewSandbox) -> Result<Inserted, StoreError> {
        let mut tx = self.write.begin().await?;
        if let Some((key, fingerprint)) = &new.idempotency
            && let Some(before) = Self::idempotency_claim(&mut tx, &new.row, key, fingerprint).await?
        {
            return Ok(before);
        }
        if let Some(max) = new.live_max
            && Self::live_count(&mut tx, &new.row.user_id).await? >= max
        {
            return Ok(Inserted::LimitReached);
        }
        insert_row(&mut tx, &new.row).await?;
        for label in new.row.request.labels.iter().collect::<BTreeSet<_>>() {
            sqlx::query("INSERT INTO sandbox_labels (sandbox_id, label) VALUES ($1, $2)")
                .bind(new.row.id.as_str())
                .bind(label)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(Inserted::New)
    }

    async fn live_count(tx: &mut Transaction<'_, Sqlite>, user_id: &str) -> Result<u64, StoreError> {
        let live = "SELECT COUNT(*) FROM sandboxes WHERE user_id = $1 AND ended_at_ms IS NULL";
        let count: i64 = sqlx::query_scalar(live).bind(user_id).fetch_one(&mut **tx).await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

async fn insert_row(tx: &mut Transaction<'_, Sqlite>, row: &SandboxRow) -> Result<(), StoreError> {
    let damaged = |column| StoreError::Damaged { table: "sandboxes", column, id: row.id.to_string() };
    sqlx::query(
        "INSERT INTO sandboxes (id, user_id, team_id, request, secrets, intent, placement, status, egress, \
         egress_generation, egress_applied, infra_fault, created_at_ms, updated_at_ms, version) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
    )
    .bind(row.id.as_str())
    .bind(&row.user_id)
    .bind(&row.team_id)
    .bind(serde_json::to_string(&row.request).map_err(|_| damaged("request"))?)
    .bind(&row.secrets)
    .bind(row.intent.as_str())
    .bind(row.placement.as_str())
    .bind(row.status.as_str())
    .bind(serde_json::to_string(&row.egress).map_err(|_| damaged("egress"))?)
    .bind(to_db(row.egress_generation))
    .bind(to_db(row.egress_applied))
    .bind(row.infra_fault)
    .bind(to_db(row.created_at_ms))
    .bind(to_db(row.updated_at_ms))
    .bind(row.version)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
