//! One effect on the node, and the note that it is done. Every function may be called again at any time.

use super::absorb::{absorb, end_with};
use crate::checkpoints::until_frozen;
use crate::clock::now_ms;
use crate::context::Context;
use crate::credential::image_access;
use crate::store::{Durability, Placement, SandboxRow, StoreError, Updated};
use std::collections::BTreeMap;
use warren_model::{EndReason, SandboxId, SandboxSpec, Status};
use warren_proto::node::{CreateError, NodeError, Observation};

/// What became of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    /// The node has it, or it needs no node any more.
    Settled,
    /// The node is full; it stays in the queue.
    Full,
}

/// Offers a queued sandbox to the node.
pub(crate) async fn create(cx: &Context, row: &SandboxRow) -> Result<Offered, StoreError> {
    let spec = match spec(cx, row).await? {
        Ok(spec) => spec,
        Err(problem) => return end(cx, &row.id, EndReason::StartFailed, &problem).await.map(|()| Offered::Settled),
    };
    match cx.node.create(row.id.clone(), spec).await {
        Ok(()) => placed(cx, &row.id).await?,
        Err(CreateError::Full(_)) => return Ok(Offered::Full),
        Err(CreateError::Deleted(_)) => end(cx, &row.id, EndReason::Deleted, "deleted before it started").await?,
        Err(error @ (CreateError::Refused(_) | CreateError::Failed(_))) => {
            end(cx, &row.id, EndReason::StartFailed, &error.to_string()).await?;
        }
    }
    Ok(Offered::Settled)
}

async fn placed(cx: &Context, id: &SandboxId) -> Result<(), StoreError> {
    let mark = |row: &mut SandboxRow| {
        let queued = row.placement == Placement::Queued;
        if queued {
            row.placement = Placement::Placed;
        }
        queued
    };
    let updated = cx.store.sandbox_update(id, Durability::Process, now_ms(), mark).await?;
    let (Updated::Changed(row) | Updated::Same(row)) = updated else { return Ok(()) };
    if !row.is_live() {
        // Deleted while the offer was under way: the delete wins.
        terminate(cx, id).await?;
    }
    Ok(())
}

/// Ends a sandbox on the node. A node that does not answer is asked again by the next plan.
pub(crate) async fn terminate(cx: &Context, id: &SandboxId) -> Result<(), StoreError> {
    until_frozen(cx, id).await;
    match cx.node.terminate(id, EndReason::Deleted, "deleted by a client").await {
        Ok(()) | Err(NodeError::NotFound(_) | NodeError::NotRunning { .. }) => {}
        Err(error @ NodeError::NoAnswer { .. }) => {
            tracing::warn!(sandbox = %id, %error, "node did not end a sandbox; will ask again");
            return Ok(());
        }
    }
    if let Some(seen) = cx.node.get(id).await {
        observed(cx, &seen).await?;
    }
    let mark = |row: &mut SandboxRow| {
        let open = !row.is_live() && row.placement != Placement::Gone;
        if open {
            row.placement = Placement::Cleared;
        }
        open
    };
    cx.store.sandbox_update(id, Durability::Process, now_ms(), mark).await?;
    cx.room();
    Ok(())
}

/// Gives the node the policy in force.
pub(crate) async fn set_egress(cx: &Context, row: &SandboxRow) -> Result<(), StoreError> {
    match cx.node.set_egress(&row.id, row.egress.clone(), row.egress_generation).await {
        Ok(()) => {}
        Err(error) => {
            tracing::debug!(sandbox = %row.id, %error, "egress policy not applied; will try again");
            return Ok(());
        }
    }
    let generation = row.egress_generation;
    let mark = |row: &mut SandboxRow| {
        row.egress_applied = row.egress_applied.max(generation);
        true
    };
    cx.store.sandbox_update(&row.id, Durability::Process, now_ms(), mark).await?;
    cx.changes.tell(&row.id);
    Ok(())
}

/// Lets the node drop its record of an ended sandbox.
pub(crate) async fn forget(cx: &Context, id: &SandboxId) -> Result<(), StoreError> {
    cx.node.forget(id).await;
    let mark = |row: &mut SandboxRow| {
        row.placement = Placement::Gone;
        !row.is_live()
    };
    cx.store.sandbox_update(id, Durability::Process, now_ms(), mark).await?;
    Ok(())
}

/// Writes down that the node lost it.
pub(crate) async fn lost(cx: &Context, id: &SandboxId) -> Result<(), StoreError> {
    end(cx, id, EndReason::NodeLost, "the node that ran this sandbox does not know it any more").await
}

/// Writes down what the node says.
pub(crate) async fn observed(cx: &Context, seen: &Observation) -> Result<(), StoreError> {
    if let Updated::Changed(row) =
        cx.store.sandbox_update(&seen.id, Durability::Process, now_ms(), |row| absorb(row, seen)).await?
    {
        cx.changes.tell(&seen.id);
        if row.status.is_terminal() {
            cx.room();
        } else if row.status == Status::Running && row.egress_applied < row.egress_generation {
            // The policy changed while it started.
            cx.nudge.notify_one();
        }
    }
    Ok(())
}

/// Asks the node about a running sandbox, for what shows up only when asked, such as out-of-memory kills.
pub(crate) async fn refresh(cx: &Context, id: &SandboxId) -> Result<(), StoreError> {
    match cx.node.get(id).await {
        Some(seen) => observed(cx, &seen).await,
        None => Ok(()),
    }
}

async fn end(cx: &Context, id: &SandboxId, reason: EndReason, message: &str) -> Result<(), StoreError> {
    let now = now_ms();
    let change = |row: &mut SandboxRow| {
        let live = row.is_live();
        if live {
            end_with(row, reason, message, now);
        }
        live
    };
    if let Updated::Changed(_) = cx.store.sandbox_update(id, Durability::Process, now, change).await? {
        cx.changes.tell(id);
    }
    Ok(())
}

/// The spec that a row stands for, with its secrets, the policy in force, the saved login for its image, and what its volumes
/// lie on.
async fn spec(cx: &Context, row: &SandboxRow) -> Result<Result<SandboxSpec, String>, StoreError> {
    Ok(match opened(cx, row) {
        Ok(mut spec) => {
            for (mount, attached) in spec.volumes.iter_mut().zip(cx.store.attachments(&row.id).await?) {
                mount.base = attached.base_digest;
            }
            spec.image_access = image_access(cx, &row.user_id, row.team_id.as_deref(), &spec.image).await?;
            Ok(spec)
        }
        Err(problem) => Err(problem),
    })
}

fn opened(cx: &Context, row: &SandboxRow) -> Result<SandboxSpec, String> {
    let mut spec = SandboxSpec::try_from(&row.request).map_err(|invalid| invalid.to_string())?;
    spec.egress = row.egress.clone();
    spec.snapshot.clone_from(&row.snapshot_id);
    if let Some(image) = &row.node_image {
        spec.image.clone_from(image);
    }
    spec.secrets = match &row.secrets {
        None => BTreeMap::new(),
        Some(sealed) => {
            let plain = cx.sealer.unseal(row.id.as_str(), sealed).map_err(|error| error.to_string())?;
            serde_json::from_slice(&plain).map_err(|_| "stored secrets are damaged".to_owned())?
        }
    };
    Ok(spec)
}
