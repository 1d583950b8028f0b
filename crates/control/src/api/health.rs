use super::ApiError;
use crate::context::Context;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use warren_proto::http::{ErrorBody, Health};

/// Whether store and node answer. Needs no key.
#[utoipa::path(
    get, path = "/healthz", operation_id = "health", tag = "server", security(()),
    responses((status = 200, body = Health), (status = "default", body = ErrorBody))
)]
pub(super) async fn health(State(cx): State<Arc<Context>>) -> Result<Json<Health>, ApiError> {
    cx.store.ping().await?;
    let info = cx.node.info();
    Ok(Json(Health { status: "ok".to_owned(), accel: info.accel, sandboxes: info.sandboxes }))
}
