use super::image::{parse_visibility, visibility_word};
use super::row::to_db;
use super::{Store, StoreError};
use crate::builds::{Event, State};
use crate::images::Owner;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, Sqlite, Transaction};
use std::collections::BTreeMap;
use warren_proto::http::Visibility;

/// How often a change is computed again because another writer was faster.
const MOVE_ATTEMPTS_MAX: u32 = 32;

/// A row of `image_builds`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BuildRow {
    pub(crate) id: String,
    /// Tag that it is for.
    pub(crate) image_id: String,
    /// Who asked for it.
    pub(crate) user_id: String,
    pub(crate) owner: Owner,
    pub(crate) name: String,
    pub(crate) tag: String,
    /// What the tag becomes when it ends well.
    pub(crate) visibility: Option<Visibility>,
    /// Reference that is pulled.
    pub(crate) source: Option<String>,
    /// Path of the Dockerfile in the context, where there is no source.
    pub(crate) dockerfile: Option<String>,
    pub(crate) build_args: BTreeMap<String, String>,
    pub(crate) state: State,
    /// How often it was begun.
    pub(crate) attempts: u64,
    pub(crate) error_code: Option<String>,
    pub(crate) error_message: Option<String>,
    pub(crate) digest: Option<String>,
    pub(crate) upload_by_ms: u64,
    pub(crate) created_at_ms: u64,
    pub(crate) queued_at_ms: Option<u64>,
    pub(crate) started_at_ms: Option<u64>,
    pub(crate) ended_at_ms: Option<u64>,
}

/// What became of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Moved {
    /// The build after it.
    To(BuildRow),
    /// It cannot happen now; the build as it is.
    Refused(BuildRow),
    /// There is no such build.
    Missing,
}

/// Columns of a build beside those of a tag.
pub(super) const JOINED: &str = "b.id AS b_id, b.image_id AS b_image_id, b.user_id AS b_user_id, b.owner AS b_owner, b.name AS b_name, \
     b.tag AS b_tag, b.visibility AS b_visibility, b.source AS b_source, b.dockerfile AS b_dockerfile, \
     b.build_args AS b_build_args, b.state AS b_state, b.attempts AS b_attempts, b.error_code AS b_error_code, \
     b.error_message AS b_error_message, b.digest AS b_digest, b.upload_by_ms AS b_upload_by_ms, \
     b.created_at_ms AS b_created_at_ms, b.queued_at_ms AS b_queued_at_ms, b.started_at_ms AS b_started_at_ms, \
     b.ended_at_ms AS b_ended_at_ms";

impl Store {
    /// One build.
    pub(crate) async fn build_get(&self, id: &str) -> Result<Option<BuildRow>, StoreError> {
        let row = sqlx::query("SELECT * FROM image_builds WHERE id = $1").bind(id).fetch_optional(&self.read).await?;
        row.as_ref().map(read).transpose()
    }

    /// All that are not over, in the order in which they were queued.
    pub(crate) async fn builds_open(&self) -> Result<Vec<BuildRow>, StoreError> {
        let select = "SELECT * FROM image_builds WHERE ended_at_ms IS NULL \
                      ORDER BY COALESCE(queued_at_ms, created_at_ms), created_at_ms, id";
        let rows = sqlx::query(select).fetch_all(&self.read).await?;
        rows.iter().map(read).collect()
    }

    /// A user's last builds, newest first.
    pub(crate) async fn builds_of(&self, user_id: &str, limit: u64) -> Result<Vec<BuildRow>, StoreError> {
        let select = "SELECT * FROM image_builds WHERE user_id = $1 ORDER BY created_at_ms DESC, id DESC LIMIT $2";
        let rows = sqlx::query(select).bind(user_id).bind(to_db(limit)).fetch_all(&self.read).await?;
        rows.iter().map(read).collect()
    }

