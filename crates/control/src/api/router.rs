use super::bound::bounded;
use super::{
    ApiError, account, admin, batch, checkpoint_delete, checkpoints, create, delete, egress, fork, gateway, get,
    health, image_build, image_builds, image_delete, image_list, image_update, image_upload, images, jobs, list, login,
    registries, secrets, snapshots, templates, turn, volume, volume_publish,
};
use crate::context::Context;
use axum::Json;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, delete as http_delete, get as http_get};
use std::sync::Arc;
use utoipa::Modify;
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use warren_proto::http::{API_PREFIX, ErrorCode};

/// Words that share a path level with sandbox ids and belong to functions that this server does not have: they win over ids for all
/// methods.
const NOT_OFFERED: [&str; 4] = [
    "/sandbox/networks",
    "/sandbox/networks/{*rest}",
    "/sandbox/{id}/ssh-session",
    "/sandbox/{id}/ssh-session/{session}",
];

/// Where `prime login` sends its user.
const LOGIN_PAGE: &str = "/dashboard/tokens/challenge";

/// The whole API, bounded, with answers for what it does not have.
pub(crate) fn router(cx: Arc<Context>) -> axum::Router {
    let (router, api) = described().split_for_parts();
    let api = Arc::new(complete(api));
    let mut router = router.route("/openapi.json", http_get(move || async move { Json(api.as_ref().clone()) }));
    router = router.route(LOGIN_PAGE, http_get(login::page));
    // Forms of one call that the description cannot tell: see `image_delete`.
    router = router
        .route(&format!("{API_PREFIX}/images/{{name}}/{{tag}}/{{*rest}}"), http_delete(image_delete::delete_longer))
        .route(&format!("{API_PREFIX}/images/build/{{id}}"), http_delete(image_delete::delete_named_build));
    for path in NOT_OFFERED {
        router = router.route(&format!("{API_PREFIX}{path}"), any(not_offered));
    }
    router
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(from_fn_with_state(cx.clone(), bounded))
        .with_state(cx)
}

/// The description of the API in OpenAPI 3.1, as `GET /openapi.json` serves it.
pub fn openapi() -> OpenApi {
    complete(described().split_for_parts().1)
}

fn described() -> OpenApiRouter<Arc<Context>> {
    let api = OpenApiRouter::new()
        .routes(routes!(login::generate))
        .routes(routes!(login::status))
        .routes(routes!(login::approve))
        .routes(routes!(secrets::list, secrets::create))
        .routes(routes!(secrets::get, secrets::update, secrets::delete))
        .routes(routes!(account::whoami))
        .routes(routes!(account::teams))
        .routes(routes!(account::members, admin::member_put))
        .routes(routes!(account::wallet))
        .routes(routes!(admin::user_create))
        .routes(routes!(admin::team_create))
        .routes(routes!(create::create, list::list, delete::delete_many))
        .routes(routes!(volume::create, volume::list))
        .routes(routes!(volume::get, volume::delete))
        .routes(routes!(volume_publish::publish))
        .routes(routes!(get::get, delete::delete))
        .routes(routes!(get::logs))
        .routes(routes!(get::error_context))
        .routes(routes!(gateway::auth))
        .routes(routes!(snapshots::create, snapshots::list_of_sandbox))
        .routes(routes!(snapshots::list))
        .routes(routes!(snapshots::get, snapshots::delete))
        .routes(routes!(fork::fork))
        .routes(routes!(fork::fork_snapshot))
        .routes(routes!(turn::reset))
        .routes(routes!(turn::pause))
        .routes(routes!(turn::resume))
        .routes(routes!(templates::create, templates::list))
        .routes(routes!(templates::get, templates::delete))
        .routes(routes!(templates::rebuild))
        .routes(routes!(egress::get, egress::put))
        .routes(routes!(batch::status))
        .routes(routes!(checkpoints::create, checkpoints::list, checkpoint_delete::delete_all))
        .routes(routes!(checkpoints::get_one, checkpoint_delete::delete))
        .routes(routes!(checkpoints::batch))
        .routes(routes!(jobs::status))
        .routes(routes!(images::pull))
        .routes(routes!(images::import))
        .routes(routes!(images::list, images::remove))
        .routes(routes!(images::gc))
        .routes(routes!(images::builds))
        .routes(routes!(registries::list, registries::put, registries::remove))
        .routes(routes!(registries::check_image))
        .routes(routes!(registries::list_all))
        .routes(routes!(registries::check_docker_image))
        .routes(routes!(image_list::list, image_update::update))
        .routes(routes!(image_delete::delete))
        .routes(routes!(image_build::build, image_builds::list))
        .routes(routes!(image_builds::get))
        .routes(routes!(image_builds::logs))
        .routes(routes!(image_builds::cancel))
        .routes(routes!(image_builds::drop_cache))
        .routes(routes!(image_upload::context))
        .routes(routes!(image_upload::start));
    OpenApiRouter::new().routes(routes!(health::health)).nest(API_PREFIX, api)
}

fn complete(mut api: OpenApi) -> OpenApi {
    api.info.title = "Warren".to_owned();
    api.info.version = env!("CARGO_PKG_VERSION").to_owned();
    api.info.description = Some("Sandboxes from OCI images, each a microVM with its own kernel.".to_owned());
    api.info.license = None;
    api.info.contact = None;
    ApiKey.modify(&mut api);
    api
}

struct ApiKey;

impl Modify for ApiKey {
    fn modify(&self, api: &mut OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        api.components.get_or_insert_default().add_security_scheme("api_key", scheme);
        api.security = Some(vec![SecurityRequirement::new("api_key", Vec::<String>::new())]);
    }
}

async fn not_found() -> ApiError {
    ApiError::new(ErrorCode::RouteNotFound, "no such path; GET /openapi.json lists all")
}

async fn method_not_allowed() -> ApiError {
    ApiError::new(ErrorCode::MethodNotAllowed, "this path does not take this method; see GET /openapi.json")
}

async fn not_offered() -> ApiError {
    ApiError::new(ErrorCode::NotOffered, "this server does not offer this function")
}
