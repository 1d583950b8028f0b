use super::ApiError;
use super::get::find;
use super::limits::TOKEN_LIFE_MS;
use super::origin::Origin;
use crate::auth::Caller;
use crate::clock::now_ms;
use crate::context::Context;
use axum::Json;
use axum::extract::{Path, State};
use std::sync::Arc;
use warren_model::SandboxId;
use warren_proto::http::{ErrorBody, GatewayAuth, Timestamp};

/// Prefix of the data plane on a listener that it shares with this API.
const GATEWAY_PREFIX: &str = "/gw";

/// Address and token of a sandbox's data plane. Also for one that has ended: the data plane then says how.
pub(super) fn grant(cx: &Context, caller: &Caller, origin: &Origin, id: &SandboxId) -> GatewayAuth {
    let expires_at_ms = now_ms() + TOKEN_LIFE_MS;
    let advertised = cx.node.info().gateway_url.map(|url| url.trim_end_matches('/').to_owned());
    GatewayAuth {
        gateway_url: advertised.unwrap_or_else(|| format!("{}{GATEWAY_PREFIX}", origin.0)),
        user_ns: caller.user.slug.clone(),
        job_id: id.to_string(),
        token: cx.node.token(id, expires_at_ms),
        expires_at: Timestamp::from_ms(expires_at_ms),
    }
}

/// Address and token of the sandbox's data plane.
#[utoipa::path(
    post, path = "/sandbox/{id}/auth", operation_id = "sandbox_auth", tag = "sandbox", params(("id" = String, Path)),
    responses((status = 200, body = GatewayAuth), (status = "default", body = ErrorBody))
)]
pub(super) async fn auth(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    origin: Origin,
    Path(id): Path<String>,
) -> Result<Json<GatewayAuth>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    Ok(Json(grant(&cx, &caller, &origin, &row.id)))
}
