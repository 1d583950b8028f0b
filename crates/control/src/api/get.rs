use super::limits::REFRESH_HOLD_MS;
use super::{ApiError, show};
use crate::auth::Caller;
use crate::context::Context;
use crate::reconcile::dispatch;
use crate::store::SandboxRow;
use axum::Json;
use axum::extract::{Path, State};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use warren_model::{SandboxId, Status};
use warren_proto::http::{ErrorBody, ErrorCode, ErrorContext, Logs, Sandbox};

/// The sandbox of that id, if the caller may use it.
pub(super) async fn find(cx: &Context, caller: &Caller, id: &str) -> Result<SandboxRow, ApiError> {
    let unknown = || ApiError::new(ErrorCode::NotFound, format!("no sandbox {}", id.escape_debug()));
    let parsed = SandboxId::parse(id).map_err(|_| unknown())?;
    let row = cx.store.sandbox_get(&parsed).await?.ok_or_else(unknown)?;
    if !caller.may_use(cx, &row).await? {
        return Err(ApiError::new(ErrorCode::Forbidden, format!("sandbox {parsed} belongs to somebody else")));
    }
    Ok(row)
}

/// One sandbox, also for 7 days after its end.
#[utoipa::path(
    get, path = "/sandbox/{id}", operation_id = "sandbox_get", tag = "sandbox", params(("id" = String, Path)),
    responses((status = 200, body = Sandbox), (status = "default", body = ErrorBody))
)]
pub(super) async fn get(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Sandbox>, ApiError> {
    Ok(Json(show::sandbox(find(&cx, &caller, &id).await?)))
}

/// Output of the start command, and boot messages if the machine did not start.
#[utoipa::path(
    get, path = "/sandbox/{id}/logs", operation_id = "sandbox_logs", tag = "sandbox", params(("id" = String, Path)),
    responses((status = 200, body = Logs), (status = "default", body = ErrorBody))
)]
pub(super) async fn logs(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Logs>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    // The node knows more than the store until it forgets the sandbox; without it, what was kept at the end must do.
    let logs = match cx.node.logs(&row.id).await {
        Ok(logs) if !logs.is_empty() => logs,
        _ => row.logs.unwrap_or_default(),
    };
    Ok(Json(Logs { logs }))
}

/// What happened to a sandbox, for a client that met a vague fault; also after its end.
#[utoipa::path(
    get, path = "/sandbox/{id}/error-context", operation_id = "sandbox_error_context", tag = "sandbox",
    params(("id" = String, Path)),
    responses((status = 200, body = ErrorContext), (status = "default", body = ErrorBody))
)]
pub(super) async fn error_context(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<ErrorContext>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    if row.status != Status::Running {
        return Ok(Json(show::error_context(row)));
    }
    // The guest knows best, if it answers: the fault that the client asks about may be a moment old.
    let asking = cx.tasks.spawn({
        let (cx, id) = (cx.clone(), row.id.clone());
        async move { dispatch::refresh(&cx, &id).await }
    });
    match timeout(Duration::from_millis(REFRESH_HOLD_MS), asking).await {
        Ok(Ok(refreshed)) => refreshed?,
        Ok(Err(panic)) => return Err(ApiError::internal(&panic)),
        Err(_) => tracing::debug!(sandbox = %row.id, "guest did not answer in time; the store must do"),
    }
    Ok(Json(show::error_context(find(&cx, &caller, &id).await?)))
}
