use super::checkpoints::refused;
use super::parsed::Parsed;
use super::{ApiError, checkpoint_show as show, get};
use crate::auth::Caller;
use crate::checkpoints::{driver, while_freezing};
use crate::clock::now_ms;
use crate::context::Context;
use crate::random;
use crate::store::{NewPublish, Publish};
use axum::Json;
use axum::extract::{Path, State};
use std::sync::Arc;
use warren_model::{CheckpointId, Status};
use warren_proto::http::{Checkpoint, ErrorBody, ErrorCode, PublishVolume};

/// Freezes what a sandbox has made of a volume; answers once nothing that happens to the sandbox can harm it any more. It is the volume's head
/// once it is durable, a little later.
#[utoipa::path(
    post, path = "/sandbox/{id}/volumes/{name}/publish", operation_id = "volume_publish", tag = "volumes",
    params(("id" = String, Path), ("name" = String, Path)), request_body = PublishVolume,
    responses((status = 200, body = Checkpoint), (status = "default", body = ErrorBody))
)]
pub(super) async fn publish(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path((id, volume)): Path<(String, String)>,
    Parsed(request): Parsed<PublishVolume>,
) -> Result<Json<Checkpoint>, ApiError> {
    while_freezing(&cx, &id, freeze(&cx, &caller, &id, &volume, request.force)).await
}

async fn freeze(
    cx: &Arc<Context>,
    caller: &Caller,
    id: &str,
    volume: &str,
    force: bool,
) -> Result<Json<Checkpoint>, ApiError> {
    let sandbox = get::find(cx, caller, id).await?;
    if !sandbox.is_live() || sandbox.status != Status::Running {
        let detail = format!("sandbox {} is {}: only a running one can publish", sandbox.id, sandbox.status.as_str());
        return Err(ApiError::new(ErrorCode::NotRunning, detail));
    }
    let id = CheckpointId::parse(&random::id('k')?).map_err(|error| ApiError::internal(&error))?;
    // The intent comes first: whatever happens after it, a restart finds out what became of it.
    let new = NewPublish { id: &id, sandbox: &sandbox, volume, force, now_ms: now_ms() };
    let (row, position) = match cx.store.publish_insert(&new).await? {
        Publish::New(row, position) => (row, position),
        refusal => return Err(why_not(volume, &refusal)),
    };
    match cx.node.publish_volume(&sandbox.id, position, &id).await {
        Ok(()) => {
            cx.tasks.spawn(driver::follow(cx.clone(), id));
            Ok(Json(show::checkpoint(*row)))
        }
        Err(error) => Err(refused(cx, &id, error).await?),
    }
}

fn why_not(volume: &str, refusal: &Publish) -> ApiError {
    let volume = volume.escape_debug();
    let (code, detail) = match refusal {
        Publish::ReadOnly => (ErrorCode::VolumeReadOnly, format!("the sandbox may only read volume {volume}")),
        Publish::Pending(id) => {
            let detail = format!("publish {id} of volume {volume} is not over: wait until it is DURABLE or FAILED");
            (ErrorCode::VolumePublishPending, detail)
        }
        Publish::HeadMoved(head) => {
            let detail = format!(
                "volume {volume} was published by another sandbox meanwhile, as {head}: start from that, or put this in its place with force"
            );
            (ErrorCode::VolumeHeadMoved, detail)
        }
        Publish::NotAttached | Publish::New(..) => (ErrorCode::NotFound, format!("the sandbox has no volume {volume}")),
    };
    ApiError::new(code, detail)
}
