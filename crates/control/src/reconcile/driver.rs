//! Waits for observations, nudges and time, and has them dealt with.
//!
//! One task takes observations in their order; one task makes and performs plans. Both end at shutdown, between two effects.

use super::absorb::absorb;
use super::dispatch::{self, Offered};
use super::plan::{Action, Seen, Wanted, plan};
use super::underway::Begun;
use crate::clock::now_ms;
use crate::context::Context;
use crate::snapshots::settle::settle;
use crate::store::{Placement, SandboxRow, StoreError};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep};
use warren_model::SandboxId;
use warren_proto::node::Observation;

/// Longest time between two plans, milliseconds.
const PLAN_EVERY_MS: u64 = 5_000;
/// Time until the next plan after one that found something to do, milliseconds: what failed is tried again.
const PLAN_AGAIN_MS: u64 = 1_000;
/// Shortest time between two plans, milliseconds.
const PLAN_PAUSE_MS: u64 = 100;
/// Time between two plans while sandboxes wait for room, milliseconds.
const QUEUE_RETRY_MS: u64 = 500;
/// Effects of plans at once.
pub(crate) const EFFECTS_MAX: usize = 32;
/// Time between two purges, milliseconds.
const PURGE_EVERY_MS: u64 = 3_600_000;

/// Takes observations until shutdown.
pub(crate) async fn observe(cx: Arc<Context>, mut observations: Receiver<Observation>) {
    loop {
        let seen = tokio::select! {
            // An observation that is lost here is seen again by the first plan after the next start.
            () = cx.stop.cancelled() => return,
            seen = observations.recv() => seen,
        };
        match seen {
            Ok(seen) => {
                if let Err(error) = dispatch::observed(&cx, &seen).await {
                    tracing::error!(sandbox = %seen.id, error = chain(&error), "observation not stored; the next plan sees it again");
                }
            }
            Err(RecvError::Lagged(count)) => {
                tracing::warn!(count, "observations were missed; comparing all");
                cx.nudge.notify_one();
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Makes and performs plans until shutdown.
pub(crate) async fn reconcile(cx: Arc<Context>) {
    let mut missing = HashMap::new();
    let mut purge_at = Instant::now();
    loop {
        if let Err(error) = settle(&cx).await {
            tracing::error!(error = chain(&error), "snapshots not settled; will try again");
        }
        let open = turn(&cx, &mut missing).await.unwrap_or_else(|error| {
            tracing::error!(error = chain(&error), "plan not performed; will try again");
            true
        });
        if Instant::now() >= purge_at {
            purge_at = Instant::now() + Duration::from_millis(PURGE_EVERY_MS);
            match cx.store.purge(now_ms()).await {
                Ok(count) => tracing::debug!(count, "purged sandboxes that ended long ago"),
                Err(error) => tracing::error!(error = chain(&error), "purge failed"),
            }
        }
        let wait_ms = match (cx.node_full.load(Ordering::Relaxed), open) {
            (true, _) => QUEUE_RETRY_MS,
            (false, true) => PLAN_AGAIN_MS,
            (false, false) => PLAN_EVERY_MS,
        };
        tokio::select! {
            () = cx.stop.cancelled() => return,
            () = cx.nudge.notified() => sleep(Duration::from_millis(PLAN_PAUSE_MS)).await,
            () = sleep(Duration::from_millis(wait_ms)) => {}
        }
    }
}

/// One plan, from reading to the begin of its effects; answers whether there was something to do.
async fn turn(cx: &Arc<Context>, missing: &mut HashMap<SandboxId, u64>) -> Result<bool, StoreError> {
    let mut rows = cx.store.sandboxes_unsettled().await?;
    let seen: HashMap<SandboxId, Observation> = cx.node.list().await.into_iter().map(|o| (o.id.clone(), o)).collect();
    let known: HashSet<&SandboxId> = rows.iter().map(|row| &row.id).collect();
    let others: Vec<SandboxId> = seen.keys().filter(|id| !known.contains(id)).cloned().collect();
    rows.extend(cx.store.sandboxes_get(&others).await?);
    let now = now_ms();
    let wanted: Vec<Wanted> = rows.iter().map(|row| wanted(row, &seen, missing, now)).collect();
    let abstracts = seen.iter().map(|(id, o)| (id.clone(), abstracted(o))).collect();
    let mut actions = plan(&wanted, &abstracts, now);
    let rows: HashMap<SandboxId, SandboxRow> = rows.into_iter().map(|row| (row.id.clone(), row)).collect();
    missing.retain(|id, _| rows.contains_key(id) && !seen.contains_key(id));
    actions.retain(|action| !is_known(action, &rows, &seen));
    let open = !actions.is_empty();
    perform(cx, actions, rows, seen).await.map(|()| open)
}

/// Whether an observation says nothing new: most do, and need no write.
fn is_known(action: &Action, rows: &HashMap<SandboxId, SandboxRow>, seen: &HashMap<SandboxId, Observation>) -> bool {
    let Action::Absorb(id) = action else { return false };
    let (Some(row), Some(seen)) = (rows.get(id), seen.get(id)) else { return true };
    !absorb(&mut row.clone(), seen)
}

pub(super) fn wanted(
    row: &SandboxRow,
    seen: &HashMap<SandboxId, Observation>,
    missing: &mut HashMap<SandboxId, u64>,
    now_ms: u64,
) -> Wanted {
    let is_missing = row.is_live() && row.placement != Placement::Queued && !seen.contains_key(&row.id);
    if !is_missing {
        missing.remove(&row.id);
    }
    Wanted {
        id: row.id.clone(),
        intent: row.intent,
        placement: row.placement,
        status: row.status,
        ended_at_ms: row.ended_at_ms,
        egress_generation: row.egress_generation,
        missing_since_ms: is_missing.then(|| *missing.entry(row.id.clone()).or_insert(now_ms)),
    }
}

pub(super) fn abstracted(seen: &Observation) -> Seen {
    Seen { status: seen.status, egress_generation: seen.egress_generation }
}

/// Offers go one after the other, so that the queue keeps its order. Everything else begins at once, in bounded number, and is not
/// waited for: a sandbox that does not answer must not hold up the others.
async fn perform(
    cx: &Arc<Context>,
    actions: Vec<Action>,
    mut rows: HashMap<SandboxId, SandboxRow>,
    mut seen: HashMap<SandboxId, Observation>,
) -> Result<(), StoreError> {
    let (offers, others): (Vec<_>, Vec<_>) = actions.into_iter().partition(|a| matches!(a, Action::Create(_)));
    for action in others {
        let (row, seen) = (rows.remove(id_of(&action)), seen.remove(id_of(&action)));
        if let Some(begun) = cx.underway.try_begin(id_of(&action)) {
            cx.tasks.spawn(effect(cx.clone(), begun, action, row, seen));
        }
    }
    offer(cx, &offers, &rows).await
}

async fn effect(
    cx: Arc<Context>,
    begun: Begun<SandboxId>,
    action: Action,
    row: Option<SandboxRow>,
    seen: Option<Observation>,
) {
    // The semaphore is never closed.
    let _turn = cx.effects.clone().acquire_owned().await;
    if let Err(error) = one(&cx, &action, row, seen).await {
        tracing::error!(?action, error = chain(&error), "effect not noted; the next plan repeats it");
    }
    drop(begun);
}

async fn offer(cx: &Context, offers: &[Action], rows: &HashMap<SandboxId, SandboxRow>) -> Result<(), StoreError> {
    for action in offers {
        let begun = cx.underway.try_begin(id_of(action));
        let (Some(row), Some(_begun)) = (rows.get(id_of(action)), begun) else { continue };
        if dispatch::create(cx, row).await? == Offered::Full {
            cx.node_full.store(true, Ordering::Relaxed);
            return Ok(());
        }
    }
    cx.node_full.store(false, Ordering::Relaxed);
    Ok(())
}

async fn one(
    cx: &Context,
    action: &Action,
    row: Option<SandboxRow>,
    seen: Option<Observation>,
) -> Result<(), StoreError> {
    match (action, row, seen) {
        (Action::Absorb(_), _, Some(seen)) => dispatch::observed(cx, &seen).await,
        (Action::SetEgress(_), Some(row), _) => dispatch::set_egress(cx, &row).await,
        (Action::Terminate(id), None, _) => orphan(cx, id).await,
        (Action::Terminate(id), Some(_), _) => dispatch::terminate(cx, id).await,
        (Action::Lost(id), _, _) => dispatch::lost(cx, id).await,
        (Action::Forget(id), _, _) => dispatch::forget(cx, id).await,
        (Action::Create(_) | Action::Absorb(_) | Action::SetEgress(_), _, _) => Ok(()),
    }
}

/// Ends what the store does not know, unless it was made after the plan's rows were read.
async fn orphan(cx: &Context, id: &SandboxId) -> Result<(), StoreError> {
    match cx.store.sandbox_get(id).await? {
        Some(row) if row.is_live() => Ok(()),
        _ => {
            tracing::warn!(sandbox = %id, "node runs a sandbox that should not be; ending it");
            dispatch::terminate(cx, id).await
        }
    }
}

fn id_of(action: &Action) -> &SandboxId {
    match action {
        Action::Create(id) | Action::Absorb(id) | Action::Terminate(id) => id,
        Action::Lost(id) | Action::SetEgress(id) | Action::Forget(id) => id,
    }
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    std::iter::once(error.to_string()).chain(causes.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
}
