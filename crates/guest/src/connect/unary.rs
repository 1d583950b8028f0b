use super::receive::unary;
use super::streams::write_input;
use super::timeout::parse_timeout;
use super::{find, parse_uuid};
use crate::agent::Agent;
use crate::http::Incoming;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use prost::Message;
use rustix::process::Signal as KernelSignal;
use warren_proto::guest::command_session::{
    Code, ConnectError, Empty, ListRequest, ListResponse, SendInputRequest, SendSignalRequest, Signal, TIMEOUT_HEADER,
    UpdateRequest,
};

/// Serves a unary call within the time that its caller gives it. What the call has begun by then is finished all the same.
pub(super) async fn call(
    agent: &Agent,
    method: &str,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Bytes, ConnectError> {
    let timeout = parse_timeout(headers.get(TIMEOUT_HEADER).map(HeaderValue::as_bytes))?;
    let work = async {
        match method {
            "SendInput" => send_input(agent, unary(headers, body).await?).await,
            "SendSignal" => send_signal(agent, unary(headers, body).await?),
            "Update" => update(agent, unary(headers, body).await?),
            _ => {
                let ListRequest {} = unary(headers, body).await?;
                Ok(ListResponse { sessions: agent.sessions.list() }.encode_to_vec().into())
            }
        }
    };
    match timeout {
        None => work.await,
        Some(timeout) => tokio::time::timeout(timeout, work)
            .await
            .unwrap_or_else(|_| Err(ConnectError::new(Code::DeadlineExceeded, "the call's time is up"))),
    }
}

async fn send_input(agent: &Agent, request: SendInputRequest) -> Result<Bytes, ConnectError> {
    let uuid = request.input_uuid.as_deref().map(|text| parse_uuid("input_uuid", text)).transpose()?;
    let session = find(agent, request.session)?;
    write_input(&session, request.input, uuid).await?;
    Ok(nothing())
}

fn send_signal(agent: &Agent, request: SendSignalRequest) -> Result<Bytes, ConnectError> {
    let uuid = request.signal_uuid.as_deref().map(|text| parse_uuid("signal_uuid", text)).transpose()?;
    let signal = match Signal::try_from(request.signal) {
        Ok(Signal::Sigterm) => KernelSignal::TERM,
        Ok(Signal::Sigkill) => KernelSignal::KILL,
        Ok(Signal::Unspecified) | Err(_) => {
            return Err(ConnectError::new(Code::InvalidArgument, format!("signal: {} is not 9 or 15", request.signal)));
        }
    };
    let session = find(agent, request.session)?;
    session
        .signal(signal, uuid)
        .map_err(|error| ConnectError::new(Code::Internal, format!("cannot signal: {error}")))?;
    Ok(nothing())
}

fn update(agent: &Agent, request: UpdateRequest) -> Result<Bytes, ConnectError> {
    let session = find(agent, request.session)?;
    let Some(size) = request.pty.and_then(|pty| pty.size) else { return Ok(nothing()) };
    match session.resize(size) {
        Ok(true) => Ok(nothing()),
        Ok(false) => Err(ConnectError::new(Code::FailedPrecondition, "the command does not run on a terminal")),
        Err(error) => Err(ConnectError::new(Code::Internal, format!("cannot resize the terminal: {error}"))),
    }
}

fn nothing() -> Bytes {
    Empty {}.encode_to_vec().into()
}
