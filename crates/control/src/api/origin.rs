use super::ApiError;
use crate::context::Context;
use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;
use std::sync::Arc;
use warren_proto::http::ErrorCode;

/// Request extension that the listener puts on requests which came over TLS.
#[derive(Debug, Clone, Copy)]
pub struct OverTls;

/// The URL by which the client came, `http(s)://host[:port]`, for links back to this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin(pub(crate) String);

impl FromRequestParts<Arc<Context>> for Origin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, cx: &Arc<Context>) -> Result<Self, ApiError> {
        let tls = parts.extensions.get::<OverTls>().is_some()
            || (cx.config.trust_forwarded_proto && forwarded_tls(&parts.headers));
        // HTTP/2 carries the host in the request line, HTTP/1.1 in a header.
        let host = match parts.uri.authority() {
            Some(authority) => Some(authority.clone()),
            None => parts.headers.get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok()),
        };
        let usable = host.filter(|host| !host.host().is_empty() && !host.as_str().contains('@'));
        let host =
            usable.ok_or_else(|| ApiError::new(ErrorCode::RouteNotFound, "the Host header is missing or malformed"))?;
        let scheme = if tls { "https" } else { "http" };
        Ok(Origin(format!("{scheme}://{host}")))
    }
}

fn forwarded_tls(headers: &HeaderMap) -> bool {
    headers.get("x-forwarded-proto").is_some_and(|scheme| scheme.as_bytes().eq_ignore_ascii_case(b"https"))
}
