//! The bytes on the node that tags lead to: named before a tag leads to them, let go after the last one.

use super::fault::Fault;
use crate::clock::now_ms;
use crate::context::Context;
use crate::images::pin_name;
use crate::store::{BuildRow, StoreError};
use warren_proto::node::{ImageError, ImageRecord};

/// Lets the build's tag lead to `record`. A build that was ended meanwhile changes nothing.
pub(super) async fn publish(cx: &Context, build: &BuildRow, record: &ImageRecord) -> Result<(), Fault> {
    let _turn = cx.builds.pins.read().await;
    // The row comes first: whatever happens after it, a sweep finds the name.
    cx.store.artifact_put(&record.digest, record.size_bytes, now_ms()).await?;
    cx.node.pin_image(&record.digest, &pin_name(&record.digest)).await?;
    cx.store.build_complete(build, &record.digest, now_ms()).await?;
    Ok(())
}

/// Lets go what no tag leads to and no sandbox runs.
pub(super) async fn sweep(cx: &Context) -> Result<(), StoreError> {
    if cx.store.artifacts_unused(pin_name).await?.is_empty() {
        return Ok(());
    }
    let _turn = cx.builds.pins.write().await;
    // Asked again: a tag or a sandbox may have come to need one meanwhile.
    for digest in cx.store.artifacts_unused(pin_name).await? {
        match cx.node.remove_image(&pin_name(&digest)).await {
            Ok(_) | Err(ImageError { code: "not_found", .. }) => cx.store.artifact_drop(&digest).await?,
            Err(error) => tracing::warn!(%error, "image not let go; will try again"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::Owner;
    use crate::{App, Config};
    use axum::body::Body;
    use http::{Request, StatusCode};
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::{sleep, timeout};
    use tower::ServiceExt;
    use warren_testkit::node::SimNode;

    /// How long something must wait to be said to wait.
    const WAITS: Duration = Duration::from_millis(300);
    const DIGEST: &str = "sha256:5151";

    async fn post(app: &App, path: &str, body: Value) -> StatusCode {
        let request = Request::post(path).header("host", "warren.test").header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {}", app.owner_key()));
        app.router().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap().status()
    }

    /// A server with the image `prime/owner/app:v1`; answers the id of the tag.
    async fn with_image(dir: &std::path::Path, node: SimNode) -> (App, String) {
        let app = App::open(dir, Arc::new(node), Config::default()).await.unwrap();
        let asked = post(&app, "/api/v1/images/build", json!({"source_image": "ghcr.io/o/app:v1"})).await;
        assert_eq!(asked, StatusCode::OK);
        let owner = Owner::User(app.context.store.user_named("owner").await.unwrap().unwrap()).key();
        let built = async {
            loop {
                let row = app.context.store.image_get(&owner, "app", "v1").await.unwrap().unwrap();
                if row.digest.is_some() {
                    return row.id;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        let id = timeout(Duration::from_secs(30), built).await.unwrap();
        (app, id)
    }

    #[tokio::test]
    async fn a_create_waits_for_bytes_that_go_and_then_finds_none() {
        let dir = tempfile::tempdir().unwrap();
        let (app, id) = with_image(dir.path(), SimNode::default()).await;
        let cx = &app.context;
        let turn = cx.builds.pins.write().await;
        let body = json!({"name": "a", "docker_image": "prime/owner/app:v1"});
        let create = post(&app, "/api/v1/sandbox", body);
        tokio::pin!(create);
        assert!(timeout(WAITS, &mut create).await.is_err());
        cx.store.image_delete(&id, 1).await.unwrap();
        drop(turn);
        assert_eq!(create.await, StatusCode::NOT_FOUND);
        app.shutdown().await;
    }

    #[tokio::test]
    async fn bytes_do_not_go_while_a_sandbox_comes_to_need_them() {
        let (dir, node) = (tempfile::tempdir().unwrap(), SimNode::default());
        let (app, id) = with_image(dir.path(), node.clone()).await;
        let cx = &app.context;
        let turn = cx.builds.pins.read().await;
        cx.store.image_delete(&id, 1).await.unwrap();
        assert!(timeout(WAITS, sweep(cx)).await.is_err());
        assert!(node.image_names().contains(&pin_name(DIGEST)));
        drop(turn);
        sweep(cx).await.unwrap();
        assert!(!node.image_names().contains(&pin_name(DIGEST)));
        app.shutdown().await;
    }
}
