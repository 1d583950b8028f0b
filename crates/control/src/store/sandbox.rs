use super::row::{read, read_all, to_db};
use super::{Durability, SandboxRow, Store, StoreError};
use sqlx::QueryBuilder;
use warren_model::{SandboxId, SnapshotId};

/// How often an update is computed again because another writer was faster.
const UPDATE_ATTEMPTS_MAX: u32 = 32;
/// Ids in one query; databases bound the number of parameters.
const IDS_MAX: usize = 500;

/// What an update did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Updated {
    /// The row as it is now.
    Changed(SandboxRow),
    /// Nothing to change; the row as it is.
    Same(SandboxRow),
    /// There is no such row.
    Missing,
}

impl Store {
    /// One sandbox.
    pub(crate) async fn sandbox_get(&self, id: &SandboxId) -> Result<Option<SandboxRow>, StoreError> {
        let row = sqlx::query("SELECT * FROM sandboxes WHERE id = $1").bind(id.as_str());
        row.fetch_optional(&self.read).await?.as_ref().map(read).transpose()
    }

    /// Those of `ids` that exist, in no order.
    pub(crate) async fn sandboxes_get(&self, ids: &[SandboxId]) -> Result<Vec<SandboxRow>, StoreError> {
        let mut found = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(IDS_MAX) {
            let mut query = QueryBuilder::new("SELECT * FROM sandboxes WHERE id IN (");
            let mut list = query.separated(", ");
            for id in chunk {
                list.push_bind(id.as_str());
            }
            query.push(")");
            found.extend(read_all(&query.build().fetch_all(&self.read).await?)?);
        }
        Ok(found)
    }

    /// All for which something may be left to do, oldest first.
    pub(crate) async fn sandboxes_unsettled(&self) -> Result<Vec<SandboxRow>, StoreError> {
        let select =
            "SELECT * FROM sandboxes WHERE placement IN ('queued', 'placed', 'cleared') ORDER BY created_at_ms, id";
        read_all(&sqlx::query(select).fetch_all(&self.read).await?)
    }

    /// When the first sandbox began to wait for an image build, if any does.
    pub(crate) async fn image_build_since_ms(&self, build_id: &str) -> Result<Option<u64>, StoreError> {
        let select = "SELECT MIN(created_at_ms) FROM sandboxes WHERE image_build_id = $1";
        let since: Option<i64> = sqlx::query_scalar(select).bind(build_id).fetch_one(&self.read).await?;
        Ok(since.and_then(|ms| u64::try_from(ms).ok()))
    }

    /// Changes one sandbox by a pure function of its row; `false` from `change` leaves it as it is.
    pub(crate) async fn sandbox_update(
        &self,
        id: &SandboxId,
        durability: Durability,
        now_ms: u64,
        change: impl Fn(&mut SandboxRow) -> bool,
    ) -> Result<Updated, StoreError> {
        for _ in 0..UPDATE_ATTEMPTS_MAX {
            let Some(before) = self.sandbox_get(id).await? else { return Ok(Updated::Missing) };
            let mut row = before.clone();
            if !change(&mut row) || row == before {
                return Ok(Updated::Same(before));
            }
            row.updated_at_ms = now_ms.max(before.updated_at_ms);
            row.version = before.version + 1;
            if self.write_version(&row, durability, before.version).await? {
                return Ok(Updated::Changed(row));
            }
        }
        Err(StoreError::Contended(id.to_string()))
    }

    async fn write_version(
        &self,
        row: &SandboxRow,
        durability: Durability,
        version_before: i64,
    ) -> Result<bool, StoreError> {
        let damaged = |column| StoreError::Damaged { table: "sandboxes", column, id: row.id.to_string() };
        let done = sqlx::query(
            "UPDATE sandboxes SET intent = $1, placement = $2, status = $3, image_build_id = $4, image_digest = $5, \
             egress = $6, egress_generation = $7, egress_applied = $8, error_type = $9, error_message = $10, \
             termination_reason = $11, infra_fault = $12, exit_code = $13, logs = $14, updated_at_ms = $15, \
             started_at_ms = $16, ended_at_ms = $17, secrets = $18, generation = $19, template_id = $20, version = $21 WHERE id = $22 AND version = $23",
        )
        .bind(row.intent.as_str())
        .bind(row.placement.as_str())
        .bind(row.status.as_str())
        .bind(&row.image_build_id)
        .bind(&row.image_digest)
        .bind(serde_json::to_string(&row.egress).map_err(|_| damaged("egress"))?)
        .bind(to_db(row.egress_generation))
        .bind(to_db(row.egress_applied))
        .bind(&row.error_type)
        .bind(&row.error_message)
        .bind(&row.termination_reason)
        .bind(row.infra_fault)
        .bind(row.exit_code.map(i64::from))
        .bind(&row.logs)
        .bind(to_db(row.updated_at_ms))
        .bind(row.started_at_ms.map(to_db))
        .bind(row.ended_at_ms.map(to_db))
        .bind(&row.secrets)
        .bind(to_db(row.generation))
        .bind(row.template_id.as_ref().map(SnapshotId::as_str))
        .bind(row.version)
        .bind(row.id.as_str())
        .bind(version_before)
        .execute(&mut *self.writer(durability).await?)
        .await?;
        Ok(done.rows_affected() == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Placement, fixture};
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn no_update_is_lost_among_many_writers() {
        let (_dir, store) = fixture::store().await;
        let row = fixture::row(1);
        store.sandbox_insert(&fixture::new(row.clone())).await.unwrap();
        let mut writers = JoinSet::new();
        for _ in 0..20 {
            let (store, id) = (store.clone(), row.id.clone());
            writers.spawn(async move {
                let count = |row: &mut SandboxRow| {
                    row.egress_generation += 1;
                    true
                };
                store.sandbox_update(&id, Durability::Process, 5, count).await.unwrap()
            });
        }
        while let Some(done) = writers.join_next().await {
            assert!(matches!(done.unwrap(), Updated::Changed(_)));
        }
        let after = store.sandbox_get(&row.id).await.unwrap().unwrap();
        assert_eq!((after.egress_generation, after.version), (20, 21));
        assert_eq!(
            store.sandbox_update(&SandboxId::from_bits(2), Durability::Power, 5, |_| true).await.unwrap(),
            Updated::Missing
        );
    }

    #[tokio::test]
    async fn what_ended_long_ago_goes_and_the_rest_stays() {
        let (_dir, store) = fixture::store().await;
        const WEEK_MS: u64 = 7 * 24 * 3_600_000;
        let ends = [(1, Placement::Gone, 10), (2, Placement::Gone, 20), (3, Placement::Cleared, 10)];
        for (number, placement, ended_at_ms) in ends {
            let mut row = fixture::row(number);
            row.request.labels = vec!["label".into()];
            store.sandbox_insert(&fixture::new(row.clone())).await.unwrap();
            let end = |row: &mut SandboxRow| {
                (row.placement, row.ended_at_ms) = (placement, Some(ended_at_ms));
                true
            };
            store.sandbox_update(&row.id, Durability::Power, 30, end).await.unwrap();
        }
        assert_eq!(store.purge(WEEK_MS + 15).await.unwrap(), 1);
        let left = store.sandboxes_get(&[1, 2, 3].map(SandboxId::from_bits)).await.unwrap();
        assert_eq!(left.len(), 2);
        let unsettled = store.sandboxes_unsettled().await.unwrap();
        assert!(unsettled.iter().map(|row| &row.id).eq([&SandboxId::from_bits(3)]));
    }
}
