use super::limits::STATUS_HOLD_MS;
use super::parsed::Parsed;
use super::{ApiError, show};
use crate::auth::Caller;
use crate::context::Context;
use crate::store::SandboxRow;
use axum::Json;
use axum::extract::State;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use warren_model::{SandboxId, Status};
use warren_proto::http::{ErrorBody, StatusAnswer, StatusError, StatusErrorCode, StatusQuery};

/// Status of many sandboxes; held for a moment while none of them has got anywhere.
#[utoipa::path(
    post, path = "/sandbox/status:batchGet", operation_id = "sandbox_status_batch", tag = "sandbox",
    request_body = StatusQuery,
    responses((status = 200, body = StatusAnswer), (status = "default", body = ErrorBody))
)]
pub(super) async fn status(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(query): Parsed<StatusQuery>,
) -> Result<Json<StatusAnswer>, ApiError> {
    query.check()?;
    let deadline = Instant::now() + Duration::from_millis(STATUS_HOLD_MS);
    let ids: Vec<SandboxId> = query.sandbox_ids.iter().filter_map(|id| SandboxId::parse(id).ok()).collect();
    let waiter = cx.changes.listen(ids.clone());
    let mut rows = cx.store.sandboxes_get(&ids).await?;
    let all_wait = rows.len() == query.sandbox_ids.len() && rows.iter().all(waits);
    if all_wait && waiter.changed(deadline).await {
        rows = cx.store.sandboxes_get(&ids).await?;
    }
    let mut by_id: HashMap<String, SandboxRow> = rows.into_iter().map(|row| (row.id.to_string(), row)).collect();
    let mut answer = StatusAnswer::default();
    for sandbox_id in query.sandbox_ids {
        match by_id.remove(&sandbox_id) {
            Some(row) if caller.may_use(&cx, &row).await? => answer.statuses.push(show::snapshot(row)),
            Some(_) => answer.errors.push(StatusError {
                sandbox_id,
                code: StatusErrorCode::Forbidden,
                message: "the sandbox belongs to somebody else".to_owned(),
            }),
            None => answer.errors.push(StatusError {
                sandbox_id,
                code: StatusErrorCode::NotFound,
                message: "no such sandbox".to_owned(),
            }),
        }
    }
    Ok(Json(answer))
}

fn waits(row: &SandboxRow) -> bool {
    matches!(row.status, Status::Pending | Status::Provisioning)
}
