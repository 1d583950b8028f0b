use super::idempotency::KEY_KEPT_MS;
use super::row::to_db;
use super::{Store, StoreError};

/// How long ended sandboxes answer `get`, `logs` and `error-context`, milliseconds (7 days).
pub(crate) const ENDED_KEPT_MS: u64 = 7 * 24 * 3600 * 1000;

impl Store {
    /// Drops sandboxes that ended long ago and idempotency keys that are over; answers how many sandboxes.
    pub(crate) async fn purge(&self, now_ms: u64) -> Result<u64, StoreError> {
        let ended_before = to_db(now_ms.saturating_sub(ENDED_KEPT_MS));
        let mut tx = self.write.begin().await?;
        for of_sandboxes in ["sandbox_labels", "volume_attachments"] {
            let delete = sqlx::AssertSqlSafe(format!(
                "DELETE FROM {of_sandboxes} WHERE sandbox_id IN \
                 (SELECT id FROM sandboxes WHERE placement = 'gone' AND ended_at_ms < $1)"
            ));
            sqlx::query(delete).bind(ended_before).execute(&mut *tx).await?;
        }
        let dropped = sqlx::query("DELETE FROM sandboxes WHERE placement = 'gone' AND ended_at_ms < $1")
            .bind(ended_before)
            .execute(&mut *tx)
            .await?;
        sqlx::query("DELETE FROM checkpoints WHERE state = 'deleted' AND updated_at_ms < $1")
            .bind(ended_before)
            .execute(&mut *tx)
            .await?;
        sqlx::query("DELETE FROM idempotency_keys WHERE created_at_ms < $1")
            .bind(to_db(now_ms.saturating_sub(KEY_KEPT_MS)))
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(dropped.rows_affected())
    }
}
