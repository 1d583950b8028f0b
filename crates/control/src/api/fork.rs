//! Forks: sandboxes that go on from a running one, or from a snapshot.

use super::create::{first_attempt, hold};
use super::gateway::grant;
use super::get::find;
use super::limits::FORK_HOLD_MS;
use super::origin::Origin;
use super::parsed::Parsed;
use super::snapshots::find_snapshot;
use super::{ApiError, show};
use crate::auth::Caller;
use crate::clock::now_ms;
use crate::context::Context;
use crate::quota::Quota;
use crate::random;
use crate::snapshots::{self, Kind};
use crate::store::{Inserted, NewSandbox, SandboxRow, SnapshotRow};
use axum::Json;
use axum::extract::{Path, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use warren_model::{SandboxId, SandboxSpec, limits as model_limits};
use warren_proto::http::{
    CreateSandbox, Created, ErrorBody, ErrorCode, FieldError, Fork, Forked, SecretsPolicy, SnapshotState, limits,
};

/// Makes forks of a running sandbox, each with all that runs in it. The sandbox stands still for milliseconds and goes on.
#[utoipa::path(
    post, path = "/sandbox/{id}/fork", operation_id = "sandbox_fork", tag = "snapshots", params(("id" = String, Path)),
    request_body = Fork,
    responses((status = 200, body = Forked), (status = "default", body = ErrorBody))
)]
pub(super) async fn fork(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    origin: Origin,
    Path(id): Path<String>,
    Parsed(request): Parsed<Fork>,
) -> Result<Json<Forked>, ApiError> {
    let source = find(&cx, &caller, &id).await?;
    let count = check(&source.request, &request)?;
    let (snapshot, begun) = snapshots::take(&cx, &source, &caller.user.id, Kind::Passing).await?;
    let forked = make(&cx, &caller, &origin, &snapshot, &request, count).await;
    drop(begun);
    cx.nudge.notify_one();
    if forked.is_err() {
        // Nobody goes on from it, or those who do have a hold on it.
        snapshots::delete(&cx, snapshot).await?;
    }
    forked
}

/// Makes forks of a snapshot.
#[utoipa::path(
    post, path = "/snapshots/{id}/fork", operation_id = "snapshot_fork", tag = "snapshots", params(("id" = String, Path)),
    request_body = Fork,
    responses((status = 200, body = Forked), (status = "default", body = ErrorBody))
)]
pub(super) async fn fork_snapshot(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    origin: Origin,
    Path(id): Path<String>,
    Parsed(request): Parsed<Fork>,
) -> Result<Json<Forked>, ApiError> {
    let snapshot = find_snapshot(&cx, &caller, &id).await?;
    if snapshot.state != SnapshotState::Ready {
        let why = snapshot.error.unwrap_or_else(|| "it is not ready".to_owned());
        return Err(ApiError::new(ErrorCode::SnapshotNotReady, format!("snapshot {id}: {why}")));
    }
    let count = check(&snapshot.request, &request)?;
    match cx.node.snapshots().await.into_iter().find(|info| info.id == snapshot.id) {
        Some(info) if info.usable => {}
        Some(_) => {
            let detail = format!("snapshot {id} was taken with another version of QEMU, kernel, agent or processor");
            return Err(ApiError::new(ErrorCode::SnapshotIncompatible, detail));
        }
        None => return Err(ApiError::new(ErrorCode::NotFound, format!("snapshot {id} is on no node any more"))),
    }
    make(&cx, &caller, &origin, &snapshot, &request, count).await
}

/// How many, if all of it can be done.
fn check(source: &CreateSandbox, fork: &Fork) -> Result<u32, ApiError> {
    let count = fork.count.unwrap_or(1);
    if !(1..=limits::FORKS_MAX).contains(&count) {
        return Err(FieldError::body("count", format!("must be from 1 to {}", limits::FORKS_MAX)).into());
    }
    SandboxSpec::try_from(&request_of(source, fork))?;
    Ok(count)
}

/// The create call that a fork would be.
fn request_of(source: &CreateSandbox, fork: &Fork) -> CreateSandbox {
    let mut request = source.clone();
    request.name = fork.name.clone().unwrap_or_else(|| fork_name(&source.name));
    request.labels = fork.labels.clone().unwrap_or_else(|| source.labels.clone());
    request.timeout_minutes = fork.timeout_minutes.unwrap_or(source.timeout_minutes);
    if request.timeout_minutes > 0 {
        // The source's may fit the source's lifetime only.
        request.idle_timeout_minutes = request.idle_timeout_minutes.map(|idle| idle.min(request.timeout_minutes));
    }
    if let Some(more) = &fork.environment_vars {
        request.environment_vars.get_or_insert_default().extend(more.clone());
    }
    if fork.secrets_policy == Some(SecretsPolicy::Drop) {
        request.secrets = None;
    }
    if let Some(more) = &fork.secrets {
        request.secrets.get_or_insert_default().extend(more.clone());
    }
    request
}

