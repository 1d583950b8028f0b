use super::build::{cancel_all, insert};
use super::image::{SELECT, read, visibility_word};
use super::row::to_db;
use super::{BuildRow, Full, ImageQuota, ImageRow, Store, StoreError};
use crate::images::Owner;
use sqlx::{Sqlite, Transaction};
use warren_proto::http::Visibility;

/// Builds of one user that are not over.
const OPEN_PER_USER_MAX: u64 = 256;

/// On what terms somebody asks for a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// What the owner may have.
    pub(crate) quota: ImageQuota,
    /// Whether the asker may replace what others made for this owner.
    pub(crate) replaces_others: bool,
    /// Whether it makes Docker Hub's image the platform's, under its own name.
    pub(crate) from_hub: bool,
}

/// What became of the begin of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It is in the store.
    New {
        build: Box<BuildRow>,
        /// What its tag is, or becomes.
        visibility: Visibility,
        /// Builds of Docker Hub's image that would have gone over what an administrator makes now.
        cancelled: Vec<String>,
    },
    /// The owner has as much as he may have.
    Full(Full),
    /// The user has as many builds open as he may have.
    TooBusy(u64),
    /// The tag is somebody else's to replace.
    NotHis,
}

impl Store {
    /// Inserts a build and, if it is new, the tag that it is for; or nothing.
    pub(crate) async fn build_begin(
        &self,
        mut build: BuildRow,
        new_image_id: String,
        terms: Terms,
    ) -> Result<Begun, StoreError> {
        let mut tx = self.write.begin().await?;
        let known = known(&mut tx, &build).await?;
        if known.as_ref().is_some_and(|known| !may_replace(known, &build, terms)) {
            return Ok(Begun::NotHis);
        }
        if open_of(&mut tx, &build.user_id).await? >= OPEN_PER_USER_MAX {
            return Ok(Begun::TooBusy(OPEN_PER_USER_MAX));
        }
        if let Some(full) = terms.quota.full(&mut tx, &build.owner, &build.user_id, known.is_none()).await? {
            return Ok(Begun::Full(full));
        }
        let mut cancelled = Vec::new();
        let before = match known {
            Some(known) => {
                if known.from_hub && !terms.from_hub {
                    cancelled = cancel_all(&mut tx, &known.id, build.created_at_ms).await?;
                }
                build.image_id = known.id;
                known.visibility
            }
            None => {
                build.image_id = new_image_id;
                let visibility = build.visibility.unwrap_or(Visibility::Private);
                insert_image(&mut tx, &build, visibility, terms.from_hub).await?;
                visibility
            }
        };
        insert(&mut *tx, &build).await?;
        sqlx::query("UPDATE images SET last_build_id = $1, from_hub = from_hub AND $3 WHERE id = $2")
            .bind(&build.id)
            .bind(&build.image_id)
            .bind(terms.from_hub)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        let visibility = build.visibility.unwrap_or(before);
        Ok(Begun::New { build: Box::new(build), visibility, cancelled })
    }
}

/// The tag that the build is for, as it is.
async fn known(tx: &mut Transaction<'_, Sqlite>, build: &BuildRow) -> Result<Option<ImageRow>, StoreError> {
    let select = sqlx::AssertSqlSafe(format!("{SELECT} WHERE i.owner = $1 AND i.name = $2 AND i.tag = $3"));
    let row = sqlx::query(select).bind(build.owner.key()).bind(&build.name).bind(&build.tag);
    row.fetch_optional(&mut **tx).await?.as_ref().map(read).transpose()
}

/// As for changes and deletes: what a person made for a team, he may replace; of the platform's, only what Docker Hub says.
fn may_replace(known: &ImageRow, build: &BuildRow, terms: Terms) -> bool {
    let is_his = match known.owner {
        Owner::Platform => known.from_hub && terms.from_hub,
        Owner::User(_) | Owner::Team(_) => known.creator_id == build.user_id,
    };
    terms.replaces_others || is_his
}

async fn insert_image(
    tx: &mut Transaction<'_, Sqlite>,
    build: &BuildRow,
    visibility: Visibility,
    from_hub: bool,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO images (id, owner, name, tag, visibility, creator_id, created_at_ms, from_hub) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(&build.image_id)
    .bind(build.owner.key())
    .bind(&build.name)
    .bind(&build.tag)
    .bind(visibility_word(visibility))
    .bind(&build.user_id)
    .bind(to_db(build.created_at_ms))
    .bind(from_hub)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn open_of(tx: &mut Transaction<'_, Sqlite>, user_id: &str) -> Result<u64, StoreError> {
    let select = "SELECT COUNT(*) FROM image_builds WHERE user_id = $1 AND ended_at_ms IS NULL";
    Ok(sqlx::query_scalar(select).bind(user_id).fetch_one(&mut **tx).await.map(i64::unsigned_abs)?)
}
