use super::row::to_db;
use super::{SandboxRow, Store, StoreError};
use crate::quota::{HOUR_MS, Quota, Usage};
use sqlx::{Sqlite, Transaction};
use std::collections::BTreeSet;
use warren_model::{SandboxId, SnapshotId};
use warren_proto::http::KeyLimits;

/// A row to insert, and the conditions for it.
pub(crate) struct NewSandbox {
    /// With status PENDING and placement `Queued`.
    pub(crate) row: SandboxRow,
    /// Key and keyed hash of the request.
    pub(crate) idempotency: Option<(String, String)>,
    /// The key that asks, for its limits.
    pub(crate) key_hash: String,
    /// vCPUs of the machine, for the same.
    pub(crate) vcpus: u32,
    /// What user and key may have.
    pub(crate) quota: Quota,
}

/// What became of an insert.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Inserted {
    /// The row is there now.
    New,
    /// The same request made this sandbox before.
    Before(SandboxId),
    /// The key belongs to another request.
    OtherRequest,
    /// The request names a volume that the owner does not have: its place in the list.
    NoVolume(usize),
    /// User or key have as much as they may have; says of what.
    LimitReached(&'static str),
}

impl Store {
    /// Inserts a sandbox, its labels, its volumes and its idempotency key together, or nothing.
    pub(crate) async fn sandbox_insert(&self, new: &NewSandbox) -> Result<Inserted, StoreError> {
        let mut tx = self.write.begin().await?;
        if let Some((key, fingerprint)) = &new.idempotency
            && let Some(before) = Self::idempotency_claim(&mut tx, &new.row, key, fingerprint).await?
        {
            return Ok(before);
        }
        let usage = usage(&mut tx, new).await?;
        if let Some(what) = new.quota.exceeded_by(&usage, u64::from(new.vcpus)) {
            return Ok(Inserted::LimitReached(what));
        }
        insert_row(&mut tx, new).await?;
        for label in new.row.request.labels.iter().collect::<BTreeSet<_>>() {
            sqlx::query("INSERT INTO sandbox_labels (sandbox_id, label) VALUES ($1, $2)")
                .bind(new.row.id.as_str())
                .bind(label)
                .execute(&mut *tx)
                .await?;
        }
        if let Err(position) = Self::attach(&mut tx, &new.row).await? {
            return Ok(Inserted::NoVolume(position));
        }
        tx.commit().await?;
        Ok(Inserted::New)
    }
}

/// What user and key have before the insert. Only what is limited is counted.
async fn usage(tx: &mut Transaction<'_, Sqlite>, new: &NewSandbox) -> Result<Usage, StoreError> {
    let mut usage = Usage::default();
    if new.quota.user_live_max.is_some() {
        let select = "SELECT COUNT(*) FROM sandboxes WHERE user_id = $1 AND ended_at_ms IS NULL";
        usage.user_live = number(sqlx::query_scalar(select).bind(&new.row.user_id).fetch_one(&mut **tx).await?);
    }
    if new.quota.key != KeyLimits::default() {
        let select = "SELECT COUNT(*), CAST(COALESCE(SUM(vcpus), 0) AS BIGINT) FROM sandboxes \
                      WHERE key_hash = $1 AND ended_at_ms IS NULL";
        let (live, vcpus) = sqlx::query_as::<_, (i64, i64)>(select).bind(&new.key_hash).fetch_one(&mut **tx).await?;
        (usage.key_live, usage.key_vcpus) = (number(live), number(vcpus));
        let select = "SELECT COUNT(*) FROM sandboxes WHERE key_hash = $1 AND created_at_ms > $2";
        let hour_ago = to_db(new.row.created_at_ms.saturating_sub(HOUR_MS));
        let made = sqlx::query_scalar(select).bind(&new.key_hash).bind(hour_ago).fetch_one(&mut **tx).await?;
        usage.key_made_last_hour = number(made);
    }
    Ok(usage)
}

