//! A server that knows one sandbox, `s1`, and remembers what it was asked.

mod snapshots;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use futures_util::{StreamExt as _, stream};
use http_body_util::BodyExt as _;
use prost::Message as _;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use warren_proto::guest::command_session::{
    self as wire, Code, CommandSpec, ConnectError, DataEvent, EndEvent, EndOfStream,
};
use warren_proto::guest::command_session::{
    EnvelopeDecoder, Event, EventResponse, Input, Output, StartEvent, StartRequest,
};
use warren_proto::guest::command_session::{StreamInputEvent, StreamInputRequest};

/// Largest body that is kept, bytes.
const BODY_LEN_MAX: usize = 16 << 20;

#[derive(Default)]
struct Seen {
    /// Method and path, query, body.
    calls: Vec<(String, String, Vec<u8>)>,
    started: Option<CommandSpec>,
    files: HashMap<String, Bytes>,
}

struct Shared {
    url: String,
    seen: Mutex<Seen>,
    /// What `StreamInput` brought, and whether it is over.
    input: watch::Sender<(Vec<u8>, bool)>,
}

/// Runs until dropped.
pub(crate) struct Server {
    shared: Arc<Shared>,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    pub(crate) fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address: SocketAddr = listener.local_addr().expect("an address");
        let seen = Mutex::default();
        let shared = Arc::new(Shared { url: format!("http://{address}"), seen, input: watch::Sender::default() });
        let router = router(shared.clone());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Server { shared, _runtime: runtime }
    }

    pub(crate) fn url(&self) -> &str {
        &self.shared.url
    }

    /// Body of the last such call.
    pub(crate) fn sent(&self, call: &str) -> Value {
        serde_json::from_slice(&self.last(call).2).expect("a JSON body")
    }

    /// Query of the last such call.
    pub(crate) fn query(&self, call: &str) -> String {
        self.last(call).1
    }

    pub(crate) fn count(&self, call: &str) -> usize {
        self.shared.seen.lock().expect("sound").calls.iter().filter(|(name, ..)| name == call).count()
    }

    /// The command that was started last.
    pub(crate) fn started(&self) -> CommandSpec {
        self.shared.seen.lock().expect("sound").started.clone().expect("something was started")
    }

    fn last(&self, call: &str) -> (String, String, Vec<u8>) {
        let seen = self.shared.seen.lock().expect("sound");
        seen.calls.iter().rev().find(|(name, ..)| name == call).cloned().unwrap_or_else(|| panic!("no {call}"))
    }
}

fn router(shared: Arc<Shared>) -> Router {
    let api = snapshots::routes()
        .route("/sandbox", post(create).get(async || Json(list())).delete(async || Json(bulk_delete())))
        .route("/sandbox/status:batchGet", post(statuses))
        .route("/sandbox/{id}", get(one).delete(async || Json(json!({"id": "s1", "status": "TERMINATED"}))))
        .route("/sandbox/{id}/logs", get(async || Json(json!({"logs": "booted\n"}))))
        .route("/sandbox/{id}/auth", post(auth))
        .route("/sandbox/{id}/error-context", get(error_context))
        .route("/user/whoami", get(async || Json(json!({"data": {"id": "u1"}}))))
        .route("/images/pull", post(async || Json(image())))
        .route("/images/import", post(async || Json(image())))
        .route("/images/local", get(async || Json(json!({"images": [image()]}))))
        .route("/images/local", delete(async || Json(json!({"images": [], "inUse": true}))))
        .route("/images/builds", get(async || Json(json!({"builds": []}))))
        .layer(middleware::from_fn_with_state(shared.clone(), remember));
    let service = "/gw/ns/{id}/command_session.CommandSession";
    Router::new()
        .nest("/api/v1", api)
        .route(&format!("{service}/Start"), post(start))
        .route(&format!("{service}/StreamInput"), post(stream_input))
        .route("/gw/ns/{id}/upload", post(upload))
        .route("/gw/ns/{id}/download", get(download))
        .with_state(shared)
}

