use super::ApiError;
use super::get::find;
use super::limits::{BULK_DELETE_AT_ONCE_MAX, BULK_DELETE_PAGE, DELETE_HOLD_MS};
use super::parsed::Parsed;
use crate::auth::Caller;
use crate::clock::now_ms;
use crate::context::Context;
use crate::reconcile::{deleted, dispatch, driver};
use crate::store::{Durability, Owner, Page, SandboxRow, Selection, Updated};
use axum::Json;
use axum::extract::{Path, State};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use warren_model::SandboxId;
use warren_proto::http::{
    BulkDelete, BulkDeleteAnswer, BulkDeleteFailure, Deleted, ErrorBody, ErrorCode, FieldError, limits,
};

/// Deletes a sandbox; one that has ended before is deleted already.
#[utoipa::path(
    delete, path = "/sandbox/{id}", operation_id = "sandbox_delete", tag = "sandbox", params(("id" = String, Path)),
    responses((status = 200, body = Deleted), (status = "default", body = ErrorBody))
)]
pub(super) async fn delete(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Deleted>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    let status = intend(&cx, &row).await?.status;
    clear(&cx, vec![row.id]).await;
    Ok(Json(Deleted { id, status: status.as_str().to_owned() }))
}

/// Deletes many: by their ids, or all active ones that a selection has.
#[utoipa::path(
    delete, path = "/sandbox", operation_id = "sandbox_delete_many", tag = "sandbox", request_body = BulkDelete,
    responses((status = 200, body = BulkDeleteAnswer), (status = "default", body = ErrorBody))
)]
pub(super) async fn delete_many(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<BulkDelete>,
) -> Result<Json<BulkDeleteAnswer>, ApiError> {
    let mut failed = Vec::new();
    let rows = match &request.sandbox_ids {
        Some(ids) => by_id(&cx, &caller, ids, &mut failed).await?,
        None => selected(&cx, &caller, &request).await?,
    };
    let mut succeeded = Vec::with_capacity(rows.len());
    for row in &rows {
        match intend(&cx, row).await {
            Ok(_) => succeeded.push(row.id.clone()),
            Err(_) => failed.push(failure(row.id.as_str(), "internal error; the server's log has the cause")),
        }
    }
    clear(&cx, succeeded.clone()).await;
    let message = format!("{} deleted, {} not deleted", succeeded.len(), failed.len());
    Ok(Json(BulkDeleteAnswer { succeeded: succeeded.iter().map(ToString::to_string).collect(), failed, message }))
}

/// The durable intent; from here on the sandbox is deleted whatever happens.
pub(super) async fn intend(cx: &Context, row: &SandboxRow) -> Result<SandboxRow, ApiError> {
    let now = now_ms();
    match cx.store.sandbox_update(&row.id, Durability::Power, now, |row| deleted(row, now)).await? {
        Updated::Changed(row) => {
            cx.changes.tell(&row.id);
            Ok(row)
        }
        Updated::Same(row) => Ok(row),
        Updated::Missing => Err(ApiError::new(ErrorCode::NotFound, format!("no sandbox {}", row.id))),
    }
}

/// Waits, bounded, until nothing of them is left on the node. The work goes on after that, and the reconciler repeats what fails.
async fn clear(cx: &Arc<Context>, ids: Vec<SandboxId>) {
    let at_once = Arc::new(Semaphore::new(BULK_DELETE_AT_ONCE_MAX));
    let tasks: Vec<_> = ids
        .into_iter()
        .map(|id| {
            let (cx2, at_once) = (cx.clone(), at_once.clone());
            cx.tasks.spawn(async move {
                // The semaphore is never closed.
                let _turn = at_once.acquire().await;
                let _begun = cx2.underway.begin(&id);
                if let Err(error) = dispatch::terminate(&cx2, &id).await {
                    tracing::error!(sandbox = %id, error = driver::chain(&error), "end not stored; the next plan repeats it");
                }
            })
        })
        .collect();
    let all = async {
        for task in tasks {
            // A panic is in the log already.
            let _ = task.await;
        }
    };
    let _ = timeout(Duration::from_millis(DELETE_HOLD_MS), all).await;
}

async fn by_id(
    cx: &Context,
    caller: &Caller,
    ids: &[String],
    failed: &mut Vec<BulkDeleteFailure>,
) -> Result<Vec<SandboxRow>, ApiError> {
    if ids.len() > limits::BULK_DELETE_MAX {
        return Err(FieldError::body("sandbox_ids", format!("at most {}", limits::BULK_DELETE_MAX)).into());
    }
    let mut rows = Vec::with_capacity(ids.len());
    for id in ids.iter().collect::<BTreeSet<_>>() {
        match find(cx, caller, id).await {
            Ok(row) => rows.push(row),
            Err(error) if error.is_refusal() => failed.push(failure(id, &error.text())),
            Err(error) => return Err(error),
        }
    }
    Ok(rows)
}

async fn selected(cx: &Context, caller: &Caller, request: &BulkDelete) -> Result<Vec<SandboxRow>, ApiError> {
    let labels: BTreeSet<String> = request.labels.iter().flatten().cloned().collect();
    if labels.is_empty() && request.user_id.is_none() && !request.all_users {
        let msg = "give sandbox_ids, labels, user_id or all_users: nothing is deleted by an empty selection";
        return Err(FieldError::body("sandbox_ids", msg).into());
    }
    if let Some(team_id) = &request.team_id {
        caller.in_team(cx, team_id).await?;
    }
    let others = request.all_users || request.user_id.as_ref().is_some_and(|id| *id != caller.user.id);
    if others && !caller.administers(cx, request.team_id.as_deref()).await? {
        let detail = "only an administrator may delete sandboxes of others";
        return Err(ApiError::new(ErrorCode::Forbidden, detail));
    }
    let owner = match (&request.team_id, request.all_users) {
        (Some(team_id), _) => Owner::Team(team_id.clone()),
        (None, true) => Owner::Anyone,
        (None, false) => Owner::Personal,
    };
    let own = || (!request.all_users).then(|| caller.user.id.clone());
    let user_id = request.user_id.clone().or_else(own);
    let selection = Selection { owner, user_id, status: None, labels, active_only: true };
    let mut rows = Vec::new();
    loop {
        let page = Page { offset: rows.len() as u64, limit: BULK_DELETE_PAGE };
        let (some, total) = cx.store.sandboxes_list(&selection, page).await?;
        let end = some.is_empty();
        rows.extend(some);
        if end || rows.len() as u64 >= total {
            return Ok(rows);
        }
    }
}

fn failure(id: &str, error: &str) -> BulkDeleteFailure {
    BulkDeleteFailure { sandbox_id: id.to_owned(), error: error.to_owned() }
}
