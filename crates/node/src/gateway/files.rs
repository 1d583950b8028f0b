//! Files into and out of a guest.

use super::refusal::{Refusal, answer};
use super::rpc::keep_own_headers;
use super::{Call, Segments, Target, stream};
use crate::SharedNode;
use crate::host::now_ms;
use axum::body::Body;
use axum::extract::{FromRequest, Multipart, Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{TryStreamExt, stream as streams};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::json;
use std::time::Duration;
use tokio::sync::mpsc;
use warren_proto::guest::{FileWritten, GuestError, limits, paths};
use warren_proto::http::Timestamp;

/// Pieces of an upload between the client's and the guest's connection.
const PIECES_QUEUED_MAX: usize = 8;
/// Bytes of a refused upload that are read before it is answered all the same.
const DRAINED_LEN_MAX: u64 = 64 << 20;
/// Longest time for that.
const DRAIN_WAIT: Duration = Duration::from_secs(10);
/// Largest answer of the agent that is not a file, bytes: a window of a file, escaped.
const ANSWER_LEN_MAX: usize = 7 * limits::READ_FILE_LEN_MAX as usize;

/// `POST /upload?path=`, one part named `file`.
pub(super) async fn upload((State(node), Path(segments), request): Call) -> Response {
    upload_to(node, segments, request).await.unwrap_or_else(Refusal::into_json)
}

async fn upload_to(node: SharedNode, segments: Segments, request: Request) -> Result<Response, Refusal> {
    let accepted =
        node.target(&segments.job, request.headers()).await.and_then(|target| Ok((target, path_query(&request)?)));
    let (target, query) = match accepted {
        Ok(accepted) => accepted,
        Err(refusal) => {
            drain(request.into_body()).await;
            return Err(refusal);
        }
    };
    let operation = target.handle.activity.begin();
    let bad = |e: &dyn std::fmt::Display| Refusal::BadRequest(format!("the upload's body: {e}"));
    let mut form = Multipart::from_request(request, &()).await.map_err(|e| bad(&e))?;
    let Some(mut part) = form.next_field().await.map_err(|e| bad(&e))? else {
        return Err(Refusal::BadRequest("the upload has no part named file".to_owned()));
    };
    let (pieces, body) = piped();
    let guest_path = format!("{}?{query}", paths::FILES);
    let send = target.send(Method::PUT, &guest_path, HeaderMap::new(), body);
    let pump = async move {
        // A part that breaks off drops `pieces` without its end, which the guest sees as a broken body: nothing half-written stays.
        while let Some(piece) = part.chunk().await? {
            if pieces.send(Piece::Data(piece)).await.is_err() {
                return Ok(());
            }
        }
        let _ = pieces.send(Piece::End).await;
        Ok::<(), axum::extract::multipart::MultipartError>(())
    };
    let (response, pumped) = futures_util::future::join(send, pump).await;
    pumped.map_err(|e| bad(&e))?;
    let written: Result<FileWritten, Response> = small_answer(response?).await?;
    drop(operation);
    Ok(match written {
        Ok(written) => answer(
            StatusCode::OK,
            &json!({
                "success": true,
                "path": written.path,
                "size": written.size,
                "timestamp": Timestamp::from_ms(now_ms()),
            }),
        ),
        Err(refused) => refused,
    })
}

/// Reads what is left of a refused upload, within bounds: a client that is still sending would see a reset instead of the answer.
async fn drain(body: Body) {
    let mut pieces = body.into_data_stream();
    let mut left = DRAINED_LEN_MAX;
    let read = async {
        while let Ok(Some(piece)) = pieces.try_next().await {
            left = left.saturating_sub(piece.len() as u64);
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_WAIT, read).await;
}

/// A piece of an upload. The end is said, so that a sender that was dropped is no end.
enum Piece {
    Data(Bytes),
    End,
}

/// A body that is fed from the other side of a bounded queue.
fn piped() -> (mpsc::Sender<Piece>, Body) {
    let (sender, receiver) = mpsc::channel(PIECES_QUEUED_MAX);
    let body = streams::unfold(Some(receiver), |receiver: Option<mpsc::Receiver<Piece>>| async {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Piece::Data(piece)) => Some((Ok(piece), Some(receiver))),
            Some(Piece::End) => None,
            None => Some((Err(std::io::Error::other("the upload was cut")), None)),
        }
    });
    (sender, Body::from_stream(body))
}

/// `GET /download?path=`.
pub(super) async fn download((State(node), Path(segments), request): Call) -> Response {
    get(node, segments, request, paths::DOWNLOAD).await.unwrap_or_else(Refusal::into_json)
}

/// `GET /read-file?path=[&offset=][&length=]`.
pub(super) async fn read_file((State(node), Path(segments), request): Call) -> Response {
    get(node, segments, request, paths::READ_FILE).await.unwrap_or_else(Refusal::into_json)
}

async fn get(node: SharedNode, segments: Segments, request: Request, guest_path: &str) -> Result<Response, Refusal> {
    let target: Target = node.target(&segments.job, request.headers()).await?;
    let operation = target.handle.activity.begin();
    let query = request.uri().query().unwrap_or_default();
    let response = target.send(Method::GET, &format!("{guest_path}?{query}"), HeaderMap::new(), Body::empty()).await?;
    if !response.status().is_success() {
        let refused: Result<serde_json::Value, Response> = small_answer(response).await?;
        return refused.map_or_else(Ok, |_| Err(Refusal::Unavailable("the guest's answer makes no sense".to_owned())));
    }
    let (mut parts, body) = response.into_parts();
    keep_own_headers(&mut parts.headers);
    // A compressed file is a file: nothing may undo it on the way.
    parts.headers.remove("content-encoding");
    Ok(Response::from_parts(parts, stream::body(body, &target, operation, None)))
}

/// The `path` parameter as it came, still percent-encoded: the agent decodes it, as names need not be text.
fn path_query(request: &Request) -> Result<String, Refusal> {
    let query = request.uri().query().unwrap_or_default();
    let path = query.split('&').find(|pair| pair.starts_with("path="));
    path.map(str::to_owned).ok_or_else(|| Refusal::BadRequest("the parameter path is missing".to_owned()))
}

/// A bounded JSON answer of the agent; its refusals become ours.
async fn small_answer<T: serde::de::DeserializeOwned>(
    response: axum::http::Response<Incoming>,
) -> Result<Result<T, Response>, Refusal> {
    let unavailable = |e: &dyn std::fmt::Display| Refusal::Unavailable(e.to_string());
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_LEN_MAX).collect().await.map_err(|e| unavailable(&e))?;
    let bytes = body.to_bytes();
    if status.is_success() {
        return serde_json::from_slice(&bytes).map(Ok).map_err(|e| unavailable(&e));
    }
    let error: GuestError = serde_json::from_slice(&bytes).map_err(|e| unavailable(&e))?;
    let refused = match status {
        StatusCode::BAD_REQUEST
        | StatusCode::FORBIDDEN
        | StatusCode::NOT_FOUND
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::INSUFFICIENT_STORAGE => status,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Ok(Err(answer(refused, &json!({ "detail": error.message, "code": error.code }))))
}
