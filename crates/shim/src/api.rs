//! The shim's unix socket: its own few calls, and the way through to the guest.

use crate::body::{AnyBody, whole};
use crate::guest::{GUEST_ORIGIN, Guest};
use crate::transfer;
use http_body_util::{BodyExt, Either, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use warren_proto::guest::{limits as guest_limits, paths as guest_paths};
use warren_proto::shim::{
    Boot, Layers, NewLayer, SetEgress, ShimState, SnapshotTaken, TakeSnapshot, Terminate, limits, paths,
};

/// Requests of one kind that may wait for the driver.
const REQUESTS_QUEUED_MAX: usize = 64;
/// Largest body of a call to the shim itself, bytes.
const BODY_LEN_MAX: usize = 8 << 20;
/// Time for the last answers to get out before the process ends.
const FINISH_WAIT: Duration = Duration::from_secs(1);

type Answer = Response<AnyBody>;
type Reply<A = ShimState> = oneshot::Sender<A>;
/// A snapshot, or why there is none.
pub(crate) type SnapshotReply = Reply<Result<SnapshotTaken, String>>;
/// A frozen disk, or why there is none.
pub(crate) type LayerReply = Reply<Result<Layers, String>>;

/// What clients ask of the driver.
pub(crate) struct Requests {
    pub(crate) boot: mpsc::Receiver<(Boot, Reply)>,
    pub(crate) terminate: mpsc::Receiver<(Terminate, Reply)>,
    pub(crate) egress: mpsc::Receiver<(SetEgress, Reply)>,
    pub(crate) snapshot: mpsc::Receiver<(TakeSnapshot, SnapshotReply)>,
    pub(crate) go_on: mpsc::Receiver<Reply>,
    pub(crate) refresh: mpsc::Receiver<Reply>,
    pub(crate) layer: mpsc::Receiver<(NewLayer, LayerReply)>,
    pub(crate) oom: mpsc::Receiver<(u64, Option<String>)>,
    pub(crate) oom_sender: mpsc::Sender<(u64, Option<String>)>,
}

#[derive(Clone)]
struct Handler {
    boot: mpsc::Sender<(Boot, Reply)>,
    terminate: mpsc::Sender<(Terminate, Reply)>,
    egress: mpsc::Sender<(SetEgress, Reply)>,
    snapshot: mpsc::Sender<(TakeSnapshot, SnapshotReply)>,
    go_on: mpsc::Sender<Reply>,
    refresh: mpsc::Sender<Reply>,
    layer: mpsc::Sender<(NewLayer, LayerReply)>,
    states: watch::Receiver<ShimState>,
    guests: watch::Receiver<Option<Guest>>,
}

/// A listening socket with its connections.
pub(crate) struct Server {
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Lets answers that are ready get out, then closes everything.
    pub(crate) async fn finish(self) {
        self.stop.send_replace(true);
        let _ = tokio::time::timeout(FINISH_WAIT, self.task).await;
    }
}

/// Serves the socket in the background. It was bound by whoever started us and is our standard input, so that clients can connect
/// before we are up.
pub(crate) fn serve_stdin(
    states: watch::Receiver<ShimState>,
    guests: watch::Receiver<Option<Guest>>,
) -> std::io::Result<(Server, Requests)> {
    let listener = std::os::unix::net::UnixListener::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let (boot, boots) = mpsc::channel(REQUESTS_QUEUED_MAX);
    let (terminate, terminates) = mpsc::channel(REQUESTS_QUEUED_MAX);
    let (egress, egresses) = mpsc::channel(REQUESTS_QUEUED_MAX);
    let (snapshot, snapshots) = mpsc::channel(REQUESTS_QUEUED_MAX);
    let (go_on, go_ons) = mpsc::channel(REQUESTS_QUEUED_MAX);
    let (refresh, refreshes) = mpsc::channel(REQUESTS_QUEUED_MAX);
    let (layer, layers) = mpsc::channel(REQUESTS_QUEUED_MAX);
    let (oom_sender, oom) = mpsc::channel(REQUESTS_QUEUED_MAX);
    let handler = Handler { boot, terminate, egress, snapshot, go_on, refresh, layer, states, guests };
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(accept(listener, handler, stopped));
    let requests = Requests {
        boot: boots,
        terminate: terminates,
        egress: egresses,
        snapshot: snapshots,
        go_on: go_ons,
        refresh: refreshes,
        layer: layers,
        oom,
        oom_sender,
    };
    Ok((Server { stop, task }, requests))
}

async fn accept(listener: UnixListener, handler: Handler, mut stopped: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(serve(stream, handler.clone(), stopped.clone()))),
                Err(error) => {
                    tracing::error!(%error, "accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next() => {}
            _ = stopped.changed() => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn serve(stream: UnixStream, handler: Handler, mut stopped: watch::Receiver<bool>) {
    let service = service_fn(move |request| {
        let handler = handler.clone();
        async move { Ok::<_, Infallible>(handler.answer(request).await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(guest_limits::STREAMS_MAX)
        // Our peer is the node: clients that went away in numbers are no attack on the connection that all of them share.
        .max_pending_accept_reset_streams(guest_limits::STREAMS_MAX as usize)
        .max_local_error_reset_streams(None)
        .initial_stream_window_size(guest_limits::STREAM_WINDOW)
        .initial_connection_window_size(guest_limits::CONNECTION_WINDOW)
        .max_frame_size(guest_limits::FRAME_LEN_MAX)
        .max_send_buf_size(guest_limits::STREAM_WINDOW as usize)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                tracing::warn!(%error, cause = ?std::error::Error::source(&error), "a connection of the node broke");
            }
            return;
        }
        _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The JSON body of a request, or the answer that refuses it.
async fn parsed<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Answer> {
    let body = Limited::new(request.into_body(), BODY_LEN_MAX).collect().await;
    let parsed =
        body.map_err(|e| e.to_string()).and_then(|b| serde_json::from_slice(&b.to_bytes()).map_err(|e| e.to_string()));
    parsed.map_err(|problem| refusal(StatusCode::BAD_REQUEST, "bad_request", &problem))
}

impl Handler {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path();
        if path.starts_with(paths::GUEST) {
            return self.pass_to_guest(request).await;
        }
        match (request.method(), path) {
            (&Method::GET, paths::STATE) => self.state(request.uri().query().unwrap_or_default()).await,
            (&Method::POST, paths::BOOT) => self.forward(&self.boot, request).await,
            (&Method::POST, paths::TERMINATE) => self.forward(&self.terminate, request).await,
            (&Method::PUT, paths::EGRESS) => self.forward(&self.egress, request).await,
            (&Method::POST, paths::SNAPSHOT) => self.snapshot(request).await,
            (&Method::POST, paths::GO_ON) => self.go_on().await,
            (&Method::POST, paths::LAYER) => self.layer(request).await,
            _ => refusal(StatusCode::NOT_FOUND, "not_found", "the shim serves no such call"),
        }
    }

    /// `fresh` asks the guest first; `seen=N` holds the answer while the version is still N.
    async fn state(&self, query: &str) -> Answer {
        if query == "fresh" {
            let (reply, answer) = oneshot::channel();
            if self.refresh.send(reply).await.is_ok()
                && let Ok(Ok(state)) = tokio::time::timeout(Duration::from_secs(limits::FRESH_WAIT_SECS), answer).await
            {
                return json(StatusCode::OK, &state);
            }
        }
        let mut states = self.states.clone();
        if let Some(seen) = query.strip_prefix("seen=").and_then(|n| n.parse::<u64>().ok()) {
            let hold = Duration::from_secs(limits::STATE_HOLD_SECS);
            let _ = tokio::time::timeout(hold, states.wait_for(|s| s.version != seen)).await;
        }
        let state = states.borrow().clone();
        json(StatusCode::OK, &state)
    }

    async fn go_on(&self) -> Answer {
        let (reply, answer) = oneshot::channel();
        if self.go_on.send(reply).await.is_err() {
            return ended();
        }
        answer.await.map_or_else(|_| ended(), |state| json(StatusCode::OK, &state))
    }

    async fn snapshot(&self, request: Request<Incoming>) -> Answer {
        let body = Limited::new(request.into_body(), BODY_LEN_MAX).collect().await.map(|body| body.to_bytes());
        let asked = body.ok().and_then(|bytes| serde_json::from_slice::<TakeSnapshot>(&bytes).ok());
        let Some(asked) = asked else {
            return refusal(StatusCode::BAD_REQUEST, "bad_request", "say whether the machine is to stay");
        };
        let (reply, answer) = oneshot::channel();
        if self.snapshot.send((asked, reply)).await.is_err() {
            return ended();
        }
        match answer.await {
            Ok(Ok(taken)) => json(StatusCode::OK, &taken),
            Ok(Err(problem)) => refusal(StatusCode::CONFLICT, "no_snapshot", &problem),
            Err(_) => ended(),
        }
    }

    /// Parses the body, hands it to the driver and waits for the state that came of it.
    async fn forward<T: DeserializeOwned>(&self, to: &mpsc::Sender<(T, Reply)>, request: Request<Incoming>) -> Answer {
        let value = match parsed(request).await {
            Ok(value) => value,
            Err(refusal) => return refusal,
        };
        let (reply, answer) = oneshot::channel();
        if to.send((value, reply)).await.is_err() {
            return ended();
        }
        match answer.await {
            Ok(state) => json(StatusCode::OK, &state),
            Err(_) => ended(),
        }
    }

    async fn layer(&self, request: Request<Incoming>) -> Answer {
        let asked: NewLayer = match parsed(request).await {
            Ok(asked) => asked,
            Err(refusal) => return refusal,
        };
        let (reply, answer) = oneshot::channel();
        if self.layer.send((asked, reply)).await.is_err() {
            return ended();
        }
        match answer.await {
            Ok(Ok(layers)) => json(StatusCode::OK, &layers),
            Ok(Err(problem)) => refusal(StatusCode::SERVICE_UNAVAILABLE, "unavailable", &problem),
            Err(_) => ended(),
        }
    }

    async fn pass_to_guest(&self, request: Request<Incoming>) -> Answer {
        let Some(Guest { mut sender, exchange }) = self.guests.borrow().clone() else {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the guest takes no requests now");
        };
        let target = request.uri().path_and_query().map_or("/", |p| p.as_str());
        let target = format!("{GUEST_ORIGIN}{}", target.strip_prefix(paths::GUEST).unwrap_or(target));
        let (mut parts, body) = request.into_parts();
        parts.uri = match target.parse() {
            Ok(uri) => uri,
            Err(_) => return refusal(StatusCode::BAD_REQUEST, "bad_request", "the path is no URI"),
        };
        let passed = match (&parts.method, parts.uri.path(), exchange) {
            (&Method::PUT, guest_paths::FILES, Some(exchange)) => {
                transfer::upload(&mut sender, &exchange, parts, body).await
            }
            (&Method::GET, guest_paths::DOWNLOAD, Some(exchange)) => {
                transfer::download(&mut sender, &exchange, parts).await
            }
            _ => transfer::plain(&mut sender, Request::from_parts(parts, Either::Left(body))).await,
        };
        passed.unwrap_or_else(|error| refusal(StatusCode::SERVICE_UNAVAILABLE, "unavailable", &error.to_string()))
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(whole(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    response
}

fn ended() -> Answer {
    refusal(StatusCode::CONFLICT, "ended", "the sandbox has ended")
}

fn refusal(status: StatusCode, code: &str, message: &str) -> Answer {
    json(status, &serde_json::json!({ "code": code, "message": message }))
}
