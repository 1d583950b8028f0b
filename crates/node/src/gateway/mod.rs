//! The data plane: exec and files of one sandbox, checked by its token and passed to its guest agent.
//!
//! `/gw/{user_ns}/{job_id}/...`; `job_id` is the sandbox's id. Nothing here is parsed but the frame of an upload.

mod files;
mod refusal;
mod rpc;
mod stream;
mod tail;

use crate::api::SharedNode;
use crate::host::now_ms;
use crate::sandbox::{Handle, Order};
use crate::shim_client::{ProxyBody, ShimClient};
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::routing::{get, post};
use futures_util::TryStreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use refusal::Refusal;
use std::time::Duration;
use stream::{Lost, lost};
use tokio::sync::oneshot;
use tokio::time::timeout;
use warren_model::{SandboxId, Status};

/// Path prefix of the data plane.
pub(crate) const PREFIX: &str = "/gw";

/// Longest wait of a request for a sandbox that is given another machine: a reset, or a resume.
const READY_WAIT: Duration = Duration::from_secs(25);
/// After this long a waiting request looks again, whatever it was told.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Headers that belong to one connection or to us, and not to the guest.
const NOT_FOR_THE_GUEST: [header::HeaderName; 7] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::HOST,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
    header::COOKIE,
];

/// A sandbox that takes requests.
pub(super) struct Target {
    pub(super) handle: Handle,
    pub(super) shim: ShimClient,
    /// Of the machine that the request goes to.
    pub(super) generation: u64,
}

/// All routes of the data plane.
pub(crate) fn router(node: SharedNode) -> Router {
    Router::new()
        .route(&format!("{PREFIX}/{{ns}}/{{job}}/upload"), post(files::upload))
        .route(&format!("{PREFIX}/{{ns}}/{{job}}/download"), get(files::download))
        .route(&format!("{PREFIX}/{{ns}}/{{job}}/read-file"), get(files::read_file))
        .route(&format!("{PREFIX}/{{ns}}/{{job}}/command_session.CommandSession/{{method}}"), post(rpc::call))
        .layer(DefaultBodyLimit::disable())
        .with_state(node)
}

impl SharedNode {
    /// Checks the token, and finds the sandbox that it opens.
    pub(super) async fn target(&self, job: &str, headers: &HeaderMap) -> Result<Target, Refusal> {
        let token = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()?.strip_prefix("Bearer "));
        let claims =
            self.0.token_key.verify(token.unwrap_or_default(), now_ms()).map_err(|_| Refusal::Unauthenticated)?;
        if claims.sandbox.as_str() != job {
            return Err(Refusal::Unauthenticated);
        }
        match timeout(READY_WAIT, self.ready(&claims.sandbox)).await {
            Ok(target) => target,
            Err(_) => Err(Refusal::Unavailable(format!("sandbox {job} was not ready within {READY_WAIT:?}"))),
        }
    }

    /// Waits while the sandbox is given another machine, and has it resumed if it is paused and wants that.
    async fn ready(&self, id: &SandboxId) -> Result<Target, Refusal> {
        loop {
            let handle = match self.running(id) {
                Err(Refusal::NotRunning { handle, .. }) if handle.is_turning() => handle,
                Err(Refusal::NotRunning { handle, .. }) if handle.wants_to_resume() => {
                    let (done, answer) = oneshot::channel();
                    let asked = self.order(id, Order::Resume(done)).await;
                    let resumed = match asked {
                        Ok(()) => self.answered(id, answer).await,
                        Err(error) => Err(error),
                    };
                    resumed.map_err(|error| Refusal::Unavailable(error.to_string()))?;
                    continue;
                }
                other => return other,
            };
            let mut shim = handle.shim.clone();
            // The sender goes with the sandbox's owner; then the next look says how it ended.
            let _ = timeout(LOOK_AGAIN, shim.changed()).await;
        }
    }

    fn running(&self, id: &SandboxId) -> Result<Target, Refusal> {
        let known = self.0.known();
        let Some(handle) = known.live.get(id).cloned() else {
            let why = known.ended.get(id).and_then(|seen| seen.end.as_ref()).map(|end| end.message.clone());
            return Err(Refusal::Gone { id: id.clone(), why });
        };
        drop(known);
        let status = handle.observation().status;
        let shim = handle.shim.borrow().clone();
        match shim {
            Some(shim) if status == Status::Running => {
                let generation = handle.observation().generation;
                Ok(Target { handle, shim, generation })
            }
            _ => Err(Refusal::NotRunning { id: id.clone(), status, handle: Box::new(handle) }),
        }
    }
}

impl Target {
    /// Sends a request to the guest agent; `path` starts with a slash and may have a query.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Body,
    ) -> Result<axum::http::Response<hyper::body::Incoming>, Refusal> {
        let body = without_empty_pieces(body);
        let mut request = axum::http::Request::new(body);
        *request.method_mut() = method;
        let uri = format!("http://shim{}{path}", warren_proto::shim::paths::GUEST);
        *request.uri_mut() = uri.parse().map_err(|_| Refusal::BadRequest("the path is no URI".to_owned()))?;
        *request.headers_mut() = headers;
        for name in NOT_FOR_THE_GUEST {
            request.headers_mut().remove(name);
        }
        match self.shim.send(request).await {
            Ok(response) => Ok(response),
            Err(error) => Err(match lost(&self.handle, self.generation).await {
                Some(Lost::Reset { generation }) => Refusal::Reset { generation },
                _ => Refusal::Unavailable(error.to_string()),
            }),
        }
    }
}

/// A client's body on the connection that all clients of a sandbox share. HTTP/2 ends a connection that carries more than a hundred
/// empty frames, however many clients sent them and however long ago, so none goes on.
fn without_empty_pieces(body: Body) -> ProxyBody {
    let pieces = body.into_data_stream().try_filter(|piece| std::future::ready(!piece.is_empty()));
    StreamBody::new(pieces.map_ok(Frame::data).map_err(Into::into)).boxed_unsync()
}

/// What a handler of the data plane takes.
pub(super) type Call = (State<SharedNode>, Path<Segments>, Request);

/// Path segments of all routes.
#[derive(serde::Deserialize)]
pub(super) struct Segments {
    pub(super) job: String,
    #[serde(default)]
    pub(super) method: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn empty_pieces_stay_behind() {
        let pieces = ["a", "", "", "bc", ""].map(|piece| Ok::<_, std::io::Error>(bytes::Bytes::from(piece)));
        let mut body = without_empty_pieces(Body::from_stream(futures_util::stream::iter(pieces)));
        let mut seen = Vec::new();
        while let Some(frame) = body.frame().await {
            seen.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(seen, ["a", "bc"]);
    }
}
