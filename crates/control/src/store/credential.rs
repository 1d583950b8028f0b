use super::row::to_db;
use super::{Store, StoreError};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

/// Saved logins of one scope.
const CREDENTIALS_MAX: i64 = 200;

/// A row of `registry_credentials`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CredentialRow {
    pub(crate) id: String,
    /// `user:ID` or `team:ID`.
    pub(crate) scope: String,
    /// Registry host as in canonical references.
    pub(crate) server: String,
    pub(crate) username: String,
    /// The password, sealed for `id`.
    pub(crate) sealed: String,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
}

impl Store {
    /// All saved logins of a scope, by server.
    pub(crate) async fn credentials_list(&self, scope: &str) -> Result<Vec<CredentialRow>, StoreError> {
        let select = "SELECT * FROM registry_credentials WHERE scope = $1 ORDER BY server LIMIT $2";
        let rows = sqlx::query(select).bind(scope).bind(CREDENTIALS_MAX).fetch_all(&self.read).await?;
        rows.iter().map(read).collect()
    }

    /// The saved login of a scope for a server.
    pub(crate) async fn credential_get(&self, scope: &str, server: &str) -> Result<Option<CredentialRow>, StoreError> {
        let select = "SELECT * FROM registry_credentials WHERE scope = $1 AND server = $2";
        sqlx::query(select).bind(scope).bind(server).fetch_optional(&self.read).await?.as_ref().map(read).transpose()
    }

    /// Saves a login in place of the one for the same server; `false` if the scope is full.
    pub(crate) async fn credential_put(&self, row: &CredentialRow) -> Result<bool, StoreError> {
        let upsert = "INSERT INTO registry_credentials \
                      (id, scope, server, username, sealed, created_at_ms, updated_at_ms) \
                      SELECT $1, $2, $3, $4, $5, $6, $7 \
                      WHERE (SELECT COUNT(*) FROM registry_credentials WHERE scope = $2 AND server <> $3) < $8 \
                      ON CONFLICT (scope, server) DO UPDATE SET id = excluded.id, username = excluded.username, \
                      sealed = excluded.sealed, updated_at_ms = excluded.updated_at_ms";
        let done = sqlx::query(upsert)
            .bind(&row.id)
            .bind(&row.scope)
            .bind(&row.server)
            .bind(&row.username)
            .bind(&row.sealed)
            .bind(to_db(row.created_at_ms))
            .bind(to_db(row.updated_at_ms))
            .bind(CREDENTIALS_MAX)
            .execute(&self.write)
            .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Deletes; `false` if it is gone.
    pub(crate) async fn credential_delete(&self, scope: &str, server: &str) -> Result<bool, StoreError> {
        let delete = "DELETE FROM registry_credentials WHERE scope = $1 AND server = $2";
        let done = sqlx::query(delete).bind(scope).bind(server).execute(&self.write).await?;
        Ok(done.rows_affected() == 1)
    }
}

fn read(row: &SqliteRow) -> Result<CredentialRow, StoreError> {
    Ok(CredentialRow {
        id: row.try_get("id")?,
        scope: row.try_get("scope")?,
        server: row.try_get("server")?,
        username: row.try_get("username")?,
        sealed: row.try_get("sealed")?,
        created_at_ms: row.try_get::<i64, _>("created_at_ms")?.unsigned_abs(),
        updated_at_ms: row.try_get::<i64, _>("updated_at_ms")?.unsigned_abs(),
    })
}
