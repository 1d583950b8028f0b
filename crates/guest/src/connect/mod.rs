//! The Connect service `command_session.CommandSession`, by hand.
//!
//! The crate `connectrpc` was weighed for this: it wants `Send` services on hyper and tower and generated `buffa` types, and buffers
//! streams where it likes. Here every byte in flight is counted (see [`crate::http::Budget`]) on one thread; the protocol's part
//! of that is the framing in `proto::guest::command_session` and the few lines of this folder.

mod receive;
mod spill;
mod streams;
mod timeout;
mod unary;

use crate::agent::Agent;
use crate::command::StartError;
use crate::http::{Chunk, Incoming, Outgoing, Responder};
use crate::session::{InputError, Session, Uuid, Watcher};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use std::rc::Rc;
use timeout::parse_timeout;
use tokio::time::Instant;
use warren_proto::guest::command_session::{
    Code, CommandSessionSelector, ConnectError, STREAM_CONTENT_TYPE, Selector, TIMEOUT_HEADER, UNARY_CONTENT_TYPE,
};

/// Serves one call of the service; `method` is the last part of its path.
pub async fn serve(agent: Rc<Agent>, method: &str, headers: &HeaderMap, body: Incoming, respond: Responder) {
    match method {
        "Start" | "Connect" => serve_stream(agent, method, headers, body, respond).await,
        "SendInput" | "SendSignal" | "List" | "Update" => {
            let answer = unary::call(&agent, method, headers, body).await;
            answer_unary(respond, UNARY_CONTENT_TYPE, answer);
        }
        "StreamInput" => {
            let answer = streams::stream_input(&agent, headers, body).await;
            answer_stream_input(&agent, respond, answer);
        }
        _ => {
            let unknown = ConnectError::new(Code::Unimplemented, format!("no method {method:?}"));
            answer_unary(respond, UNARY_CONTENT_TYPE, Err(unknown));
        }
    }
}

async fn serve_stream(agent: Rc<Agent>, method: &str, headers: &HeaderMap, body: Incoming, respond: Responder) {
    if headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes) != Some(STREAM_CONTENT_TYPE.as_bytes()) {
        return answer_unsupported(respond);
    }
    let called_at = Instant::now();
    let timeout = parse_timeout(headers.get(TIMEOUT_HEADER).map(HeaderValue::as_bytes));
    let result = match timeout {
        Err(error) => Err(error),
        Ok(timeout) => {
            let deadline = timeout.map(|timeout| called_at + timeout);
            match method {
                "Start" => streams::start(&agent, headers, body, deadline).await,
                _ => streams::connect(&agent, headers, body, deadline).await,
            }
        }
    };
    let Some(out) = begin_stream(&agent, respond) else { return };
    let (session, deadline) = match result {
        Ok(found) => found,
        Err(error) => return Watcher::new(out, None).fail(&error),
    };
    if let Err(watcher) = session.attach(Watcher::new(out, deadline)) {
        watcher.fail(&ConnectError::new(Code::ResourceExhausted, "too many streams show this session"));
    }
}

/// Sends the head of a stream. `None` if the caller has gone.
fn begin_stream(agent: &Agent, mut respond: Responder) -> Option<Outgoing> {
    let mut head = Response::new(());
    head.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(STREAM_CONTENT_TYPE));
    let stream = respond.send_response(head, false).ok()?;
    Some(Outgoing::new(stream, agent.outgoing.clone()))
}

/// Streams with one answer have the answer's envelope and the end in one body.
fn answer_stream_input(agent: &Agent, respond: Responder, answer: Result<Bytes, ConnectError>) {
    let Some(out) = begin_stream(agent, respond) else { return };
    match answer {
        Ok(frames) => out.finish(frames),
        Err(error) => Watcher::new(out, None).fail(&error),
    }
}

fn answer_unary(mut respond: Responder, content_type: &'static str, answer: Result<Bytes, ConnectError>) {
    let mut head = Response::new(());
    let (content_type, body) = match answer {
        Ok(message) => (content_type, message),
        Err(error) => {
            *head.status_mut() = StatusCode::from_u16(error.code.http_status()).unwrap_or_default();
            ("application/json", serde_json::to_vec(&error).unwrap_or_default().into())
        }
    };
    head.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Ok(mut stream) = respond.send_response(head, false) {
        // The caller may have gone; then there is nobody to tell.
        let _ = stream.send_data(Chunk::uncounted(body), true);
    }
}

/// What the protocol asks for on a content type that is not served.
fn answer_unsupported(mut respond: Responder) {
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    head.headers_mut().insert("accept-post", HeaderValue::from_static(STREAM_CONTENT_TYPE));
    // The caller may have gone; then there is nobody to tell.
    let _ = respond.send_response(head, true);
}

/// The session that a selector names.
fn find(agent: &Agent, selector: Option<CommandSessionSelector>) -> Result<Rc<Session>, ConnectError> {
    match selector.and_then(|selector| selector.selector) {
        Some(Selector::SessionUuid(text)) => {
            let uuid = parse_uuid("session_uuid", &text)?;
            let found = agent.sessions.by_uuid(uuid);
            found.ok_or_else(|| ConnectError::new(Code::NotFound, format!("no session {text}")))
        }
        Some(Selector::Pid(pid)) => {
            let found = agent.sessions.by_pid(pid);
            found.ok_or_else(|| ConnectError::new(Code::NotFound, format!("no running session with pid {pid}")))
        }
        None => Err(ConnectError::new(Code::InvalidArgument, "session: no selector")),
    }
}

fn parse_uuid(field: &str, text: &str) -> Result<Uuid, ConnectError> {
    Uuid::parse(text).ok_or_else(|| {
        ConnectError::new(Code::InvalidArgument, format!("{field}: expected a canonical lower-case UUID, got {text:?}"))
    })
}

fn of_start_error(error: &StartError) -> ConnectError {
    let code = match error {
        StartError::System(_) => Code::ResourceExhausted,
        _ => Code::InvalidArgument,
    };
    ConnectError::new(code, error.to_string())
}

fn of_input_error(error: InputError) -> ConnectError {
    let code = match error {
        InputError::Closed => Code::FailedPrecondition,
        InputError::Full => Code::ResourceExhausted,
    };
    ConnectError::new(code, error.to_string())
}
