use super::error::chain;
use super::{ApiError, GatewayError, body_of};
use reqwest::{Method, RequestBuilder, Response, Url};
use warren_proto::guest::command_session::ConnectError;
use warren_proto::http::GatewayAuth;

/// The way to exec and files of one sandbox, with a token of its own.
#[derive(Debug, Clone)]
pub(crate) struct Gateway {
    http: reqwest::Client,
    base: Url,
    token: String,
    sandbox_id: String,
}

impl Gateway {
    pub(super) fn new(http: reqwest::Client, sandbox_id: &str, auth: GatewayAuth) -> Result<Self, ApiError> {
        let bad = |problem: String| ApiError::BadAnswer { server: "the server".to_owned(), problem };
        let mut base = Url::parse(&auth.gateway_url).map_err(|error| bad(format!("gateway URL: {error}")))?;
        base.path_segments_mut()
            .map_err(|()| bad("gateway URL without a host".to_owned()))?
            .pop_if_empty()
            .extend([&auth.user_ns, &auth.job_id]);
        Ok(Self { http, base, token: auth.token, sandbox_id: sandbox_id.to_owned() })
    }

    /// The sandbox.
    pub(super) fn sandbox_id(&self) -> &str {
        &self.sandbox_id
    }

    pub(super) fn request(&self, method: Method, operation: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.extend(operation);
        }
        self.http.request(method, url).bearer_auth(&self.token)
    }

    /// Sends; an answer with an error status becomes an error.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, GatewayError> {
        let gateway = self.base.origin().ascii_serialization();
        let response = request.send().await.map_err(|error| ApiError::transport(&gateway, &error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = body_of(response).await.map_err(|problem| GatewayError::Cut { problem })?;
        Err(match serde_json::from_slice::<ConnectError>(&body) {
            Ok(error) => GatewayError::Session(error),
            Err(_) => ApiError::refused(status.as_u16(), &body).into(),
        })
    }
}

/// An error in the middle of an answer.
pub(super) fn cut(error: &reqwest::Error) -> GatewayError {
    GatewayError::Cut { problem: chain(error) }
}
