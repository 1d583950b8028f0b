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
        // Builders are the server's own.
        Owner::Anyone => query.push("user_id <> ").push_bind(crate::builds::BUILDER_USER_ID),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, fixture};
    use proptest::prelude::*;

    const LABELS: [&str; 3] = ["a", "b", "c'; --"];

    fn row(number: u128, user: bool, team: bool, ended: bool, labels: u8) -> SandboxRow {
        let mut row = fixture::row(number);
        row.user_id = if user { "u1" } else { "u2" }.to_owned();
        row.team_id = team.then(|| "c1".to_owned());
        row.status = if ended { Status::Error } else { Status::Running };
        row.ended_at_ms = ended.then_some(5);
        row.created_at_ms = number as u64 / 3;
        let has = |(i, _): &(usize, &&str)| labels & (1 << i) != 0;
        row.request.labels = LABELS.iter().enumerate().filter(has).map(|(_, label)| (*label).to_owned()).collect();
        row
    }

    fn matches(selection: &Selection, row: &SandboxRow) -> bool {
        let owner = match &selection.owner {
            Owner::Personal => row.team_id.is_none(),
            Owner::Team(id) => row.team_id.as_ref() == Some(id),
            Owner::Anyone => true,
        };
        owner
            && selection.user_id.as_ref().is_none_or(|id| *id == row.user_id)
            && selection.status.is_none_or(|status| status == row.status)
            && selection.labels.iter().all(|label| row.request.labels.contains(label))
            && !(selection.active_only && row.ended_at_ms.is_some())
    }

    fn selection() -> impl Strategy<Value = Selection> {
        let owner = prop_oneof![Just(Owner::Personal), Just(Owner::Team("c1".to_owned())), Just(Owner::Anyone)];
        let user = prop::option::of(prop_oneof![Just("u1".to_owned()), Just("u2".to_owned())]);
        let status = prop::option::of(prop_oneof![Just(Status::Running), Just(Status::Error)]);
        let labels = prop::collection::btree_set(prop::sample::select(&LABELS[..]).prop_map(str::to_owned), 0..3);
        (owner, user, status, labels, any::<bool>()).prop_map(|(owner, user_id, status, labels, active_only)| {
            Selection { owner, user_id, status, labels, active_only }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn a_list_is_the_filtered_set_in_order(
            rows in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), 0..8_u8), 0..14),
            selections in prop::collection::vec((selection(), 0..6_u64, 1..6_u64), 8),
        ) {
            let rows: Vec<_> = (1..).zip(rows).map(|(n, (user, team, ended, labels))| row(n, user, team, ended, labels)).collect();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (_dir, store) = fixture::store().await;
                for row in &rows {
                    store.sandbox_insert(&fixture::new(row.clone())).await.unwrap();
                    store.sandbox_update(&row.id, Durability::Power, 9, |stored| { stored.ended_at_ms = row.ended_at_ms; true }).await.unwrap();
                }
                for (selection, offset, limit) in selections {
                    let mut expected: Vec<_> = rows.iter().filter(|row| matches(&selection, row)).collect();
                    expected.sort_by_key(|row| std::cmp::Reverse((row.created_at_ms, row.id.clone())));
                    let (page, total) = store.sandboxes_list(&selection, Page { offset, limit }).await.unwrap();
                    assert_eq!(total, expected.len() as u64, "{selection:?}");
                    let expected = expected.iter().skip(offset as usize).take(limit as usize).map(|row| &row.id);
                    assert!(page.iter().map(|row| &row.id).eq(expected), "{selection:?}");
                }
            });
        }
    }
}
