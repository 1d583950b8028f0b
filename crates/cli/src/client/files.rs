use super::gateway::cut;
use super::{Gateway, GatewayError};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt as _};
use reqwest::multipart::{Form, Part};
use reqwest::{Body, Method};
use serde::Deserialize;
use std::io;

/// What the gateway says of a file that it took.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Uploaded {
    /// Path as asked for.
    pub(crate) path: String,
    /// Bytes.
    pub(crate) size: u64,
}

impl Gateway {
    /// Writes a file in the sandbox from a stream; memory stays flat whatever its size. `len` is in bytes.
    pub(crate) async fn upload<S>(&self, path: &str, content: S, len: Option<u64>) -> Result<Uploaded, GatewayError>
    where
        S: Stream<Item = io::Result<Bytes>> + Send + 'static,
    {
        let body = Body::wrap_stream(content);
        let part = match len {
            Some(len) => Part::stream_with_length(body, len),
            None => Part::stream(body),
        };
        let name = path.rsplit('/').next().unwrap_or("file").to_owned();
        let call = self
            .request(Method::POST, &["upload"])
            .query(&[("path", path), ("sandbox_id", self.sandbox_id())])
            .multipart(Form::new().part("file", part.file_name(name)));
        let response = self.send(call).await?;
        response.json().await.map_err(|error| GatewayError::BadAnswer { problem: super::error::chain(&error) })
    }

    /// Reads a file of the sandbox as a stream, with its length in bytes if the gateway says it.
    pub(crate) async fn download(
        &self,
        path: &str,
    ) -> Result<(Option<u64>, impl Stream<Item = Result<Bytes, GatewayError>> + use<>), GatewayError> {
        let call = self.request(Method::GET, &["download"]).query(&[("path", path), ("sandbox_id", self.sandbox_id())]);
        let response = self.send(call).await?;
        let len = response.content_length();
        Ok((len, response.bytes_stream().map_err(|error| cut(&error))))
    }
}
