use super::gateway::grant;
use super::limits::{CREATE_HOLD_MS, IMAGE_BUILD_LONG_MS};
use super::origin::Origin;
use super::parsed::Parsed;
use super::{ApiError, show};
use crate::auth::Caller;
use crate::checkpoints::restorable;
use crate::clock::now_ms;
use crate::context::Context;
use crate::images;
use crate::quota::Quota;
use crate::random;
use crate::reconcile::{Waiter, dispatch};
use crate::store::{Inserted, NewSandbox, SandboxRow};
use crate::templates;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use warren_model::{SandboxId, SandboxSpec, Status};
use warren_proto::http::{CreateSandbox, Created, ErrorBody, ErrorCode, FieldError};
use warren_proto::node::checkpoint_image;

/// Makes a sandbox; answers when it runs or has ended, or after a short while.
#[utoipa::path(
    post, path = "/sandbox", operation_id = "sandbox_create", tag = "sandbox", request_body = CreateSandbox,
    responses((status = 200, body = Created), (status = "default", body = ErrorBody))
)]
pub(super) async fn create(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    origin: Origin,
    Parsed(request): Parsed<CreateSandbox>,
) -> Result<Json<Created>, ApiError> {
    let deadline = Instant::now() + Duration::from_millis(CREATE_HOLD_MS);
    let spec = SandboxSpec::try_from(&request)?;
    if request.checkpoint_id.is_some() {
        not_with_checkpoint(&request)?;
    }
    if let Some(arch) = request.arch.as_ref().filter(|arch| **arch != cx.config.arch) {
        let known = if ["amd64", "arm64"].contains(&arch.as_str()) { "this server runs" } else { "expected" };
        return Err(FieldError::body("arch", format!("{known} {}", cx.config.arch)).into());
    }
    if let Some(team_id) = &request.team_id {
        caller.in_team(&cx, team_id).await?;
    }
    let image = spec.image.clone();
    let mut new = new_sandbox(&cx, &caller, request, spec)?;
    let id = match insert(&cx, &caller, &image, &mut new).await? {
        Inserted::New => new.row.id.clone(),
        Inserted::Before(id) => id,
        Inserted::OtherRequest => {
            let detail = "this idempotency key was used for a different request within the last 24 hours";
            return Err(ApiError::new(ErrorCode::IdempotencyConflict, detail));
        }
        Inserted::NoVolume(at) => {
            let msg = "there is no such volume; `warren volumes list` shows those of this owner";
            return Err(FieldError::at(&["volumes"], at, "name", msg).into());
        }
        Inserted::LimitReached(what) => {
            return Err(ApiError::new(ErrorCode::LimitReached, format!("the maximum number of {what} is reached")));
        }
    };
    let waiter = cx.changes.listen(vec![id.clone()]);
    if id == new.row.id {
        first_attempt(&cx, &new.row).await?;
        templates::wake(&cx, &new.row).await?;
    }
    let row = hold(&cx, &waiter, &id, deadline).await?;
    let gateway_auth = Some(grant(&cx, &caller, &origin, &id));
    Ok(Json(Created { sandbox: show::sandbox(row), gateway_auth }))
}

/// A checkpoint has an image and a disk size of its own.
fn not_with_checkpoint(request: &CreateSandbox) -> Result<(), ApiError> {
    let fields = [("docker_image", request.docker_image.is_some()), ("disk_size_gb", request.disk_size_gb.is_some())];
    match fields.iter().find(|(_, is_there)| *is_there) {
        Some((field, _)) => Err(FieldError::body(field, "must be absent: the checkpoint has its own").into()),
        None => Ok(()),
    }
}

/// Inserts the sandbox with what its image leads to now.
async fn insert(cx: &Context, caller: &Caller, image: &str, new: &mut NewSandbox) -> Result<Inserted, ApiError> {
    // A repeated request is the sandbox of the first, wherever its image leads now.
    if let Some(before) = cx.store.idempotency_before(new).await? {
        return Ok(before);
    }
    // What it leads to is not let go before the row is there, which needs it.
    let _turn = cx.builds.pins.read().await;
    if let Some(id) = &new.row.request.checkpoint_id {
        let (row, made) = restorable(cx, caller, id).await?;
        let request = &mut new.row.request;
        request.docker_image = Some(row.docker_image);
        request.disk_size_gb = Some(made.disk_size_bytes as f64 / f64::from(1u32 << 30));
        new.row.node_image = Some(checkpoint_image(&row.id, &made.digest));
        new.row.image_digest = Some(made.digest);
    } else if let Some(pinned) = images::resolve(cx, &caller.user, image).await? {
        (new.row.node_image, new.row.image_digest) = (Some(pinned.name), Some(pinned.digest));
    }
    Ok(cx.store.sandbox_insert(new).await?)
}

/// The first attempt runs inline, for latency; the reconciler is the safety net, and keeps the order while the node is full.
pub(super) async fn first_attempt(cx: &Context, row: &SandboxRow) -> Result<(), ApiError> {
    let _begun = cx.underway.begin(&row.id);
    let queue_up = cx.node_full.load(Ordering::Relaxed);
    if !queue_up && dispatch::create(cx, row).await? == dispatch::Offered::Full {
        cx.node_full.store(true, Ordering::Relaxed);
        cx.nudge.notify_one();
    }
    Ok(())
}

fn new_sandbox(
    cx: &Context,
    caller: &Caller,
    mut request: CreateSandbox,
    spec: SandboxSpec,
) -> Result<NewSandbox, ApiError> {
    let id = SandboxId::from_bits(random::bits()?);
    let key = request.idempotency_key.take();
    let whole = serde_json::to_vec(&request).map_err(|error| ApiError::internal(&error))?;
    let idempotency = key.map(|key| (key, cx.sealer.fingerprint(&whole)));
    let secrets = match spec.secrets.is_empty() {
        true => None,
        false => {
            let plain = serde_json::to_vec(&spec.secrets).map_err(|error| ApiError::internal(&error))?;
            Some(cx.sealer.seal(id.as_str(), &plain)?)
        }
    };
    request.secrets = request.secrets.as_ref().map(show::masked);
    let (user_id, team_id) = (caller.user.id.clone(), request.team_id.clone());
    let row = SandboxRow { secrets, ..SandboxRow::asked(id, user_id, team_id, request, spec.egress, now_ms()) };
    let quota = Quota { user_live_max: cx.config.sandboxes_per_user_max, key: caller.key_limits.clone() };
    Ok(NewSandbox { row, idempotency, key_hash: caller.key_hash.clone(), vcpus: spec.shape.vcpus, quota })
}

/// Waits until the sandbox runs or has ended, until its image is known to take long, or until the deadline.
pub(super) async fn hold(
    cx: &Context,
    waiter: &Waiter<'_>,
    id: &SandboxId,
    deadline: Instant,
) -> Result<SandboxRow, ApiError> {
    loop {
        let row = cx.store.sandbox_get(id).await?;
        let row = row.ok_or_else(|| ApiError::new(ErrorCode::NotFound, format!("no sandbox {id}")))?;
        let waits = matches!(row.status, Status::Pending | Status::Provisioning);
        if !waits || builds_long(cx, &row).await? || !waiter.changed(deadline).await {
            return Ok(row);
        }
    }
}

async fn builds_long(cx: &Context, row: &SandboxRow) -> Result<bool, ApiError> {
    let Some(build_id) = &row.image_build_id else { return Ok(false) };
    let since = cx.store.image_build_since_ms(build_id).await?;
    Ok(since.is_some_and(|since| now_ms().saturating_sub(since) >= IMAGE_BUILD_LONG_MS))
}
