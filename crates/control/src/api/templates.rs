//! App templates: asked for, shown, made anew, deleted.

use super::ApiError;
use super::account::value;
use super::parsed::Parsed;
use crate::auth::Caller;
use crate::clock::now_ms;
use crate::context::Context;
use crate::random;
use crate::store::TemplateRow;
use crate::templates;
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use std::sync::Arc;
use warren_model::SandboxSpec;
use warren_proto::http::{
    CreateSandbox, DISK_GB_DEFAULT, ErrorBody, ErrorCode, FieldError, NewTemplate, StartCommand, Template,
    TemplateState, Templates, Timestamp,
};

/// Time within which a template must be ready, if the client does not say, seconds.
const READY_WITHIN_DEFAULT_SECS: u64 = 300;
/// Longest such time, seconds.
const READY_WITHIN_MAX_SECS: u64 = 3600;
/// Templates of one user.
const TEMPLATES_PER_USER_MAX: usize = 50;
/// Templates of one server: each holds memory and disk.
const TEMPLATES_MAX: usize = 1000;

/// Has a template made: its start command runs once, and every later create of the same image, start command and size goes on from there.
#[utoipa::path(
    post, path = "/templates", operation_id = "template_create", tag = "templates", request_body = NewTemplate,
    responses((status = 200, body = Template), (status = "default", body = ErrorBody))
)]
pub(super) async fn create(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<NewTemplate>,
) -> Result<Json<Template>, ApiError> {
    if let Some(team_id) = &request.team_id {
        caller.in_team(&cx, team_id).await?;
    }
    let all = cx.store.templates_all().await?;
    let own = all.iter().filter(|row| row.user_id == caller.user.id).count();
    if all.len() >= TEMPLATES_MAX || own >= TEMPLATES_PER_USER_MAX {
        return Err(ApiError::new(ErrorCode::LimitReached, "the maximum number of templates is reached"));
    }
    let row = new_row(&caller, request)?;
    cx.store.template_insert(&row).await?;
    cx.templates_nudge.notify_one();
    Ok(Json(show(row)))
}

/// The caller's templates, or a team's.
#[utoipa::path(
    get, path = "/templates", operation_id = "template_list", tag = "templates", params(("teamId" = Option<String>, Query)),
    responses((status = 200, body = Templates), (status = "default", body = ErrorBody))
)]
pub(super) async fn list(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Templates>, ApiError> {
    let team_id = value(query.as_deref(), "teamId");
    if let Some(team_id) = &team_id {
        caller.in_team(&cx, team_id).await?;
    }
    let of_caller = |row: &TemplateRow| match &team_id {
        Some(_) => row.team_id == team_id,
        None => row.team_id.is_none() && row.user_id == caller.user.id,
    };
    let rows = cx.store.templates_all().await?;
    Ok(Json(Templates { templates: rows.into_iter().filter(of_caller).map(show).collect() }))
}

/// One template.
#[utoipa::path(
    get, path = "/templates/{id}", operation_id = "template_get", tag = "templates", params(("id" = String, Path)),
    responses((status = 200, body = Template), (status = "default", body = ErrorBody))
)]
pub(super) async fn get(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Template>, ApiError> {
    Ok(Json(show(find(&cx, &caller, &id).await?)))
}

/// Has a template made anew, for instance of what its image's tag leads to now. The one that there is serves until then.
#[utoipa::path(
    post, path = "/templates/{id}/rebuild", operation_id = "template_rebuild", tag = "templates", params(("id" = String, Path)),
    responses((status = 200, body = Template), (status = "default", body = ErrorBody))
)]
pub(super) async fn rebuild(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Template>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    if row.state == TemplateState::Making {
        return Ok(Json(show(row)));
    }
    Ok(Json(show(templates::rebuild(&cx, row).await?)))
}

/// Deletes a template. Sandboxes that went on from it stay.
#[utoipa::path(
    delete, path = "/templates/{id}", operation_id = "template_delete", tag = "templates", params(("id" = String, Path)),
    responses((status = 200, body = Template), (status = "default", body = ErrorBody))
)]
pub(super) async fn delete(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Template>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    templates::delete(&cx, row.clone()).await?;
    Ok(Json(show(TemplateRow { state: TemplateState::Deleting, ..row })))
}

async fn find(cx: &Context, caller: &Caller, id: &str) -> Result<TemplateRow, ApiError> {
    let unknown = || ApiError::new(ErrorCode::NotFound, format!("no template {}", id.escape_debug()));
    let row =
        cx.store.template_get(id).await?.filter(|row| row.state != TemplateState::Deleting).ok_or_else(unknown)?;
    match caller.may_use_of(cx, &row.user_id, row.team_id.as_deref()).await? {
        true => Ok(row),
        false => Err(ApiError::new(ErrorCode::Forbidden, format!("template {id} belongs to somebody else"))),
    }
}

fn new_row(caller: &Caller, request: NewTemplate) -> Result<TemplateRow, ApiError> {
    let absent = CreateSandbox::default();
    let create = CreateSandbox {
        name: request.name.clone().unwrap_or_else(|| request.docker_image.clone()),
        docker_image: Some(request.docker_image),
        start_command: request.start_command,
        cpu_cores: request.cpu_cores.unwrap_or(absent.cpu_cores),
        memory_gb: request.memory_gb.unwrap_or(absent.memory_gb),
        disk_size_gb: request.disk_size_gb,
        environment_vars: request.environment_vars,
        network_allowlist: request.network_allowlist,
        network_denylist: request.network_denylist,
        team_id: request.team_id.clone(),
        ..absent
    };
    SandboxSpec::try_from(&create)?;
    let ready =
        request.ready.map(|command| std::iter::once(command.executable).chain(command.args).collect::<Vec<_>>());
    if ready.as_ref().is_some_and(|argv| argv.iter().any(|word| word.contains('\0')) || argv[0].is_empty()) {
        return Err(FieldError::body("ready", "executable must not be empty, and no word may contain NUL").into());
    }
    let within = request.ready_within_secs.unwrap_or(READY_WITHIN_DEFAULT_SECS);
    if !(1..=READY_WITHIN_MAX_SECS).contains(&within) {
        return Err(FieldError::body("ready_within_secs", format!("must be from 1 to {READY_WITHIN_MAX_SECS}")).into());
    }
    let now = now_ms();
    Ok(TemplateRow {
        id: random::id('t')?,
        user_id: caller.user.id.clone(),
        team_id: request.team_id,
        name: create.name.clone(),
        request: create,
        ready,
        ready_within_ms: within * 1000,
        state: TemplateState::Making,
        sandbox_id: None,
        snapshot_id: None,
        image_digest: None,
        error: None,
        created_at_ms: now,
        updated_at_ms: now,
        used_at_ms: now,
    })
}

fn show(row: TemplateRow) -> Template {
    let request = row.request;
    let mut ready = row.ready.unwrap_or_default().into_iter();
    Template {
        id: row.id,
        name: row.name,
        state: row.state,
        docker_image: request.docker_image.unwrap_or_default(),
        image_digest: row.image_digest,
        start_command: request.start_command,
        ready: ready.next().map(|executable| StartCommand { executable, args: ready.collect() }),
        cpu_cores: request.cpu_cores,
        memory_gb: request.memory_gb,
        disk_size_gb: request.disk_size_gb.unwrap_or(DISK_GB_DEFAULT),
        environment_vars: request.environment_vars,
        error: row.error,
        user_id: row.user_id,
        team_id: row.team_id,
        created_at: Timestamp::from_ms(row.created_at_ms),
        used_at: Timestamp::from_ms(row.used_at_ms),
    }
}
