use super::row::to_db;
use super::{Store, StoreError};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

/// Secrets of one scope.
const SECRETS_MAX: i64 = 1000;

/// A row of `secrets`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretRow {
    pub(crate) id: String,
    /// `user:ID` or `team:ID`.
    pub(crate) scope: String,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) is_file: bool,
    pub(crate) sealed: String,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
}

impl Store {
    /// All secrets of a scope, by name.
    pub(crate) async fn secrets_list(&self, scope: &str) -> Result<Vec<SecretRow>, StoreError> {
        let select = "SELECT * FROM secrets WHERE scope = $1 ORDER BY name LIMIT $2";
        let rows = sqlx::query(select).bind(scope).bind(SECRETS_MAX).fetch_all(&self.read).await?;
        rows.iter().map(read).collect()
    }

    /// One secret of a scope.
    pub(crate) async fn secret_get(&self, scope: &str, id: &str) -> Result<Option<SecretRow>, StoreError> {
        let select = "SELECT * FROM secrets WHERE scope = $1 AND id = $2";
        sqlx::query(select).bind(scope).bind(id).fetch_optional(&self.read).await?.as_ref().map(read).transpose()
    }

    /// Inserts; `false` if the scope is full.
    pub(crate) async fn secret_insert(&self, row: &SecretRow) -> Result<bool, StoreError> {
        let insert = "INSERT INTO secrets (id, scope, name, description, is_file, sealed, created_at_ms, updated_at_ms) \
                      SELECT $1, $2, $3, $4, $5, $6, $7, $8 \
                      WHERE (SELECT COUNT(*) FROM secrets WHERE scope = $2) < $9";
        let done = sqlx::query(insert)
            .bind(&row.id)
            .bind(&row.scope)
            .bind(&row.name)
            .bind(&row.description)
            .bind(row.is_file)
            .bind(&row.sealed)
            .bind(to_db(row.created_at_ms))
            .bind(to_db(row.updated_at_ms))
            .bind(SECRETS_MAX)
            .execute(&self.write)
            .await
            .map_err(|error| StoreError::unique(error, "name"))?;
        Ok(done.rows_affected() == 1)
    }

    /// Replaces name, description and value; `false` if it is gone.
    pub(crate) async fn secret_update(&self, row: &SecretRow) -> Result<bool, StoreError> {
        let update = "UPDATE secrets SET name = $1, description = $2, sealed = $3, updated_at_ms = $4 \
                      WHERE scope = $5 AND id = $6";
        let done = sqlx::query(update)
            .bind(&row.name)
            .bind(&row.description)
            .bind(&row.sealed)
            .bind(to_db(row.updated_at_ms))
            .bind(&row.scope)
            .bind(&row.id)
            .execute(&self.write)
            .await
            .map_err(|error| StoreError::unique(error, "name"))?;
        Ok(done.rows_affected() == 1)
    }

    /// Deletes; `false` if it is gone.
    pub(crate) async fn secret_delete(&self, scope: &str, id: &str) -> Result<bool, StoreError> {
        let delete = sqlx::query("DELETE FROM secrets WHERE scope = $1 AND id = $2").bind(scope).bind(id);
        Ok(delete.execute(&self.write).await?.rows_affected() == 1)
    }
}

fn read(row: &SqliteRow) -> Result<SecretRow, StoreError> {
    Ok(SecretRow {
        id: row.try_get("id")?,
        scope: row.try_get("scope")?,
        name: row.try_get("name")?,
        description: row.try_get("description")?,
        is_file: row.try_get("is_file")?,
        sealed: row.try_get("sealed")?,
        created_at_ms: row.try_get::<i64, _>("created_at_ms")?.unsigned_abs(),
        updated_at_ms: row.try_get::<i64, _>("updated_at_ms")?.unsigned_abs(),
    })
}
