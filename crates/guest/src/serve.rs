//! One HTTP/2 connection, and which request goes where.

use crate::agent::Agent;
use crate::http::{Incoming, Query, Refusal, Responder, answer_json, answer_refusal};
use crate::{connect, files, freeze, init, jobs, shutdown, status};
use h2::RecvStream;
use http::{Method, Request, StatusCode};
use std::rc::Rc;
use tokio::io::{AsyncRead, AsyncWrite};
use warren_proto::guest::limits::{JSON_LEN_MAX, STREAMS_MAX};
use warren_proto::guest::{NOT_YET, paths};

/// Window of one request's body, bytes: what the host may send ahead of the agent's taking it.
const STREAM_WINDOW: u32 = 128 << 10;
/// Window of all bodies together, bytes; with what waits to be sent, it bounds the agent's memory.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Largest data frame that the host may send, bytes: one is held as a whole.
const FRAME_LEN_MAX: u32 = 64 << 10;
/// Longest list of headers of one request, bytes.
const HEADERS_LEN_MAX: u32 = 16 << 10;
/// Most bytes of one stream that wait in the connection.
const SEND_BUFFER_LEN_MAX: usize = 256 << 10;

/// Serves a connection until it ends. Requests that run then go on to their end; commands live on anyway.
pub async fn serve(agent: &Rc<Agent>, stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<(), h2::Error> {
    let mut connection = h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_LEN_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        // Our peer is the host: clients that went away in numbers are no attack on the connection that all of them share.
        .max_pending_accept_reset_streams(STREAMS_MAX as usize)
        .max_concurrent_reset_streams(STREAMS_MAX as usize)
        .max_local_error_reset_streams(None)
        .max_header_list_size(HEADERS_LEN_MAX)
        .max_send_buffer_size(SEND_BUFFER_LEN_MAX)
        .handshake(stream)
        .await?;
    while let Some(next) = connection.accept().await {
        let (request, respond) = next?;
        tokio::task::spawn_local(route(agent.clone(), request, respond));
    }
    Ok(())
}

async fn route(agent: Rc<Agent>, request: Request<RecvStream>, mut respond: Responder) {
    let (head, body) = request.into_parts();
    let body = Incoming::new(body);
    let query = Query::of(&head.uri);
    let path = head.uri.path();
    if ![paths::INIT, paths::SUSPEND, paths::RESUME].contains(&path) {
        // A command must not be born frozen, nor may anything be begun in a machine that does not know yet which one it is.
        agent.freezer.running().await;
    }
    if let Some(method) = path.strip_prefix(paths::COMMAND_SESSION)
        && head.method == Method::POST
    {
        return connect::serve(agent, method, &head.headers, body, respond).await;
    }
    match (&head.method, path) {
        (&Method::PUT, paths::FILES) => {
            files::write(&agent, query, &head.headers, body, respond).await;
            agent.transfer_ended.notify_one();
        }
        (&Method::GET, paths::DOWNLOAD) => {
            files::download(&agent, query, &head.headers, body, respond).await;
            agent.transfer_ended.notify_one();
        }
        (&Method::GET, paths::READ_FILE) => files::read_file(agent, query, respond).await,
        (&Method::GET, paths::STATUS) => status::status(agent, respond).await,
        (&Method::GET, paths::POWER_OFF) => {
            agent.start_command.powered_off().await;
            answer_json(&mut respond, StatusCode::OK, &serde_json::Map::new());
        }
        (&Method::POST, paths::SUSPEND | paths::RESUME) if agent.freezer.is_going_on() => {
            let message = "the machine is still becoming its own after a restore".to_owned();
            answer_refusal(&mut respond, Refusal { status: StatusCode::CONFLICT, code: NOT_YET, message });
        }
        (&Method::POST, paths::SUSPEND) => match agent.freezer.suspend(agent.cgroups.root()).await {
            Ok(()) => answer_json(&mut respond, StatusCode::OK, &serde_json::Map::new()),
            Err(error) => answer_refusal(&mut respond, Refusal::internal("suspend", error)),
        },
        (&Method::POST, paths::RESUME) => {
            agent.freezer.resume();
            answer_json(&mut respond, StatusCode::OK, &serde_json::Map::new());
        }
        (&Method::POST, paths::INIT) => with_json(respond, body, async |asked| init::initialise(&agent, asked)).await,
        (&Method::POST, paths::JOBS) => {
            let proc = agent.start_command.proc();
            with_json(respond, body, async |asked| jobs::states(asked, &proc)).await;
        }
        (&Method::POST, paths::FREEZE_DISK) => {
            with_json(respond, body, async |asked| freeze::freeze(&agent, asked).await).await
        }
        (&Method::POST, paths::THAW_DISK) => {
            with_json(respond, body, async |Nothing {}| freeze::thaw(&agent).await).await
        }
        (&Method::POST, paths::SHUTDOWN) => {
            with_json(respond, body, async |asked| shutdown::shutdown(&agent, asked).await).await
        }
        _ => {
            let message = format!("no such request: {} {path}", head.method);
            answer_refusal(&mut respond, Refusal { status: StatusCode::NOT_FOUND, code: "bad_request", message });
        }
    }
}

/// A request that says nothing more: `{}`.
#[derive(serde::Deserialize)]
struct Nothing {}

/// Reads a JSON body, does the work, answers with JSON.
async fn with_json<Asked: serde::de::DeserializeOwned, Answer: serde::Serialize>(
    mut respond: Responder,
    body: Incoming,
    work: impl AsyncFnOnce(Asked) -> Result<Answer, Refusal>,
) {
    let result = async {
        let body = body.read_all(JSON_LEN_MAX).await?;
        let asked = serde_json::from_slice(&body).map_err(|error| Refusal::bad_request(error.to_string()))?;
        work(asked).await
    };
    match result.await {
        Ok(answer) => answer_json(&mut respond, StatusCode::OK, &answer),
        Err(refusal) => answer_refusal(&mut respond, refusal),
    }
}
