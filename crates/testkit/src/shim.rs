//! A shim without a machine: the real protocol on the real socket, a few KB a sandbox. For tests of everything above the shim.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::UnixListener;
use tokio::sync::watch;
use warren_proto::shim::{End, Phase, SetEgress, ShimState, SnapshotTaken, Terminate, files, limits, paths};

/// Where a real shim leaves how it ended.
const END_FILE: &str = "end.json";
/// Time for the answer to a terminate to get out.
const LAST_ANSWER_WAIT: Duration = Duration::from_millis(200);

/// Runs as `shim --dir DIR`, the socket on standard input, until it is terminated. Blocks.
pub fn run(dir: &Path) -> std::io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(dir))
}

async fn serve(dir: &Path) -> std::io::Result<()> {
    let listener = std::os::unix::net::UnixListener::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let (state, mut states) = watch::channel(empty());
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (state, end_file) = (state.clone(), dir.join(END_FILE));
                let service = service_fn(move |request| {
                    let (state, end_file) = (state.clone(), end_file.clone());
                    async move { Ok::<_, Infallible>(answer(&state, &end_file, request).await) }
                });
                let stream = TokioIo::new(accepted?.0);
                tokio::spawn(hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service));
            }
            _ = states.wait_for(|s| s.phase == Phase::Ended) => {
                tokio::time::sleep(LAST_ANSWER_WAIT).await;
                return Ok(());
            }
        }
    }
}

fn empty() -> ShimState {
    ShimState {
        version: 1,
        phase: Phase::Empty,
        running_since_ms: None,
        end: None,
        egress_generation: 0,
        oom_kills: 0,
        last_oom: None,
        steps_ms: Default::default(),
        vmm_pid: None,
    }
}

async fn answer(
    state: &watch::Sender<ShimState>,
    end_file: &Path,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    match (&parts.method, parts.uri.path()) {
        (&Method::POST, paths::BOOT) => change(state, |s| {
            s.phase = Phase::Running;
            s.running_since_ms = Some(now_ms());
        }),
        (&Method::PUT, paths::EGRESS) => {
            let asked: Option<SetEgress> = serde_json::from_slice(&bytes).ok();
            change(state, |s| s.egress_generation = asked.map_or(0, |e| e.generation));
        }
        (&Method::POST, paths::TERMINATE) => {
            if let Ok(asked) = serde_json::from_slice::<Terminate>(&bytes) {
                let end = End {
                    reason: asked.reason,
                    message: asked.message,
                    at_ms: now_ms(),
                    exit_code: None,
                    logs: String::new(),
                };
                let _ = std::fs::write(end_file, serde_json::to_vec(&end).unwrap_or_default());
                change(state, |s| {
                    s.phase = Phase::Ended;
                    s.end = Some(end);
                });
            }
        }
        (&Method::POST, paths::GO_ON) => {}
        (&Method::POST, paths::SNAPSHOT) => {
            let dir = end_file.parent().unwrap_or(Path::new("."));
            return match snapshot(dir) {
                Ok(taken) => json(StatusCode::OK, serde_json::to_vec(&taken).unwrap_or_default()),
                Err(error) => json(StatusCode::CONFLICT, error.to_string().into_bytes()),
            };
        }
        (&Method::GET, paths::STATE) => hold(state, parts.uri.query().unwrap_or_default()).await,
        _ => {
            return json(
                StatusCode::SERVICE_UNAVAILABLE,
                br#"{"code":"unavailable","message":"no guest here"}"#.to_vec(),
            );
        }
    }
    json(StatusCode::OK, serde_json::to_vec(&*state.borrow()).unwrap_or_default())
}

/// Leaves the files of a snapshot of a memory of no size.
fn snapshot(dir: &Path) -> std::io::Result<SnapshotTaken> {
    /// A delta without pages: its magic, no length, no runs; pages would start at 4096.
    const EMPTY_DELTA_LEN: usize = 4096;
    let folder = dir.join(files::DIR);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join(files::STATE), "")?;
    let mut delta = b"WRNDELT1".to_vec();
    delta.resize(EMPTY_DELTA_LEN, 0);
    std::fs::write(folder.join(files::DELTA), delta)?;
    let name = |number: usize| if number == 0 { "disk.qcow2".to_owned() } else { format!("disk.{number}.qcow2") };
    let frozen = (0..).find(|number| !dir.join(name(number + 1)).exists()).unwrap_or_default();
    std::fs::write(dir.join(name(frozen + 1)), "")?;
    let layers = (0..=frozen).map(name).collect();
    Ok(SnapshotTaken { paused_ms: 1.0, pages: 0, lent: Vec::new(), layers, flows: Default::default() })
}

/// Waits as a real shim does while the version is the one seen.
async fn hold(state: &watch::Sender<ShimState>, query: &str) {
    if let Some(seen) = query.strip_prefix("seen=").and_then(|n| n.parse::<u64>().ok()) {
        let wait = Duration::from_secs(limits::STATE_HOLD_SECS);
        let mut states = state.subscribe();
        let _ = tokio::time::timeout(wait, states.wait_for(|s| s.version != seen)).await;
    }
}

fn change(state: &watch::Sender<ShimState>, change: impl FnOnce(&mut ShimState)) {
    state.send_modify(|s| {
        change(s);
        s.version += 1;
    });
}

fn json(status: StatusCode, bytes: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(bytes)));
    *response.status_mut() = status;
    response
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}
