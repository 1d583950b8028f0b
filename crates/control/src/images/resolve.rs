//! What a reference leads to: an owned image, an image of the platform, or a registry.

use super::{Owner, pin_name};
use crate::api::ApiError;
use crate::context::Context;
use crate::store::{ImageRow, StoreError, User};
use warren_model::reference::{Reference, Source, Version};
use warren_proto::http::{ErrorCode, Visibility};

/// What the node is to run for a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// The name that it has there.
    pub(crate) name: String,
    /// Its digest.
    pub(crate) digest: String,
}

/// A place where a tag may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) owner: Owner,
    pub(crate) name: String,
    pub(crate) tag: String,
}

/// What a sandbox of `reference` runs for this user; `None` leaves the reference to the node, which asks its registry.
///
/// In this order: `prime/...`, a legacy owner prefix, an image of the platform, a registry's host, Docker Hub.
pub(crate) async fn resolve(cx: &Context, user: &User, text: &str) -> Result<Option<Pinned>, ApiError> {
    let reference = parse(cx, text).await?;
    let is_owned = matches!(reference.source(), Source::Owned { .. });
    let refused = |detail: String| ApiError::new(ErrorCode::ImageNotFound, detail);
    let missing = || refused(format!("{text}: no such image, or it is not yours to use; `images list` shows yours"));
    let row = match place(cx, &reference).await? {
        Some(place) => cx.store.image_get(&place.owner.key(), &place.name, &place.tag).await?,
        None if is_owned => return Err(missing()),
        None => return Ok(None),
    };
    let visible = match row {
        Some(row) if readable(cx, user, &row).await? => Some(row),
        _ => None,
    };
    match visible {
        Some(ImageRow { digest: Some(digest), .. }) => Ok(Some(Pinned { name: pin_name(&digest), digest })),
        Some(_) if is_owned => Err(refused(format!("{text}: its build has not ended well yet; see `images list`"))),
        None if is_owned => Err(missing()),
        _ => Ok(None),
    }
}

/// The tag that a user names in a call about images: by its full reference, or `name:tag` of his own or the platform's.
pub(crate) async fn find(cx: &Context, user: &User, text: &str) -> Result<Option<ImageRow>, ApiError> {
    let reference = parse(cx, text).await?;
    if let (Source::DockerHub, Version::Tag(tag)) = (reference.source(), reference.version()) {
        let own = Owner::User(user.id.clone()).key();
        if let Some(row) = cx.store.image_get(&own, plain(&reference), tag).await? {
            return Ok(Some(row));
        }
    }
    let Some(place) = place(cx, &reference).await? else { return Ok(None) };
    let row = cx.store.image_get(&place.owner.key(), &place.name, &place.tag).await?;
    match row {
        Some(row) if readable(cx, user, &row).await? => Ok(Some(row)),
        _ => Ok(None),
    }
}

/// Whether the user may run it: it is public, his own, of a team of his, or he administers the server.
pub(crate) async fn readable(cx: &Context, user: &User, row: &ImageRow) -> Result<bool, StoreError> {
    if row.visibility == Visibility::Public || user.is_admin {
        return Ok(true);
    }
    match &row.owner {
        Owner::User(id) => Ok(*id == user.id),
        Owner::Team(id) => Ok(cx.store.role(id, &user.id).await?.is_some()),
        Owner::Platform => Ok(true),
    }
}

/// Where the tag of a reference would be; `None` if only a registry can have it.
async fn place(cx: &Context, reference: &Reference) -> Result<Option<Place>, StoreError> {
    let Version::Tag(tag) = reference.version() else { return Ok(None) };
    let (owner, name) = match reference.source() {
        Source::Owned { owner } => match owner_of(cx, owner).await? {
            Some(owner) => (owner, reference.repository()),
            None => return Ok(None),
        },
        Source::DockerHub => (Owner::Platform, plain(reference)),
        Source::Registry(_) => return Ok(None),
    };
    Ok(Some(Place { owner, name: name.to_owned(), tag: tag.clone() }))
}

/// A user by slug or id, a team by `team-<id>` or slug.
async fn owner_of(cx: &Context, word: &str) -> Result<Option<Owner>, StoreError> {
    if let Some(id) = word.strip_prefix("team-")
        && cx.store.team_exists(id).await?
    {
        return Ok(Some(Owner::Team(id.to_owned())));
    }
    if let Some(id) = cx.store.user_named(word).await? {
        return Ok(Some(Owner::User(id)));
    }
    Ok(cx.store.team_named(word).await?.map(Owner::Team))
}

/// Reads a reference, its first word being an owner where a user has that id.
async fn parse(cx: &Context, text: &str) -> Result<Reference, ApiError> {
    let user = match text.split_once('/') {
        Some((first, _)) => cx.store.user_get(first).await?.map(|user| user.id),
        None => None,
    };
    Reference::parse_with_users(text, |word| user.as_deref() == Some(word))
        .map_err(|bad| ApiError::new(ErrorCode::ImageBadReference, bad.to_string()))
}

/// The name as users write it.
fn plain(reference: &Reference) -> &str {
    reference.repository().strip_prefix("library/").unwrap_or(reference.repository())
}
