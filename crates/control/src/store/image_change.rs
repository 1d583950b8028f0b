use super::image::{read, visibility_word};
use super::{Full, ImageQuota, ImageRow, Store, StoreError};
use crate::images::{Owner, Standing};
use sqlx::{Sqlite, Transaction};

/// Changes of tags that are all done or none: what one did, the next sees.
pub(crate) struct ImageChanges {
    tx: Transaction<'static, Sqlite>,
}

impl Store {
    /// Begins to change tags. Other writers wait until it ends.
    pub(crate) async fn image_changes(&self) -> Result<ImageChanges, StoreError> {
        Ok(ImageChanges { tx: self.write.begin().await? })
    }
}

impl ImageChanges {
    /// One tag as it is after the changes so far.
    pub(crate) async fn get(&mut self, owner: &str, name: &str, tag: &str) -> Result<Option<ImageRow>, StoreError> {
        let select = "SELECT i.*, a.size_bytes FROM images i LEFT JOIN image_artifacts a ON a.digest = i.digest \
                      WHERE i.owner = $1 AND i.name = $2 AND i.tag = $3";
        let row = sqlx::query(select).bind(owner).bind(name).bind(tag).fetch_optional(&mut *self.tx).await?;
        row.as_ref().map(read).transpose()
    }

    /// Whether something is being built for a tag.
    pub(crate) async fn is_building(&mut self, id: &str) -> Result<bool, StoreError> {
        let select = "SELECT 1 FROM image_builds WHERE image_id = $1 AND ended_at_ms IS NULL LIMIT 1";
        Ok(sqlx::query(select).bind(id).fetch_optional(&mut *self.tx).await?.is_some())
    }

    /// What `owner` has enough of to get no tag of another.
    pub(crate) async fn full(
        &mut self,
        owner: &Owner,
        user_id: &str,
        quota: ImageQuota,
    ) -> Result<Option<Full>, StoreError> {
        quota.full(&mut self.tx, owner, user_id, true).await
    }

    /// Moves a tag and says who may use it, on the word of who may: it is not just Docker Hub's any more. [`StoreError::Taken`] if its new place is not free.
    pub(crate) async fn put(&mut self, id: &str, to: &Standing) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE images SET owner = $1, name = $2, tag = $3, visibility = $4, from_hub = FALSE WHERE id = $5",
        )
        .bind(to.owner.key())
        .bind(&to.name)
        .bind(&to.tag)
        .bind(visibility_word(to.visibility))
        .bind(id)
        .execute(&mut *self.tx)
        .await
        .map_err(|error| StoreError::unique(error, "the tag"))?;
        Ok(())
    }

    /// Makes the changes last.
    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        Ok(self.tx.commit().await?)
    }
}
