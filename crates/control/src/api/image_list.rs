use super::ApiError;
use super::image_show::items;
use crate::auth::Caller;
use crate::context::Context;
use crate::images::Owner;
use crate::store::Page;
use axum::Json;
use axum::extract::{RawQuery, State};
use std::sync::Arc;
use warren_proto::http::{ErrorBody, FieldError, ImageList, ImageListQuery};

/// A page of the caller's images, of a team's, or of the platform's, newest first.
#[utoipa::path(
    get, path = "/images", operation_id = "owned_image_list", tag = "images", params(ImageListQuery),
    responses((status = 200, body = ImageList), (status = "default", body = ErrorBody))
)]
pub(super) async fn list(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<ImageList>, ApiError> {
    let pairs = form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes());
    let query = ImageListQuery::from_pairs(pairs)?;
    let owner = match (query.platform, query.team_id) {
        (true, Some(_)) => return Err(FieldError::query("teamId", "images of the platform belong to no team").into()),
        (true, None) => Owner::Platform,
        (false, Some(team_id)) => {
            caller.in_team(&cx, &team_id).await?;
            Owner::Team(team_id)
        }
        (false, None) => Owner::User(caller.user.id.clone()),
    };
    let prefix = super::image_show::reference(&caller, &owner, "", "");
    let page = Page { offset: query.offset, limit: query.limit };
    let search = query.search.as_deref();
    let (rows, total_count) = cx.store.images_list(&owner.key(), prefix.trim_end_matches(':'), search, page).await?;
    let data = rows.iter().flat_map(|(row, build)| items(&caller, row, build.as_ref())).collect();
    Ok(Json(ImageList { data, total_count, offset: query.offset, limit: query.limit }))
}
