//! Files on their way out of the guest: the result of a build, the Dockerfile.

use super::guest::Guest;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::{Method, Response};
use std::path::Path;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use warren_proto::guest::paths;
use warren_proto::node::limits::BUILD_ARCHIVE_LEN_MAX;

/// Copies a file of the guest to `into`.
pub(super) async fn fetch(guest: &Guest, path: &str, into: &Path) -> Result<(), String> {
    let write = |e: std::io::Error| format!("write {}: {e}", into.display());
    let response = download(guest, path).await?;
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

/// A small file of the guest; `None` if it is larger than `len_max` bytes.
pub(super) async fn read(guest: &Guest, path: &str, len_max: usize) -> Result<Option<Vec<u8>>, String> {
    let body = Limited::new(download(guest, path).await?.into_body(), len_max);
    match body.collect().await {
        Ok(body) => Ok(Some(body.to_bytes().to_vec())),
        Err(error) if error.is::<LengthLimitError>() => Ok(None),
        Err(error) => Err(format!("the builder is gone: {error}")),
    }
}

async fn download(guest: &Guest, path: &str) -> Result<Response<Incoming>, String> {
    let nothing = Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync();
    guest.send(Method::GET, &format!("{}?path={path}", paths::DOWNLOAD), &[], nothing).await
}
