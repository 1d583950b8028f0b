//! The bytes on the node that tags lead to: named before a tag leads to them, let go after the last one.

use super::fault::Fault;
use crate::clock::now_ms;
use crate::context::Context;
use crate::images::pin_name;
use crate::store::{BuildRow, StoreError};
use warren_proto::node::{ImageError, ImageRecord};

/// Lets the build's tag lead to `record`. A build that was ended meanwhile changes nothing.
pub(super) async fn publish(cx: &Context, build: &BuildRow, record: &ImageRecord) -> Result<(), Fault> {
    let _turn = cx.builds.pins.lock().await;
    // The row comes first: whatever happens after it, a sweep finds the name.
    cx.store.artifact_put(&record.digest, record.size_bytes, now_ms()).await?;
    cx.node.pin_image(&record.digest, &pin_name(&record.digest)).await?;
    cx.store.build_complete(build, &record.digest, now_ms()).await?;
    Ok(())
}

/// Lets go what no tag leads to and no sandbox runs.
pub(super) async fn sweep(cx: &Context) -> Result<(), StoreError> {
    let _turn = cx.builds.pins.lock().await;
    for digest in cx.store.artifacts_unused(pin_name).await? {
        match cx.node.remove_image(&pin_name(&digest)).await {
            Ok(_) | Err(ImageError { code: "not_found", .. }) => cx.store.artifact_drop(&digest).await?,
            Err(error) => tracing::warn!(%error, "image not let go; will try again"),
        }
    }
    Ok(())
}
