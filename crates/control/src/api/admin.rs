//! Users and teams: for administrators of this server.

use super::ApiError;
use super::parsed::Parsed;
use crate::auth::{Caller, hash_key};
use crate::clock::now_ms;
use crate::context::Context;
use crate::random;
use crate::store::{Membership, User};
use axum::Json;
use axum::extract::{Path, State};
use std::sync::Arc;
use warren_proto::http::{
    ErrorBody, ErrorCode, FieldError, Member, NewMember, NewTeam, NewUser, Team, Timestamp, UserCreated,
};

/// Longest slug, bytes.
const SLUG_LEN_MAX: usize = 39;
/// Longest name and mail address, bytes.
const TEXT_LEN_MAX: usize = 256;
/// What a member of a team can be.
const ROLES: [&str; 2] = ["admin", "member"];

/// Makes a user with one key, which is shown this once.
#[utoipa::path(
    post, path = "/admin/users", operation_id = "user_create", tag = "admin", request_body = NewUser,
    responses((status = 200, body = UserCreated), (status = "default", body = ErrorBody))
)]
pub(super) async fn user_create(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<NewUser>,
) -> Result<Json<UserCreated>, ApiError> {
    caller.admin()?;
    let user = User {
        id: random::id('u')?,
        name: text("name", request.name, &request.slug)?,
        email: text("email", request.email, &format!("{}@localhost", request.slug))?,
        slug: slug(request.slug)?,
        is_admin: request.admin,
    };
    let api_key = random::api_key()?;
    cx.store.user_insert(&user, &hash_key(&api_key), now_ms()).await?;
    Ok(Json(UserCreated { user_id: user.id, api_key }))
}

/// Makes a team; the caller is its first administrator.
#[utoipa::path(
    post, path = "/admin/teams", operation_id = "team_create", tag = "admin", request_body = NewTeam,
    responses((status = 200, body = Team), (status = "default", body = ErrorBody))
)]
pub(super) async fn team_create(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<NewTeam>,
) -> Result<Json<Team>, ApiError> {
    caller.admin()?;
    let team = Membership {
        team_id: random::id('c')?,
        name: text("name", request.name, &request.slug)?,
        slug: slug(request.slug)?,
        role: "admin".to_owned(),
        created_at_ms: now_ms(),
    };
    cx.store.team_insert(&team, &caller.user.id).await?;
    Ok(Json(Team {
        team_id: team.team_id,
        name: team.name,
        slug: team.slug,
        role: team.role,
        created_at: Timestamp::from_ms(team.created_at_ms),
    }))
}

/// Adds a member to a team or changes the role.
#[utoipa::path(
    post, path = "/teams/{id}/members", operation_id = "member_put", tag = "admin", params(("id" = String, Path)),
    request_body = NewMember,
    responses((status = 200, body = Member), (status = "default", body = ErrorBody))
)]
pub(super) async fn member_put(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
    Parsed(request): Parsed<NewMember>,
) -> Result<Json<Member>, ApiError> {
    caller.in_team(&cx, &id).await?;
    if !caller.administers(&cx, Some(&id)).await? {
        return Err(ApiError::new(ErrorCode::Forbidden, "only an administrator of the team may do this"));
    }
    if !ROLES.contains(&request.role.as_str()) {
        return Err(FieldError::body("role", format!("one of {}", ROLES.join(", "))).into());
    }
    let user = cx.store.user_get(&request.user_id).await?;
    let user = user.ok_or_else(|| ApiError::new(ErrorCode::NotFound, "no such user"))?;
    let now = now_ms();
    cx.store.member_put(&id, &user.id, &request.role, now).await?;
    Ok(Json(Member {
        user_id: user.id,
        user_name: user.name,
        user_email: user.email,
        role: request.role,
        joined_at: Timestamp::from_ms(now),
    }))
}

fn slug(text: String) -> Result<String, ApiError> {
    let good = (1..=SLUG_LEN_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-');
    let refused = || FieldError::body("slug", format!("1 to {SLUG_LEN_MAX} characters of a-z, 0-9 and -, no - first"));
    if good { Ok(text) } else { Err(refused().into()) }
}

fn text(field: &str, given: Option<String>, default: &str) -> Result<String, ApiError> {
    let text = given.filter(|text| !text.trim().is_empty()).unwrap_or_else(|| default.to_owned());
    let good = text.len() <= TEXT_LEN_MAX && !text.chars().any(char::is_control);
    let refused = || FieldError::body(field, format!("at most {TEXT_LEN_MAX} bytes without control characters"));
    if good { Ok(text) } else { Err(refused().into()) }
}