    /// Lets `event` happen to a build, if it can now; `also` changes what goes with it.
    pub(crate) async fn build_move(
        &self,
        id: &str,
        event: Event,
        now_ms: u64,
        also: impl Fn(&mut BuildRow),
    ) -> Result<Moved, StoreError> {
        for _ in 0..MOVE_ATTEMPTS_MAX {
            let Some(before) = self.build_get(id).await? else { return Ok(Moved::Missing) };
            let Some(state) = before.state.after(event) else { return Ok(Moved::Refused(before)) };
            let mut row = BuildRow { state, ..before.clone() };
            also(&mut row);
            match event {
                Event::Start => row.queued_at_ms = Some(now_ms),
                Event::Pick => (row.started_at_ms, row.attempts) = (Some(now_ms), before.attempts + 1),
                _ => {}
            }
            row.ended_at_ms = state.is_over().then_some(now_ms);
            if self.write_build(&row, &before).await? {
                return Ok(Moved::To(row));
            }
        }
        Err(StoreError::Contended(id.to_owned()))
    }

    async fn write_build(&self, row: &BuildRow, before: &BuildRow) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "UPDATE image_builds SET state = $1, attempts = $2, error_code = $3, error_message = $4, queued_at_ms = $5, \
             started_at_ms = $6, ended_at_ms = $7 WHERE id = $8 AND state = $9 AND attempts = $10",
        )
        .bind(row.state.as_str())
        .bind(to_db(row.attempts))
        .bind(&row.error_code)
        .bind(&row.error_message)
        .bind(row.queued_at_ms.map(to_db))
        .bind(row.started_at_ms.map(to_db))
        .bind(row.ended_at_ms.map(to_db))
        .bind(&row.id)
        .bind(before.state.as_str())
        .bind(to_db(before.attempts))
        .execute(&self.write)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Ids of builds that were over before a time.
    pub(crate) async fn builds_ended_before(&self, time_ms: u64) -> Result<Vec<String>, StoreError> {
        let select = sqlx::query_scalar("SELECT id FROM image_builds WHERE ended_at_ms < $1").bind(to_db(time_ms));
        Ok(select.fetch_all(&self.read).await?)
    }

    /// Drops a build that is over, and its tag if that leads nowhere and nothing else is or was built for it.
    pub(crate) async fn build_drop(&self, id: &str) -> Result<(), StoreError> {
        let mut tx = self.write.begin().await?;
        let delete = "DELETE FROM image_builds WHERE id = $1 AND ended_at_ms IS NOT NULL RETURNING image_id";
        let image_id: Option<String> = sqlx::query_scalar(delete).bind(id).fetch_optional(&mut *tx).await?;
        let delete = "DELETE FROM images WHERE id = $1 AND digest IS NULL \
                      AND NOT EXISTS (SELECT 1 FROM image_builds b WHERE b.image_id = images.id)";
        sqlx::query(delete).bind(image_id).execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    }
}

pub(super) async fn insert<'c>(db: impl sqlx::SqliteExecutor<'c>, row: &BuildRow) -> Result<(), StoreError> {
    let damaged = |_| StoreError::Damaged { table: "image_builds", column: "build_args", id: row.id.clone() };
    sqlx::query(
        "INSERT INTO image_builds (id, image_id, user_id, owner, name, tag, visibility, source, dockerfile, build_args, \
         state, attempts, upload_by_ms, created_at_ms, queued_at_ms) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
    )
    .bind(&row.id)
    .bind(&row.image_id)
    .bind(&row.user_id)
    .bind(row.owner.key())
    .bind(&row.name)
    .bind(&row.tag)
    .bind(row.visibility.map(visibility_word))
    .bind(&row.source)
    .bind(&row.dockerfile)
    .bind(serde_json::to_string(&row.build_args).map_err(damaged)?)
    .bind(row.state.as_str())
    .bind(to_db(row.attempts))
    .bind(to_db(row.upload_by_ms))
    .bind(to_db(row.created_at_ms))
    .bind(row.queued_at_ms.map(to_db))
    .execute(db)
    .await?;
    Ok(())
}

/// Cancels whatever is being built for a tag; answers the ids.
pub(super) async fn cancel_all(
    tx: &mut Transaction<'_, Sqlite>,
    image_id: &str,
    now_ms: u64,
) -> Result<Vec<String>, StoreError> {
    let cancel = "UPDATE image_builds SET state = 'cancelled', ended_at_ms = $2 \
                  WHERE image_id = $1 AND ended_at_ms IS NULL RETURNING id";
    Ok(sqlx::query_scalar(cancel).bind(image_id).bind(to_db(now_ms)).fetch_all(&mut **tx).await?)
}

