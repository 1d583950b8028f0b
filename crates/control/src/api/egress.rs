use super::get::find;
use super::limits::EGRESS_HOLD_MS;
use super::parsed::Parsed;
use super::{ApiError, show};
use crate::auth::Caller;
use crate::clock::now_ms;
use crate::context::Context;
use crate::reconcile::dispatch;
use crate::store::{Durability, SandboxRow, Updated};
use axum::Json;
use axum::extract::{Path, State};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use warren_model::Status;
use warren_proto::http::{EgressLists, EgressStatus, ErrorBody, ErrorCode};

/// The policy that is wanted, and whether it is in force.
#[utoipa::path(
    get, path = "/sandbox/{id}/egress-policy", operation_id = "egress_get", tag = "sandbox", params(("id" = String, Path)),
    responses((status = 200, body = EgressStatus), (status = "default", body = ErrorBody))
)]
pub(super) async fn get(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<EgressStatus>, ApiError> {
    Ok(Json(show::egress(&find(&cx, &caller, &id).await?)))
}

/// Replaces the policy. Answers when it is in force, or after a short while; flows that are open are not cut.
#[utoipa::path(
    put, path = "/sandbox/{id}/egress-policy", operation_id = "egress_put", tag = "sandbox", params(("id" = String, Path)),
    request_body = EgressLists,
    responses((status = 200, body = EgressStatus), (status = "default", body = ErrorBody))
)]
pub(super) async fn put(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
    Parsed(lists): Parsed<EgressLists>,
) -> Result<Json<EgressStatus>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    let policy = lists.to_policy(["allowlist", "denylist"])?;
    let change = |row: &mut SandboxRow| {
        let live = row.is_live();
        if live {
            row.egress = policy.clone();
            row.egress_generation += 1;
        }
        live
    };
    let Updated::Changed(row) = cx.store.sandbox_update(&row.id, Durability::Power, now_ms(), change).await? else {
        return Err(ApiError::new(ErrorCode::NotRunning, format!("sandbox {} has ended", row.id)));
    };
    if row.status == Status::Running {
        // Not running yet: the reconciler applies it after the start.
        apply(&cx, row.clone()).await;
    }
    let row = cx.store.sandbox_get(&row.id).await?.unwrap_or(row);
    Ok(Json(show::egress(&row)))
}

async fn apply(cx: &Arc<Context>, row: SandboxRow) {
    let task = cx.tasks.spawn({
        let cx = cx.clone();
        async move { dispatch::set_egress(&cx, &row).await }
    });
    let in_time = timeout(Duration::from_millis(EGRESS_HOLD_MS), task).await;
    if !matches!(in_time, Ok(Ok(Ok(())))) {
        cx.nudge.notify_one();
    }
}
