//! `PATCH /images`: moves, renames and publishes tags. What they lead to stays where it is.

use super::ApiError;
use super::image_build::quota;
use super::parsed::Parsed;
use crate::auth::Caller;
use crate::context::Context;
use crate::images::{self, Change, Owner, Place, Refusal, Standing, decide};
use crate::store::{ImageChanges, ImageRow, StoreError};
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use warren_proto::http::{
    ErrorBody, FieldError, ImageCoordinate, ImageOwner, ImageUpdate, UpdateError, UpdateImages, UpdateImagesAnswer,
    UpdateResult, UpdateSet, UpdateSource, limits,
};

/// The one mode that there is.
const MODE: &str = "explicit";

/// A tag before a change and after it.
type Changed = (Standing, Standing);

/// Changes tags, in the order of the request; each for itself, later ones see what earlier ones did. `dryRun` only says what would be done.
#[utoipa::path(
    patch, path = "/images", operation_id = "owned_image_update", tag = "images", request_body = UpdateImages,
    responses((status = 200, body = UpdateImagesAnswer), (status = "default", body = ErrorBody))
)]
pub(super) async fn update(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<UpdateImages>,
) -> Result<Json<UpdateImagesAnswer>, ApiError> {
    check(&request)?;
    let mut sources = Vec::with_capacity(request.updates.len());
    for update in &request.updates {
        let place = place_of(&cx, &caller, &update.source).await?;
        let change = change(&cx, &caller, &update.set).await?;
        sources.push(place.and_then(|place| Ok((place, change?))));
    }
    let mut changes = cx.store.image_changes().await?;
    let mut results = Vec::with_capacity(sources.len());
    for (update, source) in request.updates.into_iter().zip(sources) {
        let outcome = match source {
            Ok((place, change)) => one(&cx, &caller, &mut changes, &place, &change).await?,
            Err(refusal) => Err(refusal),
        };
        results.push(result(update, outcome));
    }
    if !request.dry_run {
        changes.commit().await?;
    }
    let success = results.iter().all(|result| result.success);
    Ok(Json(UpdateImagesAnswer { success, dry_run: request.dry_run, results }))
}

fn check(request: &UpdateImages) -> Result<(), FieldError> {
    if request.mode.as_deref().is_some_and(|mode| mode != MODE) {
        return Err(FieldError::body("mode", MODE));
    }
    if request.updates.len() > limits::IMAGE_UPDATES_MAX {
        return Err(FieldError::body("updates", format!("at most {}", limits::IMAGE_UPDATES_MAX)));
    }
    for (index, update) in request.updates.iter().enumerate() {
        let UpdateSource { owner, name, tag, reference } = &update.source;
        let coordinate = [owner.is_some(), name.is_some(), tag.is_some()];
        if coordinate != [reference.is_none(); 3] {
            return Err(FieldError::at(&["updates"], index, "source", "either reference, or owner, name and tag"));
        }
    }
    Ok(())
}

/// Where the source is said to be.
async fn place_of(cx: &Context, caller: &Caller, source: &UpdateSource) -> Result<Result<Place, Refusal>, ApiError> {
    if let Some(reference) = &source.reference {
        let row = match images::find(cx, &caller.user, reference).await {
            Err(error) if error.is_refusal() => return Ok(Err(Refusal::new("invalid", error.text()))),
            row => row?,
        };
        let place = row.map(|row| Place { owner: row.owner, name: row.name, tag: row.tag });
        return Ok(place.ok_or_else(|| unknown(reference)));
    }
    let (name, tag) = (source.name.clone().unwrap_or_default(), source.tag.clone().unwrap_or_default());
    let owner = match &source.owner {
        Some(owner) => owner_of(cx, caller, owner).await?,
        None => Ok(Owner::User(caller.user.id.clone())),
    };
    Ok(owner.map(|owner| Place { owner, name, tag }))
}

