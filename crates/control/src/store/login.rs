use super::account::insert_key;
use super::row::to_db;
use super::{Store, StoreError};
use sqlx::Row as _;
use warren_proto::http::KeyLimits;

/// How long a login waits for approval and for its client, milliseconds.
pub(super) const CHALLENGE_KEPT_MS: u64 = 600_000;
/// Logins that wait at once: anybody can begin one.
const CHALLENGES_MAX: i64 = 1000;

/// A row of `login_challenges`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChallengeRow {
    pub(crate) code: String,
    pub(crate) status_token_hash: String,
    /// PEM.
    pub(crate) public_key: String,
    /// Limits of the key that the client will get.
    pub(crate) limits: KeyLimits,
    /// That key, encrypted for the client.
    pub(crate) result: Option<String>,
    pub(crate) created_at_ms: u64,
}

impl Store {
    /// Inserts and drops what is over; `false` if too many logins wait.
    pub(crate) async fn challenge_insert(&self, row: &ChallengeRow) -> Result<bool, StoreError> {
        let damaged = |_| StoreError::Damaged { table: "login_challenges", column: "limits", id: row.code.clone() };
        let mut tx = self.write.begin().await?;
        sqlx::query("DELETE FROM login_challenges WHERE created_at_ms < $1")
            .bind(to_db(row.created_at_ms.saturating_sub(CHALLENGE_KEPT_MS)))
            .execute(&mut *tx)
            .await?;
        let insert = "INSERT INTO login_challenges (code, status_token_hash, public_key, limits, created_at_ms) \
                      SELECT $1, $2, $3, $4, $5 WHERE (SELECT COUNT(*) FROM login_challenges) < $6";
        let done = sqlx::query(insert)
            .bind(&row.code)
            .bind(&row.status_token_hash)
            .bind(&row.public_key)
            .bind(serde_json::to_string(&row.limits).map_err(damaged)?)
            .bind(to_db(row.created_at_ms))
            .bind(CHALLENGES_MAX)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// A login that is not over.
    pub(crate) async fn challenge_get(&self, code: &str, now_ms: u64) -> Result<Option<ChallengeRow>, StoreError> {
        let select = "SELECT * FROM login_challenges WHERE code = $1 AND created_at_ms >= $2";
        let since = to_db(now_ms.saturating_sub(CHALLENGE_KEPT_MS));
        let Some(row) = sqlx::query(select).bind(code).bind(since).fetch_optional(&self.read).await? else {
            return Ok(None);
        };
        let damaged = |_| StoreError::Damaged { table: "login_challenges", column: "limits", id: code.to_owned() };
        let limits: String = row.try_get("limits")?;
        Ok(Some(ChallengeRow {
            code: row.try_get("code")?,
            status_token_hash: row.try_get("status_token_hash")?,
            public_key: row.try_get("public_key")?,
            limits: serde_json::from_str(&limits).map_err(damaged)?,
            result: row.try_get("result")?,
            created_at_ms: row.try_get::<i64, _>("created_at_ms")?.unsigned_abs(),
        }))
    }

    /// Makes the key and hands it to the login, together; `false` if the login was approved before or is gone.
    pub(crate) async fn challenge_approve(
        &self,
        row: &ChallengeRow,
        user_id: &str,
        key_hash: &str,
        result: &str,
        now_ms: u64,
    ) -> Result<bool, StoreError> {
        let mut tx = self.write.begin().await?;
        let update = "UPDATE login_challenges SET result = $1 WHERE code = $2 AND result IS NULL";
        let done = sqlx::query(update).bind(result).bind(&row.code).execute(&mut *tx).await?;
        if done.rows_affected() == 0 {
            return Ok(false);
        }
        insert_key(&mut *tx, user_id, key_hash, &row.limits, now_ms).await?;
        tx.commit().await?;
        Ok(true)
    }
}
