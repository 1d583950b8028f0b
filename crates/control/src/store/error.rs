/// Why a query failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The database did not do it.
    #[error("database")]
    Database(#[from] sqlx::Error),
    /// The schema could not be brought up to date.
    #[error("migration of the database")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// A stored value cannot be read; the database was changed by other hands or a newer version.
    #[error("{table}.{column} of {id} holds an unknown value")]
    Damaged {
        /// Table.
        table: &'static str,
        /// Column.
        column: &'static str,
        /// Row.
        id: String,
    },
    /// An update met another version of the row too often in a row.
    #[error("sandbox {0} is changed by too many at once")]
    Contended(String),
    /// The unique name is taken.
    #[error("{0} is taken")]
    Taken(&'static str),
}

impl StoreError {
    /// Turns a violated uniqueness into [`StoreError::Taken`].
    pub(super) fn unique(error: sqlx::Error, what: &'static str) -> StoreError {
        match &error {
            sqlx::Error::Database(db) if db.is_unique_violation() => StoreError::Taken(what),
            _ => StoreError::Database(error),
        }
    }
}
