//! The public API as a client sees it: REST calls, the gateway of a sandbox, command sessions, files.

mod checkpoints;
mod error;
mod files;
mod gateway;
mod images;
mod input;
mod registry;
mod sandboxes;
mod session;
mod snapshots;
mod templates;
mod tls;
mod volumes;

pub(crate) use error::{ApiError, GatewayError};
pub(crate) use gateway::Gateway;
pub(crate) use input::InputStream;
pub(crate) use session::Session;
pub(crate) use snapshots::ForkOf;

use crate::settings::Settings;
use reqwest::{Method, RequestBuilder, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Longest wait for a connection.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the answer of an ordinary call; the server bounds each of its handlers below that.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(120);
/// Time between two TCP probes of a silent connection.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// Largest JSON answer that is read, bytes.
const ANSWER_LEN_MAX: usize = 64 << 20;

/// One server, with the caller's key.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    http: reqwest::Client,
    base: Url,
    key: Option<String>,
}

impl Api {
    /// Prepares calls; reaches nobody yet.
    pub(crate) fn new(settings: &Settings) -> Result<Self, ApiError> {
        let bad_url = |problem: String| ApiError::Setup { problem };
        let base = Url::parse(&format!("{}{}", settings.url, warren_proto::http::API_PREFIX))
            .map_err(|error| bad_url(error.to_string()))?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::config(settings.ca_cert.as_deref())?)
            .http1_only()
            .connect_timeout(CONNECT_WAIT_MAX)
            .tcp_keepalive(TCP_KEEPALIVE)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("warren/", env!("CARGO_PKG_VERSION")));
        if settings.is_local() {
            // A proxy of the environment cannot reach this machine's own loopback.
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| ApiError::Setup { problem: error::chain(&error) })?;
        Ok(Self { http, base, key: settings.api_key.clone() })
    }

    /// The URL of a path; every segment is encoded.
    fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    fn request(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        let request = self.http.request(method, self.url(segments)).timeout(ANSWER_WAIT_MAX);
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    async fn get<T: DeserializeOwned>(&self, segments: &[&str]) -> Result<T, ApiError> {
        self.answer(self.request(Method::GET, segments)).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        segments: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ApiError> {
        self.answer(self.request(method, segments).json(body)).await
    }

    /// Sends, and reads the answer as JSON.
    async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ApiError> {
        let server = self.server();
        let response = request.send().await.map_err(|error| ApiError::transport(&server, &error))?;
        let status = response.status();
        let body =
            body_of(response).await.map_err(|problem| ApiError::Interrupted { server: server.clone(), problem })?;
        if status.is_success() {
            let text = if body.is_empty() { &b"{}"[..] } else { &body[..] };
            serde_json::from_slice(text).map_err(|error| ApiError::BadAnswer { server, problem: error.to_string() })
        } else if status == reqwest::StatusCode::UNAUTHORIZED {
            Err(ApiError::Unauthorized { server, with_key: self.key.is_some() })
        } else {
            Err(ApiError::refused(status.as_u16(), &body))
        }
    }

    /// The server for messages: without path or credentials.
    fn server(&self) -> String {
        self.base.origin().ascii_serialization()
    }
}

/// The whole body, if it is not larger than an answer may be.
async fn body_of(mut response: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error::chain(&error))? {
        if body.len() + chunk.len() > ANSWER_LEN_MAX {
            return Err(format!("the answer is larger than {ANSWER_LEN_MAX} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
