//! The result of a build on its way out of the guest.

use super::guest::Guest;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Method;
use std::path::Path;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use warren_proto::guest::paths;
use warren_proto::node::limits::BUILD_ARCHIVE_LEN_MAX;

/// Copies a file of the guest to `into`.
pub(super) async fn fetch(guest: &Guest, path: &str, into: &Path) -> Result<(), String> {
    let write = |e: std::io::Error| format!("write {}: {e}", into.display());
    let nothing = Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync();
    let response = guest.send(Method::GET, &format!("{}?path={path}", paths::DOWNLOAD), &[], nothing).await?;
    let mut file = File::create(into).await.map_err(write)?;
    let mut body = response.into_body();
    let mut len = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| format!("the builder is gone: {e}"))?;
        let Ok(data) = frame.into_data() else { continue };
        len += data.len() as u64;
        if len > BUILD_ARCHIVE_LEN_MAX {
            return Err(format!("the result is larger than {BUILD_ARCHIVE_LEN_MAX} bytes"));
        }
        file.write_all(&data).await.map_err(write)?;
    }
    // Writes are behind until they are flushed.
    file.flush().await.map_err(write)
}
