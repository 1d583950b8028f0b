//! Every request ends in bounded time, and what it began is never cut off in the middle.

use super::ApiError;
use super::limits::{HANDLER_SECS_MAX, IMAGE_HANDLER_SECS_MAX, UPLOAD_SECS_MAX};
use crate::context::Context;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use warren_proto::http::{API_PREFIX, ErrorCode};

/// Runs the handler as a task of its own: a client that goes away, or the limit, ends the waiting and not the work.
pub(super) async fn bounded(State(cx): State<Arc<Context>>, request: Request, next: Next) -> Response {
    let limit = limit(request.uri().path());
    match timeout(limit, cx.tasks.spawn(next.run(request))).await {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => ApiError::internal(&panic).into_response(),
        Err(_) => {
            let detail = format!("no answer within {} s; what was begun goes on", limit.as_secs());
            ApiError::new(ErrorCode::TimedOut, detail).into_response()
        }
    }
}

fn limit(path: &str) -> Duration {
    let rest = path.strip_prefix(API_PREFIX).unwrap_or_default();
    let is_upload = rest.starts_with("/images/build/") && rest.ends_with("/context");
    Duration::from_secs(match rest {
        "/images/pull" | "/images/import" => IMAGE_HANDLER_SECS_MAX,
        // Its own limit comes first, and says what was late.
        _ if is_upload => UPLOAD_SECS_MAX + HANDLER_SECS_MAX,
        _ => HANDLER_SECS_MAX,
    })
}
