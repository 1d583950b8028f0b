use super::row::{read_all, to_db};
use super::{SandboxRow, Store, StoreError};
use sqlx::{QueryBuilder, Sqlite};
use std::collections::BTreeSet;
use warren_model::Status;

/// Which sandboxes; all conditions hold together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Of which owner: a team, or a person's own without team.
    pub(crate) owner: Owner,
    /// Made by this user.
    pub(crate) user_id: Option<String>,
    /// In this status.
    pub(crate) status: Option<Status>,
    /// With all of these labels.
    pub(crate) labels: BTreeSet<String>,
    /// Without ended ones.
    pub(crate) active_only: bool,
}

/// Scope of a selection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Sandboxes of no team.
    #[default]
    Personal,
    /// Sandboxes of this team.
    Team(String),
    /// All of the server.
    Anyone,
}

/// Which part of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    /// Rows to skip.
    pub(crate) offset: u64,
    /// Rows to answer.
    pub(crate) limit: u64,
}

impl Store {
    /// A page of a selection, newest first, and the number of rows on all pages.
    pub(crate) async fn sandboxes_list(
        &self,
        selection: &Selection,
        page: Page,
    ) -> Result<(Vec<SandboxRow>, u64), StoreError> {
        let mut query = QueryBuilder::new("SELECT COUNT(*) FROM sandboxes");
        push_conditions(&mut query, selection);
        let total: i64 = query.build_query_scalar().fetch_one(&self.read).await?;
        let mut query = QueryBuilder::new("SELECT * FROM sandboxes");
        push_conditions(&mut query, selection);
        query.push(" ORDER BY created_at_ms DESC, id DESC LIMIT ").push_bind(to_db(page.limit));
        query.push(" OFFSET ").push_bind(to_db(page.offset));
        let rows = query.build().fetch_all(&self.read).await?;
        Ok((read_all(&rows)?, u64::try_from(total).unwrap_or(0)))
    }
}

fn push_conditions(query: &mut QueryBuilder<Sqlite>, selection: &Selection) {
    query.push(" WHERE ");
    match &selection.owner {
        Owner::Personal => query.push("team_id IS NULL"),
        Owner::Team(id) => query.push("team_id = ").push_bind(id.clone()),
        Owner::Anyone => query.push("1 = 1"),
    };
    if let Some(user_id) = &selection.user_id {
        query.push(" AND user_id = ").push_bind(user_id.clone());
    }
    if let Some(status) = selection.status {
        query.push(" AND status = ").push_bind(status.as_str());
    }
    if selection.active_only {
        query.push(" AND ended_at_ms IS NULL");
    }
    for label in &selection.labels {
        query.push(" AND EXISTS (SELECT 1 FROM sandbox_labels l WHERE l.sandbox_id = sandboxes.id AND l.label = ");
        query.push_bind(label.clone()).push(")");
    }
}
