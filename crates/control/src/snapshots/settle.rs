//! What is left to do for snapshots: after a restart, and for those that go by themselves.

use super::SnapshotRow;
use crate::clock::now_ms;
use crate::context::Context;
use crate::store::{SnapshotsOf, StoreError};
use std::collections::{HashMap, HashSet};
use warren_model::SnapshotId;
use warren_proto::http::SnapshotState;
use warren_proto::node::SnapshotInfo;

/// One look at all snapshots that are not settled, and at those of the node that nobody knows.
pub(crate) async fn settle(cx: &Context) -> Result<(), StoreError> {
    // The node is asked first: what it takes meanwhile has a row already.
    let on_node: HashMap<SnapshotId, SnapshotInfo> =
        cx.node.snapshots().await.into_iter().map(|info| (info.id.clone(), info)).collect();
    for row in cx.store.snapshots_list(SnapshotsOf::Unsettled).await? {
        if !cx.snapshots_underway.is_begun(&row.id) {
            one(cx, &on_node, row).await?;
        }
    }
    let mut unknown = HashSet::new();
    for id in on_node.keys().filter(|id| !cx.snapshots_underway.is_begun(id)) {
        if cx.store.snapshot_get(id).await?.is_none() && !cx.store.snapshot_is_of_template(id).await? {
            unknown.insert(id);
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    // Those that somebody has let go meanwhile are gone.
    for info in cx.node.snapshots().await.iter().filter(|info| unknown.contains(&info.id)) {
        tracing::warn!(snapshot = %info.id, "the node has a snapshot that nobody asked for; letting it go");
        drop_on_node(cx, &info.id).await;
    }
    Ok(())
}

async fn one(
    cx: &Context,
    on_node: &HashMap<SnapshotId, SnapshotInfo>,
    mut row: SnapshotRow,
) -> Result<(), StoreError> {
    match row.state {
        SnapshotState::Deleting => let_go(cx, &row).await,
        // A fork that was cut off before anybody could go on from it, or that all have gone on from.
        _ if row.passing => match cx.store.snapshot_is_awaited(&row.id).await? {
            true => Ok(()),
            false => super::delete(cx, row).await,
        },
        SnapshotState::Pending => {
            match on_node.get(&row.id) {
                Some(info) => row.is_ready(info),
                None => {
                    row.state = SnapshotState::Failed;
                    row.error = Some("the server was restarted while it was being taken".to_owned());
                }
            }
            row.updated_at_ms = now_ms();
            cx.store.snapshot_update(&row).await
        }
        // Its digest comes a moment after it.
        SnapshotState::Ready => match on_node.get(&row.id).filter(|info| info.digest.is_some()) {
            Some(info) => {
                row.is_ready(info);
                cx.store.snapshot_update(&row).await
            }
            None => Ok(()),
        },
        SnapshotState::Failed => Ok(()),
    }
}

/// Has the node let it go, then forgets it. A node that fails is asked again later.
pub(super) async fn let_go(cx: &Context, row: &SnapshotRow) -> Result<(), StoreError> {
    // Forks of it that wait for room go on from it yet.
    if cx.store.snapshot_is_awaited(&row.id).await? {
        return Ok(());
    }
    if drop_on_node(cx, &row.id).await {
        cx.store.snapshot_delete(&row.id).await?;
    }
    Ok(())
}

async fn drop_on_node(cx: &Context, id: &SnapshotId) -> bool {
    match cx.node.delete_snapshot(id).await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(snapshot = %id, %error, "a snapshot was not let go; will try again");
            false
        }
    }
}
