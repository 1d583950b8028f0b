use super::{ApiError, show};
use crate::auth::Caller;
use crate::context::Context;
use crate::store::{Owner, Page, Selection};
use axum::Json;
use axum::extract::{RawQuery, State};
use std::sync::Arc;
use warren_proto::http::{ErrorBody, ListQuery, SandboxList};

/// A page of the caller's sandboxes, or of a team's, newest first.
#[utoipa::path(
    get, path = "/sandbox", operation_id = "sandbox_list", tag = "sandbox", params(ListQuery),
    responses((status = 200, body = SandboxList), (status = "default", body = ErrorBody))
)]
pub(super) async fn list(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<SandboxList>, ApiError> {
    let pairs = form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes());
    let query = ListQuery::from_pairs(pairs)?;
    if let Some(team_id) = &query.team_id {
        caller.in_team(&cx, team_id).await?;
    }
    let offset = u64::from(query.page - 1) * u64::from(query.per_page);
    let page = Page { offset, limit: u64::from(query.per_page) };
    let (rows, total) = match selection(&caller, &query) {
        Some(selection) => cx.store.sandboxes_list(&selection, page).await?,
        None => (Vec::new(), 0),
    };
    Ok(Json(SandboxList {
        has_next: offset + (rows.len() as u64) < total,
        sandboxes: rows.into_iter().map(show::sandbox).collect(),
        total,
        page: query.page,
        per_page: query.per_page,
    }))
}

/// What the query selects for this caller; `None` is nothing. The caller is known to be in the team.
fn selection(caller: &Caller, query: &ListQuery) -> Option<Selection> {
    let user_id = match (&query.team_id, &query.user_id) {
        (Some(_), user_id) => user_id.clone(),
        (None, None) => Some(caller.user.id.clone()),
        (None, Some(user_id)) if *user_id == caller.user.id || caller.user.is_admin => Some(user_id.clone()),
        (None, Some(_)) => return None,
    };
    Some(Selection {
        owner: query.team_id.clone().map_or(Owner::Personal, Owner::Team),
        user_id,
        status: query.status,
        labels: query.labels.iter().cloned().collect(),
        active_only: query.is_active,
    })
}
