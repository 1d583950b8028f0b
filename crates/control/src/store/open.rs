use super::StoreError;
use sqlx::SqlitePool;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use std::path::Path;
use std::time::Duration;

/// Connections that read at once.
const READERS_MAX: u32 = 4;
/// Longest wait for a connection or a lock, seconds.
const WAIT_SECS_MAX: u64 = 10;

/// Name of the database in the data directory.
const DATABASE_FILE: &str = "warren.db";

/// Schema changes in order; a file never changes once it was released.
const MIGRATIONS: [(i64, &str, &str); 1] = [(1, "init", include_str!("../../migrations/0001_init.sql"))];

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
            // An intent must survive a loss of power, not only of the process.
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(WAIT_SECS_MAX));
        let pool = |connections| {
            SqlitePoolOptions::new().max_connections(connections).acquire_timeout(Duration::from_secs(WAIT_SECS_MAX))
        };
        let write = pool(1).connect_with(options.clone()).await?;
        migrator().run(&write).await?;
        let read = pool(READERS_MAX).connect_with(options.read_only(true).create_if_missing(false)).await?;
        Ok(Self { write, read })
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

fn migrator() -> Migrator {
    let migration = |(version, name, sql): (i64, &'static str, &'static str)| {
        Migration::new(version, name.into(), MigrationType::Simple, sqlx::SqlStr::from_static(sql), false)
    };
    Migrator::with_migrations(MIGRATIONS.into_iter().map(migration).collect())
}
