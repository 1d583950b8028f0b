use super::StoreError;
use crate::images::Owner;
use sqlx::{Sqlite, Transaction};
use std::fmt;

/// What an owner may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ImageQuota {
    /// Tags.
    pub(crate) images_max: Option<u64>,
    /// Bytes of what they lead to.
    pub(crate) bytes_max: Option<u64>,
}

/// What an owner has as much of as he may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// Tags.
    Images(u64),
    /// Bytes of what they lead to.
    Bytes(u64),
}

impl fmt::Display for Full {
    /// Clients know these two by their first words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Full::Images(max) => write!(f, "image limit exceeded: this owner may have {max} images; delete some"),
            Full::Bytes(max) => {
                write!(f, "image storage limit exceeded: this owner may have {max} bytes; delete images")
            }
        }
    }
}

impl ImageQuota {
    /// What `owner` has enough of, for a build or a move of `user_id`; tags count where there is to be a new one.
    pub(super) async fn full(
        self,
        tx: &mut Transaction<'_, Sqlite>,
        owner: &Owner,
        user_id: &str,
        is_new: bool,
    ) -> Result<Option<Full>, StoreError> {
        // The platform's images are nobody's: what came from Docker Hub counts for whoever asked for it first.
        let maker = (*owner == Owner::Platform).then_some(user_id);
        let owner = owner.key();
        if let Some(max) = self.bytes_max
            && bytes_of(tx, &owner, maker).await? >= max
        {
            return Ok(Some(Full::Bytes(max)));
        }
        if let Some(max) = self.images_max
            && is_new
            && count_of(tx, &owner, maker).await? >= max
        {
            return Ok(Some(Full::Images(max)));
        }
        Ok(None)
    }
}

async fn count_of(tx: &mut Transaction<'_, Sqlite>, owner: &str, maker: Option<&str>) -> Result<u64, StoreError> {
    let select = "SELECT COUNT(*) FROM images WHERE owner = $1 AND ($2 IS NULL OR (from_hub AND creator_id = $2))";
    let count = sqlx::query_scalar(select).bind(owner).bind(maker);
    Ok(count.fetch_one(&mut **tx).await.map(i64::unsigned_abs)?)
}

/// Each artifact once, however many tags lead to it.
async fn bytes_of(tx: &mut Transaction<'_, Sqlite>, owner: &str, maker: Option<&str>) -> Result<u64, StoreError> {
    let select = "SELECT CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM image_artifacts WHERE digest IN \
                  (SELECT digest FROM images WHERE owner = $1 AND ($2 IS NULL OR (from_hub AND creator_id = $2)))";
    let bytes = sqlx::query_scalar(select).bind(owner).bind(maker);
    Ok(bytes.fetch_one(&mut **tx).await.map(i64::unsigned_abs)?)
}
