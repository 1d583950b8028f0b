use super::row::to_db;
use super::{Store, StoreError};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use warren_proto::http::KeyLimits;

/// A row of `users`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) id: String,
    pub(crate) slug: String,
    pub(crate) name: String,
    pub(crate) email: String,
    pub(crate) is_admin: bool,
}

/// A key that is in force, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRow {
    pub(crate) hash: String,
    pub(crate) limits: KeyLimits,
    pub(crate) user: User,
}

/// A team and what one user is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) team_id: String,
    pub(crate) slug: String,
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) created_at_ms: u64,
}

/// A user in a team.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberRow {
    pub(crate) user: User,
    pub(crate) role: String,
    pub(crate) joined_at_ms: u64,
}

impl Store {
    /// A key that is not revoked, with its user.
    pub(crate) async fn key_get(&self, hash: &str) -> Result<Option<KeyRow>, StoreError> {
        let select = "SELECT u.*, k.limits FROM users u JOIN api_keys k ON k.user_id = u.id \
                      WHERE k.hash = $1 AND k.revoked_at_ms IS NULL";
        let row = sqlx::query(select).bind(hash).fetch_optional(&self.read).await?;
        row.as_ref().map(|row| read_key(row, hash)).transpose()
    }

    /// The first administrator, who owns this server.
    pub(crate) async fn owner(&self) -> Result<Option<User>, StoreError> {
        let select = "SELECT * FROM users WHERE is_admin ORDER BY created_at_ms, id LIMIT 1";
        sqlx::query(select).fetch_optional(&self.read).await?.as_ref().map(read_user).transpose()
    }

    /// One user.
    pub(crate) async fn user_get(&self, id: &str) -> Result<Option<User>, StoreError> {
        let row = sqlx::query("SELECT * FROM users WHERE id = $1").bind(id).fetch_optional(&self.read).await?;
        row.as_ref().map(read_user).transpose()
    }

    /// The id of the user of that slug or id.
    pub(crate) async fn user_named(&self, word: &str) -> Result<Option<String>, StoreError> {
        let select =
            sqlx::query_scalar("SELECT id FROM users WHERE slug = $1 OR id = $1 ORDER BY slug = $1 DESC LIMIT 1");
        Ok(select.bind(word).fetch_optional(&self.read).await?)
    }

    /// The id of the team of that slug.
    pub(crate) async fn team_named(&self, slug: &str) -> Result<Option<String>, StoreError> {
        let select = sqlx::query_scalar("SELECT id FROM teams WHERE slug = $1").bind(slug);
        Ok(select.fetch_optional(&self.read).await?)
    }

