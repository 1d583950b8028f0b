use super::build::{BuildRow, cancel_all, read_joined as read_build};
use super::row::to_db;
use super::{Page, Store, StoreError};
use crate::images::Owner;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use warren_proto::http::Visibility;

/// A row of `images`: a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageRow {
    pub(crate) id: String,
    pub(crate) owner: Owner,
    pub(crate) name: String,
    pub(crate) tag: String,
    pub(crate) visibility: Visibility,
    /// What it leads to, once a build has ended well.
    pub(crate) digest: Option<String>,
    /// Bytes of that on disk.
    pub(crate) size_bytes: Option<u64>,
    /// Who asked for it first.
    pub(crate) creator_id: String,
    /// Whether it is Docker Hub's under its own name.
    pub(crate) from_hub: bool,
    pub(crate) created_at_ms: u64,
    /// When it came to lead where it leads.
    pub(crate) pushed_at_ms: Option<u64>,
}

/// All columns of a tag, with the size of what it leads to.
pub(super) const SELECT: &str =
    "SELECT i.*, a.size_bytes FROM images i LEFT JOIN image_artifacts a ON a.digest = i.digest";

impl Store {
    /// One tag.
    pub(crate) async fn image_get(&self, owner: &str, name: &str, tag: &str) -> Result<Option<ImageRow>, StoreError> {
        let select = sqlx::AssertSqlSafe(format!("{SELECT} WHERE i.owner = $1 AND i.name = $2 AND i.tag = $3"));
        let row = sqlx::query(select).bind(owner).bind(name).bind(tag).fetch_optional(&self.read).await?;
        row.as_ref().map(read).transpose()
    }

    /// A page of an owner's tags with their last builds, newest first, and the number on all pages. `search` is part of the
    /// reference in any case, which is `prefix` before name and tag.
    pub(crate) async fn images_list(
        &self,
        owner: &str,
        prefix: &str,
        search: Option<&str>,
        page: Page,
    ) -> Result<(Vec<(ImageRow, Option<BuildRow>)>, u64), StoreError> {
        const WHERE: &str = "WHERE i.owner = $1 AND LOWER($2 || i.name || ':' || i.tag) LIKE $3 ESCAPE '!'";
        let pattern = pattern(search.unwrap_or_default());
        let count = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM images i {WHERE}"));
        let total: i64 =
            sqlx::query_scalar(count).bind(owner).bind(prefix).bind(&pattern).fetch_one(&self.read).await?;
        let select = sqlx::AssertSqlSafe(format!(
            "SELECT i.*, a.size_bytes, {} FROM images i LEFT JOIN image_artifacts a ON a.digest = i.digest \
             LEFT JOIN image_builds b ON b.id = i.last_build_id {WHERE} \
             ORDER BY i.created_at_ms DESC, i.id DESC LIMIT $4 OFFSET $5",
            super::build::JOINED
        ));
        let rows = sqlx::query(select)
            .bind(owner)
            .bind(prefix)
            .bind(&pattern)
            .bind(to_db(page.limit))
            .bind(to_db(page.offset))
            .fetch_all(&self.read)
            .await?;
        let read_both = |row: &SqliteRow| Ok::<_, StoreError>((read(row)?, read_build(row)?));
        Ok((rows.iter().map(read_both).collect::<Result<_, _>>()?, u64::try_from(total).unwrap_or(0)))
    }

    /// Deletes a tag and cancels what is being built for it; answers the ids of those builds.
    pub(crate) async fn image_delete(&self, id: &str, now_ms: u64) -> Result<Vec<String>, StoreError> {
        let mut tx = self.write.begin().await?;
        sqlx::query("DELETE FROM images WHERE id = $1").bind(id).execute(&mut *tx).await?;
        let cancelled = cancel_all(&mut tx, id, now_ms).await?;
        tx.commit().await?;
        Ok(cancelled)
    }
}

/// A pattern for LIKE that matches texts with `search` in them.
fn pattern(search: &str) -> String {
    let escaped = search.to_lowercase().replace('!', "!!").replace('%', "!%").replace('_', "!_");
    format!("%{escaped}%")
}

pub(super) fn visibility_word(visibility: Visibility) -> &'static str {
    match visibility {
        Visibility::Private => "PRIVATE",
        Visibility::Public => "PUBLIC",
    }
}

pub(super) fn parse_visibility(word: &str) -> Option<Visibility> {
    [Visibility::Private, Visibility::Public].into_iter().find(|visibility| visibility_word(*visibility) == word)
}

pub(super) fn read(row: &SqliteRow) -> Result<ImageRow, StoreError> {
    let id: String = row.try_get("id")?;
    let damaged = |column| StoreError::Damaged { table: "images", column, id: id.clone() };
    let size: Option<i64> = row.try_get("size_bytes")?;
    Ok(ImageRow {
        owner: Owner::parse(row.try_get("owner")?).ok_or_else(|| damaged("owner"))?,
        name: row.try_get("name")?,
        tag: row.try_get("tag")?,
        visibility: parse_visibility(row.try_get("visibility")?).ok_or_else(|| damaged("visibility"))?,
        digest: row.try_get("digest")?,
        size_bytes: size.map(i64::unsigned_abs),
        creator_id: row.try_get("creator_id")?,
        from_hub: row.try_get("from_hub")?,
        created_at_ms: row.try_get::<i64, _>("created_at_ms")?.unsigned_abs(),
        pushed_at_ms: row.try_get::<Option<i64>, _>("pushed_at_ms")?.map(i64::unsigned_abs),
        id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_searched_for_is_taken_as_it_is() {
        assert_eq!(pattern("A_b%!"), "%a!_b!%!!%");
        assert_eq!(pattern(""), "%%");
    }
}
