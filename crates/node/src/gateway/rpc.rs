//! The command service: passed to the agent, which speaks it itself.

use super::refusal::Refusal;
use super::tail::Tail;
use super::{Call, stream};
use axum::http::{HeaderMap, Method, header};
use axum::response::Response;
use warren_proto::guest::command_session::STREAM_CONTENT_TYPE;
use warren_proto::guest::paths::COMMAND_SESSION;

/// One call of the command service.
pub(super) async fn call((state, path, request): Call) -> Response {
    pass(state, path, request).await.unwrap_or_else(Refusal::into_rpc)
}

async fn pass(
    state: axum::extract::State<crate::SharedNode>,
    path: axum::extract::Path<super::Segments>,
    request: axum::extract::Request,
) -> Result<Response, Refusal> {
    let target = state.target(&path.job, request.headers()).await?;
    if !path.method.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err(Refusal::NoRoute);
    }
    let operation = target.handle.activity.begin();
    let (parts, body) = request.into_parts();
    let guest_path = format!("{COMMAND_SESSION}{}", path.method);
    let response = target.send(Method::POST, &guest_path, parts.headers, body).await?;
    let streamed =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|v| v.as_bytes() == STREAM_CONTENT_TYPE.as_bytes());
    let tail = streamed.then(Tail::default);
    let (mut parts, body) = response.into_parts();
    keep_own_headers(&mut parts.headers);
    let body = stream::body(body, &target, operation, tail);
    Ok(Response::from_parts(parts, body))
}

/// The guest is hostile: only headers that the protocol needs are passed back.
pub(super) fn keep_own_headers(headers: &mut HeaderMap) {
    const PASSED: [&str; 5] =
        ["content-type", "content-length", "connect-content-encoding", "connect-accept-encoding", "content-encoding"];
    let kept: Vec<_> = headers
        .iter()
        .filter(|(name, _)| PASSED.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    headers.clear();
    headers.extend(kept);
}