fn number(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

async fn insert_row(tx: &mut Transaction<'_, Sqlite>, new: &NewSandbox) -> Result<(), StoreError> {
    let row = &new.row;
    let damaged = |column| StoreError::Damaged { table: "sandboxes", column, id: row.id.to_string() };
    sqlx::query(
        "INSERT INTO sandboxes (id, user_id, team_id, request, secrets, intent, placement, status, egress, \
         egress_generation, egress_applied, infra_fault, created_at_ms, updated_at_ms, version, key_hash, vcpus, \
         node_image, image_digest, snapshot_id) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)",
    )
    .bind(row.id.as_str())
    .bind(&row.user_id)
    .bind(&row.team_id)
    .bind(serde_json::to_string(&row.request).map_err(|_| damaged("request"))?)
    .bind(&row.secrets)
    .bind(row.intent.as_str())
    .bind(row.placement.as_str())
    .bind(row.status.as_str())
    .bind(serde_json::to_string(&row.egress).map_err(|_| damaged("egress"))?)
    .bind(to_db(row.egress_generation))
    .bind(to_db(row.egress_applied))
    .bind(row.infra_fault)
    .bind(to_db(row.created_at_ms))
    .bind(to_db(row.updated_at_ms))
    .bind(row.version)
    .bind(&new.key_hash)
    .bind(i64::from(new.vcpus))
    .bind(&row.node_image)
    .bind(&row.image_digest)
    .bind(row.snapshot_id.as_ref().map(SnapshotId::as_str))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixture;

    fn with_key(number: u128, fingerprint: &str) -> NewSandbox {
        let row = SandboxRow { created_at_ms: 10_000_000, ..fixture::row(number) };
        NewSandbox { idempotency: Some(("key".into(), fingerprint.into())), ..fixture::new(row) }
    }

    #[tokio::test]
    async fn a_key_makes_one_sandbox_for_a_day_for_its_owner() {
        let (_dir, store) = fixture::store().await;
        let insert = |new: NewSandbox| async { store.sandbox_insert(&{ new }).await.unwrap() };
        assert_eq!(insert(with_key(1, "f")).await, Inserted::New);
        assert_eq!(insert(with_key(2, "f")).await, Inserted::Before(SandboxId::from_bits(1)));
        assert_eq!(insert(with_key(3, "g")).await, Inserted::OtherRequest);
        let mut of_other = with_key(4, "g");
        of_other.row.user_id = "u2".into();
        assert_eq!(insert(of_other).await, Inserted::New);
        let mut next_day = with_key(5, "g");
        next_day.row.created_at_ms += 24 * 3_600_000 + 1;
        assert_eq!(insert(next_day).await, Inserted::New);
    }

    #[tokio::test]
    async fn a_refused_insert_leaves_nothing() {
        let (_dir, store) = fixture::store().await;
        let limit = Quota { user_live_max: Some(1), ..Quota::default() };
        let new = |number| NewSandbox { quota: limit.clone(), ..with_key(number, "f") };
        assert_eq!(store.sandbox_insert(&new(1)).await.unwrap(), Inserted::New);
        let other_key = NewSandbox { idempotency: Some(("other".into(), "f".into())), ..new(2) };
        assert!(matches!(store.sandbox_insert(&other_key).await.unwrap(), Inserted::LimitReached(_)));
        assert_eq!(store.sandbox_get(&SandboxId::from_bits(2)).await.unwrap(), None);
        // The refused request's key is free again.
        let later = NewSandbox { quota: Quota::default(), ..other_key };
        assert_eq!(store.sandbox_insert(&later).await.unwrap(), Inserted::New);
    }

    #[tokio::test]
    async fn a_row_comes_back_as_it_went_in() {
        let (_dir, store) = fixture::store().await;
        let mut row = fixture::row(7);
        row.request.labels = vec!["b".into(), "a".into(), "b".into()];
        row.team_id = Some("c1".into());
        store.sandbox_insert(&fixture::new(row.clone())).await.unwrap();
        assert_eq!(store.sandbox_get(&row.id).await.unwrap(), Some(row));
    }
}
