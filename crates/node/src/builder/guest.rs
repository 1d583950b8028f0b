//! Requests to the agent of a guest, by way of its shim. What comes back is hostile.

use crate::shim_client::{ProxyBody, ShimClient};
use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Method, Request, Response};
use std::path::Path;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use warren_proto::guest::paths;

/// Bytes that are read of a file at once.
const PIECE_LEN: usize = 256 << 10;
/// Largest answer that is not a file, bytes.
const ANSWER_LEN_MAX: usize = 64 << 10;
/// Bytes of a refusal that are shown.
const REFUSAL_SHOWN_MAX: usize = 500;

/// One guest.
pub(crate) struct Guest(ShimClient);

impl Guest {
    pub(crate) fn new(shim: ShimClient) -> Self {
        Self(shim)
    }

    /// Writes a small file.
    pub(super) async fn put(&self, path: &str, content: Bytes) -> Result<(), String> {
        let len = content.len() as u64;
        let body = Full::new(content).map_err(|never| match never {}).boxed_unsync();
        self.put_body(path, len, body).await
    }

    /// Writes a file of the host, piece by piece.
    pub(super) async fn put_file(&self, path: &str, from: &Path) -> Result<(), String> {
        let broken = |e: std::io::Error| format!("read {}: {e}", from.display());
        let file = File::open(from).await.map_err(broken)?;
        let len = file.metadata().await.map_err(broken)?.len();
        let pieces = stream::try_unfold(file, |mut file| async {
            let mut piece = vec![0; PIECE_LEN];
            let read = file.read(&mut piece).await?;
            piece.truncate(read);
            Ok::<_, std::io::Error>((read > 0).then(|| (Bytes::from(piece), file)))
        });
        let body = StreamBody::new(pieces.map_ok(Frame::data).map_err(Into::into)).boxed_unsync();
        self.put_body(path, len, body).await
    }

    /// Writes what a body of `len` bytes brings.
    pub(super) async fn put_body(&self, path: &str, len: u64, body: ProxyBody) -> Result<(), String> {
        let target = format!("{}?path={path}", paths::FILES);
        let response = self.send(Method::PUT, &target, &[("content-length", &len.to_string())], body).await?;
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Sends, and answers a success; a refusal is told in its own words.
    pub(super) async fn send(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: ProxyBody,
    ) -> Result<Response<Incoming>, String> {
        let mut request =
            Request::builder().method(method).uri(format!("http://shim{}{target}", warren_proto::shim::paths::GUEST));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body).map_err(|e| e.to_string())?;
        let response = self.0.send(request).await.map_err(|e| format!("the builder is gone: {e}"))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_LEN_MAX).collect().await;
        let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
        let shown: String = text.chars().filter(|c| !c.is_control()).take(REFUSAL_SHOWN_MAX).collect();
        Err(format!("the builder refused {target}: {status} {shown}"))
    }
}
