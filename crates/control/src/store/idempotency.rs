use super::row::to_db;
use super::{Inserted, SandboxRow, Store, StoreError};
use sqlx::{Row as _, Sqlite, Transaction};

/// How long a key answers the same sandbox, milliseconds.
pub(super) const KEY_KEPT_MS: u64 = 24 * 3600 * 1000;

impl Store {
    /// Claims `key` for `row`; `Some` says what an earlier claim means for this one.
    ///
    /// A second transaction with the same key waits for the first, so that one of them sees the other's claim.
    pub(super) async fn idempotency_claim(
        tx: &mut Transaction<'_, Sqlite>,
        row: &SandboxRow,
        key: &str,
        fingerprint: &str,
    ) -> Result<Option<Inserted>, StoreError> {
        let claimed = sqlx::query(
            "INSERT INTO idempotency_keys (user_id, idempotency_key, fingerprint, sandbox_id, created_at_ms) \
             VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (user_id, idempotency_key) DO UPDATE SET fingerprint = excluded.fingerprint, \
             sandbox_id = excluded.sandbox_id, created_at_ms = excluded.created_at_ms \
             WHERE idempotency_keys.created_at_ms < $6",
        )
        .bind(&row.user_id)
        .bind(key)
        .bind(fingerprint)
        .bind(row.id.as_str())
        .bind(to_db(row.created_at_ms))
        .bind(to_db(row.created_at_ms.saturating_sub(KEY_KEPT_MS)))
        .execute(&mut **tx)
        .await?;
        if claimed.rows_affected() > 0 {
            return Ok(None);
        }
        let select = "SELECT fingerprint, sandbox_id FROM idempotency_keys WHERE user_id = $1 AND idempotency_key = $2";
        let before = sqlx::query(select).bind(&row.user_id).bind(key).fetch_one(&mut **tx).await?;
        if before.try_get::<String, _>("fingerprint")? != fingerprint {
            return Ok(Some(Inserted::OtherRequest));
        }
        let id: String = before.try_get("sandbox_id")?;
        let damaged = StoreError::Damaged { table: "idempotency_keys", column: "sandbox_id", id: id.clone() };
        warren_model::SandboxId::parse(&id).map(|id| Some(Inserted::Before(id))).map_err(|_| damaged)
    }
}