/// That of the source, said to be a fork's; as long as a name may be.
fn fork_name(source: &str) -> String {
    const END: &str = "-fork";
    if source.ends_with(END) {
        return source.to_owned();
    }
    let mut cut = source.len().min(model_limits::NAME_LEN_MAX - END.len());
    while !source.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}{END}", &source[..cut])
}

async fn make(
    cx: &Arc<Context>,
    caller: &Caller,
    origin: &Origin,
    snapshot: &SnapshotRow,
    fork: &Fork,
    count: u32,
) -> Result<Json<Forked>, ApiError> {
    let deadline = Instant::now() + Duration::from_millis(FORK_HOLD_MS);
    let secrets = secrets_of(cx, snapshot, fork)?;
    let mut rows = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let new = new_sandbox(cx, caller, snapshot, fork, &secrets)?;
        match cx.store.sandbox_insert(&new).await? {
            Inserted::LimitReached(what) => {
                let made = rows.len();
                let detail =
                    format!("the maximum number of {what} is reached after {made} of {count} forks; none was made");
                give_up(cx, &rows).await?;
                return Err(ApiError::new(ErrorCode::LimitReached, detail));
            }
            _ => rows.push(new.row),
        }
    }
    let waiter = cx.changes.listen(rows.iter().map(|row| row.id.clone()).collect());
    let attempts: Vec<_> = rows
        .iter()
        .map(|row| {
            let (cx2, row) = (cx.clone(), row.clone());
            cx.tasks.spawn(async move { first_attempt(&cx2, &row).await })
        })
        .collect();
    for attempt in attempts {
        attempt.await.map_err(|panic| ApiError::internal(&panic))??;
    }
    let mut sandboxes = Vec::with_capacity(rows.len());
    for row in &rows {
        let row = hold(cx, &waiter, &row.id, deadline).await?;
        let gateway_auth = Some(grant(cx, caller, origin, &row.id));
        sandboxes.push(Created { sandbox: show::sandbox(row), gateway_auth });
    }
    Ok(Json(Forked { sandboxes }))
}

/// Takes back forks that were not offered to the node yet.
async fn give_up(cx: &Context, rows: &[SandboxRow]) -> Result<(), ApiError> {
    for row in rows {
        super::delete::intend(cx, row).await?;
    }
    cx.nudge.notify_one();
    Ok(())
}

/// The secrets that a fork gets, in clear.
fn secrets_of(cx: &Context, snapshot: &SnapshotRow, fork: &Fork) -> Result<BTreeMap<String, String>, ApiError> {
    let mut secrets: BTreeMap<String, String> = match &snapshot.secrets {
        Some(sealed) if fork.secrets_policy.unwrap_or_default() == SecretsPolicy::Keep => {
            let plain = cx.sealer.unseal(snapshot.id.as_str(), sealed).map_err(|error| ApiError::internal(&error))?;
            serde_json::from_slice(&plain).map_err(|error| ApiError::internal(&error))?
        }
        _ => BTreeMap::new(),
    };
    secrets.extend(fork.secrets.clone().unwrap_or_default());
    Ok(secrets)
}

fn new_sandbox(
    cx: &Context,
    caller: &Caller,
    snapshot: &SnapshotRow,
    fork: &Fork,
    secrets: &BTreeMap<String, String>,
) -> Result<NewSandbox, ApiError> {
    let id = SandboxId::from_bits(random::bits()?);
    let mut request = request_of(&snapshot.request, fork);
    // Those of the source may be in its memory even if it gets none, so that it stays marked.
    let is_marked = snapshot.request.secrets.is_some() || !secrets.is_empty();
    request.secrets = is_marked.then(|| show::masked(secrets));
    let vcpus = SandboxSpec::try_from(&request)?.shape.vcpus;
    let sealed = match secrets.is_empty() {
        true => None,
        false => {
            let plain = serde_json::to_vec(secrets).map_err(|error| ApiError::internal(&error))?;
            Some(cx.sealer.seal(id.as_str(), &plain)?)
        }
    };
    let asked = SandboxRow::asked(
        id,
        caller.user.id.clone(),
        snapshot.team_id.clone(),
        request,
        snapshot.egress.clone(),
        now_ms(),
    );
    let row = SandboxRow {
        secrets: sealed,
        snapshot_id: Some(snapshot.id.clone()),
        node_image: snapshot.node_image.clone(),
        image_digest: snapshot.image_digest.clone(),
        ..asked
    };
    let quota = Quota { user_live_max: cx.config.sandboxes_per_user_max, key: caller.key_limits.clone() };
    Ok(NewSandbox { row, idempotency: None, key_hash: caller.key_hash.clone(), vcpus, quota })
}