/// Checks the key and keeps what was asked.
async fn remember(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    if request.headers().get("authorization").is_none_or(|key| key != "Bearer key") {
        return (StatusCode::UNAUTHORIZED, Json(json!({"detail": "no"}))).into_response();
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let call = format!("{} /api/v1{}", parts.method, parts.uri.path().trim_start_matches("/api/v1"));
    let query = parts.uri.query().unwrap_or_default().to_owned();
    shared.seen.lock().expect("sound").calls.push((call, query, body.to_vec()));
    next.run(Request::from_parts(parts, Body::from(body))).await
}

fn sandbox(status: &str, image: &str) -> Value {
    json!({
        "id": "s1", "name": "n", "dockerImage": image, "cpuCores": 1.0, "memoryGB": 1.0, "diskSizeGB": 5.0, "diskMountPath": "/",
        "gpuCount": 0, "vm": true, "status": status, "timeoutMinutes": 60, "labels": [], "infra_fault": false,
        "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z",
    })
}

fn list() -> Value {
    json!({"sandboxes": [sandbox("RUNNING", "debian:12")], "total": 1, "page": 1, "perPage": 50, "hasNext": false})
}

fn bulk_delete() -> Value {
    json!({"succeeded": ["s1"], "failed": [{"sandbox_id": "s2", "error": "it is stuck"}], "message": ""})
}

fn image() -> Value {
    json!({
        "reference": "docker.io/library/debian:12", "digest": "sha256:00", "sizeBytes": 1, "architecture": "amd64",
        "createdAt": "2026-01-01T00:00:00Z", "env": {}, "user": null, "workdir": null, "entrypoint": [], "cmd": [],
    })
}

async fn create(Json(request): Json<Value>) -> Json<Value> {
    Json(sandbox("PENDING", request["docker_image"].as_str().expect("an image")))
}

/// PENDING when asked for the first time.
async fn statuses(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let seen = shared.seen.lock().expect("sound");
    let asked = |name: &str| seen.calls.iter().filter(|(call, ..)| call.ends_with(name)).count();
    let broken = seen.calls.iter().any(|(_, _, body)| body.windows(6).any(|part| part == b"broken"));
    let status = match (broken, asked("status:batchGet")) {
        (_, 1) => "PENDING",
        (true, _) => "ERROR",
        (false, _) => "RUNNING",
    };
    Json(json!({
        "statuses": [{"sandbox_id": "s1", "status": status, "error_type": "IMAGE_PULL_FAILED", "error_message": "no such tag"}],
        "errors": [],
    }))
}

async fn one(Path(id): Path<String>) -> Response {
    if id == "s1" {
        return Json(sandbox("RUNNING", "debian:12")).into_response();
    }
    (StatusCode::NOT_FOUND, Json(json!({"detail": format!("no sandbox {id}"), "code": "not_found"}))).into_response()
}

async fn auth(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Json<Value> {
    Json(json!({
        "gateway_url": format!("{}/gw", shared.url), "user_ns": "ns", "job_id": id, "token": "token",
        "expires_at": "2999-01-01T00:00:00Z",
    }))
}

async fn error_context(Path(id): Path<String>) -> Json<Value> {
    let (status, kind, message) = match id.as_str() {
        "gone" => ("TERMINATED", Some("OOM_KILLED"), Some("out of memory")),
        "paused" => ("PAUSED", None, None),
        _ => ("RUNNING", None, None),
    };
    Json(json!({"status": status, "errorType": kind, "errorMessage": message, "infra_fault": false}))
}

fn connect_error(status: StatusCode, code: Code, message: &str) -> Response {
    (status, Json(ConnectError::new(code, message))).into_response()
}

fn event(event: Event) -> Bytes {
    wire::envelope(0, &EventResponse::new(event).encode_to_vec())
}

fn data(output: Output) -> Bytes {
    event(Event::Data(DataEvent { output: Some(output) }))
}

fn end(exit_code: i32) -> [Bytes; 2] {
    let end = EndEvent { exit_code, exited: true, ..EndEvent::default() };
    [event(Event::End(end)), wire::envelope(wire::END_STREAM, b"{}")]
}

async fn start(State(shared): State<Arc<Shared>>, Path(id): Path<String>, headers: HeaderMap, body: Bytes) -> Response {
    assert_eq!(headers["authorization"], "Bearer token");
    let mut decoder = EnvelopeDecoder::new(1 << 20);
    decoder.push(&body);
    let frame = decoder.next().expect("a good frame").expect("a whole frame");
    let command = StartRequest::decode(frame.payload).expect("a request").command.expect("a command");
    shared.seen.lock().expect("sound").started = Some(command.clone());
    let started = event(Event::Start(StartEvent { pid: 42 }));
    let fixed = |frames: Vec<Bytes>| stream(Body::from(frames.concat()));
    match command.cmd.as_str() {
        _ if id == "paused" => connect_error(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, "it is PAUSED"),
        _ if id == "gone" => connect_error(StatusCode::NOT_FOUND, Code::NotFound, "no such sandbox"),
        "no-such-program" => connect_error(StatusCode::BAD_REQUEST, Code::InvalidArgument, "no such program"),
        "exit-with" => {
            let output = [
                data(Output::Stdout("out\n".into())),
                data(Output::Stderr("err\n".into())),
                data(Output::Stdout("\u{1}".into())),
            ];
            let [end, last] = end(command.args[0].parse().expect("a code"));
            fixed([vec![started], output.to_vec(), vec![end, last]].concat())
        }
        "sleep" => {
            assert_eq!(headers[wire::TIMEOUT_HEADER], "1000");
            let error = EndOfStream { error: Some(ConnectError::new(Code::DeadlineExceeded, "time is up")) };
            fixed(vec![started, wire::envelope(wire::END_STREAM, &error.to_json())])
        }
        "cut" => {
            let broken = stream::iter([Ok(started), Err(std::io::Error::other("cut"))]);
            stream(Body::from_stream(broken))
        }
        "cat" => stream(cat(started, shared.input.subscribe())),
        other => panic!("the server of the test does not know `{other}`"),
    }
}

fn stream(body: Body) -> Response {
    ([("content-type", wire::STREAM_CONTENT_TYPE)], body).into_response()
}

/// Answers its whole input once that has ended.
fn cat(started: Bytes, mut input: watch::Receiver<(Vec<u8>, bool)>) -> Body {
    let whole = async move {
        let all = input.wait_for(|(_, over)| *over).await.expect("the server lives").0.clone();
        let [end, last] = end(0);
        Ok::<_, std::io::Error>(Bytes::from([data(Output::Stdout(all.into())), end, last].concat()))
    };
    Body::from_stream(stream::once(async { Ok(started) }).chain(stream::once(whole)))
}

async fn stream_input(State(shared): State<Arc<Shared>>, body: Body) -> Response {
    let mut decoder = EnvelopeDecoder::new(1 << 20);
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        decoder.push(&piece.expect("a piece"));
        while let Some(frame) = decoder.next().expect("a good frame") {
            let message = StreamInputRequest::decode(frame.payload).expect("a message");
            let Some(StreamInputEvent::Data(data)) = message.event else { continue };
            let Some(Input::Stdin(bytes)) = data.input.and_then(|input| input.input) else { continue };
            shared.input.send_modify(|(all, over)| {
                all.extend_from_slice(&bytes);
                *over = bytes.is_empty();
            });
        }
    }
    stream(Body::from(wire::envelope(wire::END_STREAM, b"{}")))
}

fn path_of(query: Option<&str>) -> String {
    let path = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("path="));
    path.expect("a path").replace("%2F", "/")
}

async fn upload(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = path_of(request.uri().query());
    let kind = request.headers()["content-type"].to_str().expect("a text").to_owned();
    let boundary = kind.split_once("boundary=").expect("a boundary").1.to_owned();
    assert!(request.headers().contains_key("content-length"), "the length of a file is announced");
    let body = axum::body::to_bytes(request.into_body(), BODY_LEN_MAX).await.expect("a body");
    let begin = body.windows(4).position(|part| part == b"\r\n\r\n").expect("a part") + 4;
    let content = body.slice(begin..body.len() - format!("\r\n--{boundary}--\r\n").len());
    let size = content.len();
    shared.seen.lock().expect("sound").files.insert(path.clone(), content);
    Json(json!({"success": true, "path": path, "size": size, "timestamp": "2026-01-01T00:00:00Z"})).into_response()
}

async fn download(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    match shared.seen.lock().expect("sound").files.get(&path_of(request.uri().query())) {
        Some(content) => content.clone().into_response(),
        None => (StatusCode::NOT_FOUND, Json(json!({"detail": "no such file"}))).into_response(),
    }
}