async fn owner_of(cx: &Context, caller: &Caller, owner: &ImageOwner) -> Result<Result<Owner, Refusal>, ApiError> {
    match owner {
        ImageOwner::Personal => Ok(Ok(Owner::User(caller.user.id.clone()))),
        ImageOwner::Platform => Ok(Ok(Owner::Platform)),
        ImageOwner::Team { team_id } => match caller.in_team(cx, team_id).await {
            Ok(()) => Ok(Ok(Owner::Team(team_id.clone()))),
            Err(error) if error.is_refusal() => Ok(Err(Refusal::new("forbidden", error.text()))),
            Err(error) => Err(error),
        },
    }
}

async fn change(cx: &Context, caller: &Caller, set: &UpdateSet) -> Result<Result<Change, Refusal>, ApiError> {
    let owner = match &set.owner {
        Some(owner) => match owner_of(cx, caller, owner).await? {
            Ok(owner) => Some(owner),
            Err(refusal) => return Ok(Err(refusal)),
        },
        None => None,
    };
    Ok(Ok(Change { name: set.name.clone(), tag: set.tag.clone(), owner, visibility: set.visibility }))
}

async fn one(
    cx: &Context,
    caller: &Caller,
    changes: &mut ImageChanges,
    place: &Place,
    change: &Change,
) -> Result<Result<Changed, Refusal>, ApiError> {
    let shown = || format!("{}:{}", place.name, place.tag);
    let Some(row) = changes.get(&place.owner.key(), &place.name, &place.tag).await? else {
        return Ok(Err(unknown(&shown())));
    };
    if !images::readable(cx, &caller.user, &row).await? {
        return Ok(Err(unknown(&shown())));
    }
    if !may_change(cx, caller, &row).await? {
        return Ok(Err(Refusal::new("forbidden", format!("{}: not yours to change", shown()))));
    }
    let before = Standing { owner: row.owner.clone(), name: row.name, tag: row.tag, visibility: row.visibility };
    let after = match decide(&before, change, caller.user.is_admin) {
        Ok(after) => after,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let is_moved = (&before.owner, &before.name, &before.tag) != (&after.owner, &after.name, &after.tag);
    if is_moved && changes.is_building(&row.id).await? {
        let message = format!("{}: a build of it is under way; wait for it or cancel it", shown());
        return Ok(Err(Refusal::new("build_in_progress", message)));
    }
    if before.owner != after.owner
        && let Some(full) = changes.full(&after.owner, &caller.user.id, quota(cx, caller, &after.owner)).await?
    {
        return Ok(Err(Refusal::new("limit_reached", full.to_string())));
    }
    match changes.put(&row.id, &after).await {
        Ok(()) => Ok(Ok((before, after))),
        Err(StoreError::Taken(_)) => {
            let message = format!("{}:{} exists already", after.name, after.tag);
            Ok(Err(Refusal::new("conflict", message)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether the caller may change or delete a tag: it is his own, he made it for his team, or he administers the team or the server.
pub(super) async fn may_change(cx: &Context, caller: &Caller, row: &ImageRow) -> Result<bool, StoreError> {
    match &row.owner {
        _ if caller.user.is_admin => Ok(true),
        Owner::User(id) => Ok(*id == caller.user.id),
        Owner::Team(id) => {
            let role = cx.store.role(id, &caller.user.id).await?;
            Ok(role.is_some_and(|role| role == "admin" || row.creator_id == caller.user.id))
        }
        Owner::Platform => Ok(false),
    }
}

fn unknown(shown: &str) -> Refusal {
    Refusal::new("not_found", format!("{shown}: no such image, or it is not yours to use"))
}

fn result(update: ImageUpdate, outcome: Result<Changed, Refusal>) -> UpdateResult {
    let source = update.source;
    match outcome {
        Ok((before, after)) => UpdateResult {
            source,
            success: true,
            before: Some(coordinate(before)),
            after: Some(coordinate(after)),
            error: None,
        },
        Err(Refusal { code, message }) => UpdateResult {
            source,
            success: false,
            before: None,
            after: None,
            error: Some(UpdateError { code: code.to_owned(), message }),
        },
    }
}

fn coordinate(standing: Standing) -> ImageCoordinate {
    ImageCoordinate {
        owner: standing.owner.shown(),
        name: standing.name,
        tag: standing.tag,
        visibility: standing.visibility,
    }
}
