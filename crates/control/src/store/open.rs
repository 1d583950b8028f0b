use super::StoreError;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Sqlite, SqliteConnection, SqlitePool};
use std::path::Path;
use std::time::Duration;

/// Connections that read at once.
const READERS_MAX: u32 = 4;
/// Longest wait for a connection or a lock, seconds.
const WAIT_SECS_MAX: u64 = 10;

/// Name of the database in the data directory.
const DATABASE_FILE: &str = "warren.db";

/// Schema changes in order; a file never changes once it was released.
const MIGRATIONS: [(i64, &str, &str); 7] = [
    (1, "init", include_str!("../../migrations/0001_init.sql")),
    (2, "images", include_str!("../../migrations/0002_images.sql")),
    (3, "registry credentials", include_str!("../../migrations/0003_registry_credentials.sql")),
    (4, "snapshots", include_str!("../../migrations/0004_snapshots.sql")),
    (5, "checkpoints", include_str!("../../migrations/0005_checkpoints.sql")),
    (6, "volumes", include_str!("../../migrations/0006_volumes.sql")),
    (7, "app templates", include_str!("../../migrations/0007_app_templates.sql")),
];

/// What a write must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// A loss of power: an intent, which nobody else knows.
    Power,
    /// The death of this process: an observation, which the node can repeat.
    Process,
}

/// The database. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    /// One connection: SQLite has one writer, and a queue in memory is fairer than its lock.
    pub(super) write: SqlitePool,
    pub(super) read: SqlitePool,
}

impl Store {
    /// Opens `data_dir`'s database, made and migrated if needed.
    pub(crate) async fn open(data_dir: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(data_dir.join(DATABASE_FILE))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(WAIT_SECS_MAX));
        let pool = |connections| {
            SqlitePoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(Duration::from_secs(WAIT_SECS_MAX))
                // A connection to a file does not break while it idles.
                .test_before_acquire(false)
        };
        // Each writer starts out durable, whatever the one before it wanted.
        let write = pool(1).before_acquire(|db, _| Box::pin(durable(db))).connect_with(options.clone()).await?;
        migrator().run(&write).await?;
        let read = pool(READERS_MAX).connect_with(options.read_only(true).create_if_missing(false)).await?;
        Ok(Self { write, read })
    }

    /// The writing connection.
    pub(super) async fn writer(&self, durability: Durability) -> Result<PoolConnection<Sqlite>, StoreError> {
        let mut connection = self.write.acquire().await?;
        if durability == Durability::Process {
            sqlx::query("PRAGMA synchronous = NORMAL").execute(&mut *connection).await?;
        }
        Ok(connection)
    }

    /// Whether the database answers.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.read).await?;
        Ok(())
    }

    /// Ends all connections, after the queries under way.
    pub(crate) async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
    }
}

async fn durable(db: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    sqlx::query("PRAGMA synchronous = FULL").execute(db).await.map(|_| true)
}

fn migrator() -> Migrator {
    let migration = |(version, name, sql): (i64, &'static str, &'static str)| {
        Migration::new(version, name.into(), MigrationType::Simple, sqlx::SqlStr::from_static(sql), false)
    };
    Migrator::with_migrations(MIGRATIONS.into_iter().map(migration).collect())
}