fn read(row: &SqliteRow) -> Result<BuildRow, StoreError> {
    read_with(row, "")
}

/// The build beside a tag, if there is one.
pub(super) fn read_joined(row: &SqliteRow) -> Result<Option<BuildRow>, StoreError> {
    let id: Option<String> = row.try_get("b_id")?;
    id.map(|_| read_with(row, "b_")).transpose()
}

fn read_with(row: &SqliteRow, prefix: &str) -> Result<BuildRow, StoreError> {
    let column = |name: &str| format!("{prefix}{name}");
    let text = |name| row.try_get::<String, _>(column(name).as_str());
    let maybe_text = |name| row.try_get::<Option<String>, _>(column(name).as_str());
    let number = |name| row.try_get::<i64, _>(column(name).as_str()).map(i64::unsigned_abs);
    let maybe_number = |name| row.try_get::<Option<i64>, _>(column(name).as_str()).map(|n| n.map(i64::unsigned_abs));
    let id = text("id")?;
    let damaged = |column| StoreError::Damaged { table: "image_builds", column, id: id.clone() };
    let visibility = maybe_text("visibility")?;
    let visibility = visibility.map(|word| parse_visibility(&word).ok_or_else(|| damaged("visibility"))).transpose()?;
    Ok(BuildRow {
        image_id: text("image_id")?,
        user_id: text("user_id")?,
        owner: Owner::parse(&text("owner")?).ok_or_else(|| damaged("owner"))?,
        name: text("name")?,
        tag: text("tag")?,
        visibility,
        source: maybe_text("source")?,
        dockerfile: maybe_text("dockerfile")?,
        build_args: serde_json::from_str(&text("build_args")?).map_err(|_| damaged("build_args"))?,
        state: State::parse(&text("state")?).ok_or_else(|| damaged("state"))?,
        attempts: number("attempts")?,
        error_code: maybe_text("error_code")?,
        error_message: maybe_text("error_message")?,
        digest: maybe_text("digest")?,
        upload_by_ms: number("upload_by_ms")?,
        created_at_ms: number("created_at_ms")?,
        queued_at_ms: maybe_number("queued_at_ms")?,
        started_at_ms: maybe_number("started_at_ms")?,
        ended_at_ms: maybe_number("ended_at_ms")?,
        id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Begun, ImageQuota, Terms, fixture};

    #[tokio::test]
    async fn a_tag_that_leads_nowhere_goes_with_its_last_build() {
        let (_dir, store) = fixture::store().await;
        let terms = Terms { quota: ImageQuota::default(), replaces_others: true, from_hub: false };
        let builds = [("empty", "b1"), ("empty", "b2"), ("full", "b3")].map(|(name, id)| fixture::build(id, name));
        for build in &builds {
            let begun = store.build_begin(build.clone(), format!("i{}", build.name), terms).await.unwrap();
            let Begun::New { build, .. } = begun else { panic!("{begun:?}") };
            let event = if build.name == "full" { Event::Pick } else { Event::Fail };
            let Moved::To(row) = store.build_move(&build.id, event, 2, |_| {}).await.unwrap() else { panic!() };
            if event == Event::Pick {
                store.artifact_put("sha256:1", 1, 2).await.unwrap();
                assert!(store.build_complete(&row, "sha256:1", 2).await.unwrap());
            }
        }
        let (store, owner) = (&store, builds[0].owner.key());
        let is_there = |name: &'static str| {
            let owner = owner.clone();
            async move { store.image_get(&owner, name, "v1").await.unwrap().is_some() }
        };
        store.build_drop("b1").await.unwrap();
        assert!(is_there("empty").await, "its other build can be asked for");
        store.build_drop("b2").await.unwrap();
        store.build_drop("b3").await.unwrap();
        assert!(!is_there("empty").await && is_there("full").await);
    }
}
