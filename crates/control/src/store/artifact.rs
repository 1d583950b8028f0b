use super::image::visibility_word;
use super::row::to_db;
use super::{BuildRow, Store, StoreError};
use crate::builds::Event;

impl Store {
    /// The intent to keep the bytes of a digest.
    pub(crate) async fn artifact_put(&self, digest: &str, size_bytes: u64, now_ms: u64) -> Result<(), StoreError> {
        let insert = "INSERT INTO image_artifacts (digest, size_bytes, created_at_ms) VALUES ($1, $2, $3) \
                      ON CONFLICT (digest) DO UPDATE SET size_bytes = excluded.size_bytes";
        sqlx::query(insert).bind(digest).bind(to_db(size_bytes)).bind(to_db(now_ms)).execute(&self.write).await?;
        Ok(())
    }

    /// Ends a build well: its tag leads to `digest` from now on. `false` if the build was ended otherwise, or its tag is gone.
    pub(crate) async fn build_complete(&self, build: &BuildRow, digest: &str, now_ms: u64) -> Result<bool, StoreError> {
        let Some(state) = build.state.after(Event::Complete) else { return Ok(false) };
        let mut tx = self.write.begin().await?;
        let ended = sqlx::query(
            "UPDATE image_builds SET state = $1, digest = $2, ended_at_ms = $3 WHERE id = $4 AND state = $5",
        )
        .bind(state.as_str())
        .bind(digest)
        .bind(to_db(now_ms))
        .bind(&build.id)
        .bind(build.state.as_str())
        .execute(&mut *tx)
        .await?;
        let moved = sqlx::query(
            "UPDATE images SET digest = $1, pushed_at_ms = $2, visibility = COALESCE($3, visibility) WHERE id = $4",
        )
        .bind(digest)
        .bind(to_db(now_ms))
        .bind(build.visibility.map(visibility_word))
        .bind(&build.image_id)
        .execute(&mut *tx)
        .await?;
        if ended.rows_affected() != 1 || moved.rows_affected() != 1 {
            return Ok(false);
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Digests that no tag leads to and that no sandbox needs any more. `pin` makes the name that sandboxes have of a digest.
    pub(crate) async fn artifacts_unused(&self, pin: impl Fn(&str) -> String) -> Result<Vec<String>, StoreError> {
        let select = "SELECT digest FROM image_artifacts a \
                      WHERE NOT EXISTS (SELECT 1 FROM images i WHERE i.digest = a.digest)";
        let loose: Vec<String> = sqlx::query_scalar(select).fetch_all(&self.read).await?;
        let mut unused = Vec::new();
        for digest in loose {
            let select = "SELECT 1 FROM sandboxes WHERE node_image = $1 AND ended_at_ms IS NULL LIMIT 1";
            if sqlx::query(select).bind(pin(&digest)).fetch_optional(&self.read).await?.is_none() {
                unused.push(digest);
            }
        }
        Ok(unused)
    }

    /// Drops the record of a digest, after its bytes were let go.
    pub(crate) async fn artifact_drop(&self, digest: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM image_artifacts WHERE digest = $1").bind(digest).execute(&self.write).await?;
        Ok(())
    }
}
