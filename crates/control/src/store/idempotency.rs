use super::row::to_db;
use super::{Inserted, NewSandbox, SandboxRow, Store, StoreError};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, Sqlite, Transaction};

/// How long a key answers the same sandbox, milliseconds.
pub(super) const KEY_KEPT_MS: u64 = 24 * 3600 * 1000;

/// The claim of a user's key.
const SELECT: &str = "SELECT fingerprint, sandbox_id FROM idempotency_keys WHERE user_id = $1 AND idempotency_key = $2";

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
        .bind(oldest(row))
        .execute(&mut **tx)
        .await?;
        if claimed.rows_affected() > 0 {
            return Ok(None);
        }
        let before = sqlx::query(SELECT).bind(&row.user_id).bind(key).fetch_one(&mut **tx).await?;
        meaning(&before, fingerprint).map(Some)
    }

    /// What an earlier claim of its key means for `new`, which claims nothing yet.
    pub(crate) async fn idempotency_before(&self, new: &NewSandbox) -> Result<Option<Inserted>, StoreError> {
        let Some((key, fingerprint)) = &new.idempotency else { return Ok(None) };
        let select = sqlx::AssertSqlSafe(format!("{SELECT} AND created_at_ms >= $3"));
        let before = sqlx::query(select).bind(&new.row.user_id).bind(key).bind(oldest(&new.row));
        before.fetch_optional(&self.read).await?.map(|before| meaning(&before, fingerprint)).transpose()
    }
}

/// Claims made before this, milliseconds, are over.
fn oldest(row: &SandboxRow) -> i64 {
    to_db(row.created_at_ms.saturating_sub(KEY_KEPT_MS))
}

fn meaning(before: &SqliteRow, fingerprint: &str) -> Result<Inserted, StoreError> {
    if before.try_get::<String, _>("fingerprint")? != fingerprint {
        return Ok(Inserted::OtherRequest);
    }
    let id: String = before.try_get("sandbox_id")?;
    let damaged = StoreError::Damaged { table: "idempotency_keys", column: "sandbox_id", id: id.clone() };
    warren_model::SandboxId::parse(&id).map(Inserted::Before).map_err(|_| damaged)
}
