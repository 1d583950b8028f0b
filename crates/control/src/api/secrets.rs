//! A person's or a team's own secrets. Their values go in and never come out of this API.

use super::ApiError;
use super::account::value;
use super::parsed::Parsed;
use crate::auth::Caller;
use crate::clock::now_ms;
use crate::context::Context;
use crate::random;
use crate::store::SecretRow;
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;
use warren_proto::http::{
    ChangeSecret, ErrorBody, ErrorCode, FieldError, NewSecret, Secret, SecretAnswer, Secrets, Timestamp,
};

/// Longest name, bytes.
const NAME_LEN_MAX: usize = 256;
/// Longest description, bytes.
const DESCRIPTION_LEN_MAX: usize = 4096;
/// Longest value, bytes.
const VALUE_LEN_MAX: usize = 1 << 20;

/// All secrets of the caller, or of a team.
#[utoipa::path(
    get, path = "/secrets/", operation_id = "secret_list", tag = "secrets", params(("teamId" = Option<String>, Query)),
    responses((status = 200, body = Secrets), (status = "default", body = ErrorBody))
)]
pub(super) async fn list(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Secrets>, ApiError> {
    let scope = caller.scope(&cx, value(query.as_deref(), "teamId").as_deref()).await?;
    let rows = cx.store.secrets_list(&scope).await?;
    Ok(Json(Secrets { data: rows.into_iter().map(show).collect() }))
}

/// Makes a secret; the name is unique in its scope.
#[utoipa::path(
    post, path = "/secrets/", operation_id = "secret_create", tag = "secrets", request_body = NewSecret,
    responses((status = 200, body = SecretAnswer), (status = "default", body = ErrorBody))
)]
pub(super) async fn create(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<NewSecret>,
) -> Result<Json<SecretAnswer>, ApiError> {
    let scope = caller.scope(&cx, request.team_id.as_deref()).await?;
    let id = random::id('k')?;
    let now = now_ms();
    let row = SecretRow {
        name: name(request.name)?,
        description: description(request.description)?,
        is_file: request.is_file,
        sealed: cx.sealer.seal(&id, content(&request.value, request.is_file)?.as_bytes())?,
        id,
        scope,
        created_at_ms: now,
        updated_at_ms: now,
    };
    if !cx.store.secret_insert(&row).await? {
        return Err(ApiError::new(ErrorCode::LimitReached, "the maximum number of secrets is reached"));
    }
    answer(row)
}

/// One secret.
#[utoipa::path(
    get, path = "/secrets/{id}", operation_id = "secret_get", tag = "secrets",
    params(("id" = String, Path), ("teamId" = Option<String>, Query)),
    responses((status = 200, body = SecretAnswer), (status = "default", body = ErrorBody))
)]
pub(super) async fn get(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<SecretAnswer>, ApiError> {
    answer(find(&cx, &caller, &id, query.as_deref()).await?)
}

/// Changes name, value or description.
#[utoipa::path(
    patch, path = "/secrets/{id}", operation_id = "secret_update", tag = "secrets",
    params(("id" = String, Path), ("teamId" = Option<String>, Query)), request_body = ChangeSecret,
    responses((status = 200, body = SecretAnswer), (status = "default", body = ErrorBody))
)]
pub(super) async fn update(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    Parsed(request): Parsed<ChangeSecret>,
) -> Result<Json<SecretAnswer>, ApiError> {
    let mut row = find(&cx, &caller, &id, query.as_deref()).await?;
    if let Some(new) = request.name {
        row.name = name(new)?;
    }
    if let Some(new) = request.value {
        row.sealed = cx.sealer.seal(&row.id, content(&new, row.is_file)?.as_bytes())?;
    }
    if request.description.is_some() {
        row.description = description(request.description)?;
    }
    row.updated_at_ms = now_ms();
    if cx.store.secret_update(&row).await? { answer(row) } else { Err(unknown()) }
}

/// Deletes a secret.
#[utoipa::path(
    delete, path = "/secrets/{id}", operation_id = "secret_delete", tag = "secrets",
    params(("id" = String, Path), ("teamId" = Option<String>, Query)),
    responses((status = 200, body = SecretAnswer), (status = "default", body = ErrorBody))
)]
pub(super) async fn delete(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<SecretAnswer>, ApiError> {
    let row = find(&cx, &caller, &id, query.as_deref()).await?;
    if cx.store.secret_delete(&row.scope, &row.id).await? { answer(row) } else { Err(unknown()) }
}

async fn find(cx: &Context, caller: &Caller, id: &str, query: Option<&str>) -> Result<SecretRow, ApiError> {
    let scope = caller.scope(cx, value(query, "teamId").as_deref()).await?;
    cx.store.secret_get(&scope, id).await?.ok_or_else(unknown)
}

fn unknown() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "no such secret")
}

fn answer(row: SecretRow) -> Result<Json<SecretAnswer>, ApiError> {
    Ok(Json(SecretAnswer { data: show(row) }))
}

fn show(row: SecretRow) -> Secret {
    Secret {
        id: row.id,
        name: row.name,
        description: row.description,
        is_file: row.is_file,
        created_at: Timestamp::from_ms(row.created_at_ms),
        updated_at: Timestamp::from_ms(row.updated_at_ms),
    }
}

fn name(text: String) -> Result<String, ApiError> {
    let good = text.len() <= NAME_LEN_MAX
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    let refused = || FieldError::body("name", "A-Z first, then A-Z, 0-9 and _, at most 256 characters");
    if good { Ok(text) } else { Err(refused().into()) }
}

fn description(text: Option<String>) -> Result<Option<String>, ApiError> {
    let good = text.as_ref().is_none_or(|text| text.len() <= DESCRIPTION_LEN_MAX);
    let refused = || FieldError::body("description", format!("at most {DESCRIPTION_LEN_MAX} bytes"));
    if good { Ok(text.filter(|text| !text.is_empty())) } else { Err(refused().into()) }
}

fn content(value: &str, is_file: bool) -> Result<&str, ApiError> {
    let refuse = |msg: String| Err(FieldError::body("value", msg).into());
    match value.len() {
        0 => refuse("must not be empty".to_owned()),
        n if n > VALUE_LEN_MAX => refuse(format!("at most {VALUE_LEN_MAX} bytes")),
        _ if is_file && STANDARD.decode(value).is_err() => refuse("a file's value must be base64".to_owned()),
        _ => Ok(value),
    }
}