    /// Makes a user with one key, together or not at all.
    pub(crate) async fn user_insert(&self, user: &User, key_hash: &str, now_ms: u64) -> Result<(), StoreError> {
        let mut tx = self.write.begin().await?;
        sqlx::query(
            "INSERT INTO users (id, slug, name, email, is_admin, created_at_ms) VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(&user.id)
        .bind(&user.slug)
        .bind(&user.name)
        .bind(&user.email)
        .bind(user.is_admin)
        .bind(to_db(now_ms))
        .execute(&mut *tx)
        .await
        .map_err(|error| StoreError::unique(error, "slug"))?;
        insert_key(&mut *tx, &user.id, key_hash, &KeyLimits::default(), now_ms).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Gives a user another key; one that is there already stays as it is.
    pub(crate) async fn key_insert(
        &self,
        user_id: &str,
        key_hash: &str,
        limits: &KeyLimits,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        insert_key(&self.write, user_id, key_hash, limits, now_ms).await
    }

    /// Makes a team with one administrator.
    pub(crate) async fn team_insert(&self, team: &Membership, user_id: &str) -> Result<(), StoreError> {
        let mut tx = self.write.begin().await?;
        sqlx::query("INSERT INTO teams (id, slug, name, created_at_ms) VALUES ($1, $2, $3, $4)")
            .bind(&team.team_id)
            .bind(&team.slug)
            .bind(&team.name)
            .bind(to_db(team.created_at_ms))
            .execute(&mut *tx)
            .await
            .map_err(|error| StoreError::unique(error, "slug"))?;
        insert_member(&mut *tx, &team.team_id, user_id, &team.role, team.created_at_ms).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Adds a member or changes the role.
    pub(crate) async fn member_put(&self, team: &str, user: &str, role: &str, now_ms: u64) -> Result<(), StoreError> {
        insert_member(&self.write, team, user, role, now_ms).await
    }

    /// What a user is in a team, if anything.
    pub(crate) async fn role(&self, team_id: &str, user_id: &str) -> Result<Option<String>, StoreError> {
        let select = "SELECT role FROM team_members WHERE team_id = $1 AND user_id = $2";
        Ok(sqlx::query_scalar(select).bind(team_id).bind(user_id).fetch_optional(&self.read).await?)
    }

    /// Whether there is such a team.
    pub(crate) async fn team_exists(&self, team_id: &str) -> Result<bool, StoreError> {
        let select = sqlx::query("SELECT 1 FROM teams WHERE id = $1").bind(team_id);
        Ok(select.fetch_optional(&self.read).await?.is_some())
    }

    /// All teams of a user, oldest first.
    pub(crate) async fn teams_of(&self, user_id: &str) -> Result<Vec<Membership>, StoreError> {
        let select = "SELECT t.id, t.slug, t.name, t.created_at_ms, m.role FROM teams t \
                      JOIN team_members m ON m.team_id = t.id WHERE m.user_id = $1 ORDER BY t.created_at_ms, t.id";
        let rows = sqlx::query(select).bind(user_id).fetch_all(&self.read).await?;
        rows.iter().map(read_membership).collect()
    }

    /// All members of a team, oldest first.
    pub(crate) async fn members(&self, team_id: &str) -> Result<Vec<MemberRow>, StoreError> {
        let select = "SELECT u.*, m.role, m.joined_at_ms FROM users u JOIN team_members m ON m.user_id = u.id \
                      WHERE m.team_id = $1 ORDER BY m.joined_at_ms, u.id";
        let rows = sqlx::query(select).bind(team_id).fetch_all(&self.read).await?;
        rows.iter().map(read_member).collect()
    }
}

pub(super) async fn insert_key<'c>(
    db: impl sqlx::SqliteExecutor<'c>,
    user_id: &str,
    hash: &str,
    limits: &KeyLimits,
    now_ms: u64,
) -> Result<(), StoreError> {
    let insert = "INSERT INTO api_keys (hash, user_id, limits, created_at_ms) VALUES ($1, $2, $3, $4) \
                  ON CONFLICT (hash) DO NOTHING";
    let damaged = |_| StoreError::Damaged { table: "api_keys", column: "limits", id: hash.to_owned() };
    let limits = serde_json::to_string(limits).map_err(damaged)?;
    sqlx::query(insert).bind(hash).bind(user_id).bind(limits).bind(to_db(now_ms)).execute(db).await?;
    Ok(())
}

async fn insert_member<'c>(
    db: impl sqlx::SqliteExecutor<'c>,
    team_id: &str,
    user_id: &str,
    role: &str,
    now_ms: u64,
) -> Result<(), StoreError> {
    let insert = "INSERT INTO team_members (team_id, user_id, role, joined_at_ms) VALUES ($1, $2, $3, $4) \
                  ON CONFLICT (team_id, user_id) DO UPDATE SET role = excluded.role";
    sqlx::query(insert).bind(team_id).bind(user_id).bind(role).bind(to_db(now_ms)).execute(db).await?;
    Ok(())
}

fn read_user(row: &SqliteRow) -> Result<User, StoreError> {
    Ok(User {
        id: row.try_get("id")?,
        slug: row.try_get("slug")?,
        name: row.try_get("name")?,
        email: row.try_get("email")?,
        is_admin: row.try_get("is_admin")?,
    })
}

fn read_key(row: &SqliteRow, hash: &str) -> Result<KeyRow, StoreError> {
    let damaged = |_| StoreError::Damaged { table: "api_keys", column: "limits", id: hash.to_owned() };
    let limits: String = row.try_get("limits")?;
    Ok(KeyRow { hash: hash.to_owned(), limits: serde_json::from_str(&limits).map_err(damaged)?, user: read_user(row)? })
}

fn read_membership(row: &SqliteRow) -> Result<Membership, StoreError> {
    Ok(Membership {
        team_id: row.try_get("id")?,
        slug: row.try_get("slug")?,
        name: row.try_get("name")?,
        role: row.try_get("role")?,
        created_at_ms: row.try_get::<i64, _>("created_at_ms")?.unsigned_abs(),
    })
}

fn read_member(row: &SqliteRow) -> Result<MemberRow, StoreError> {
    Ok(MemberRow {
        user: read_user(row)?,
        role: row.try_get("role")?,
        joined_at_ms: row.try_get::<i64, _>("joined_at_ms")?.unsigned_abs(),
    })
}
