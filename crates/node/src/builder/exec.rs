//! Runs one command in a guest and hands its output on as it comes.

use super::guest::Guest;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Method;
use prost::Message;
use warren_proto::guest::command_session::{
    self as wire, CommandSpec, EndOfStream, EnvelopeDecoder, Event, EventResponse, Output, StartRequest,
};
use warren_proto::guest::paths::COMMAND_SESSION;

/// The command for one step of the script.
pub(super) fn words(script: &str, step: &[&str]) -> Vec<String> {
    ["/bin/bash", script].iter().chain(step).map(|word| (*word).to_owned()).collect()
}

/// Runs `words` until they end; answers the exit code.
pub(crate) async fn run(guest: &Guest, words: Vec<String>, mut output: impl FnMut(&[u8])) -> Result<i32, String> {
    let mut words = words.into_iter();
    let cmd = words.next().unwrap_or_default();
    let command = CommandSpec { cmd, args: words.collect(), ..CommandSpec::default() };
    let request = StartRequest { command: Some(command), ..StartRequest::default() };
    let body = Full::new(wire::envelope(0, &request.encode_to_vec())).map_err(|never| match never {}).boxed_unsync();
    let headers = [("content-type", wire::STREAM_CONTENT_TYPE), ("connect-protocol-version", "1")];
    let response = guest.send(Method::POST, &format!("{COMMAND_SESSION}Start"), &headers, body).await?;
    let mut body = response.into_body();
    let mut decoder = EnvelopeDecoder::new(wire::limits::MESSAGE_LEN_MAX);
    let mut code = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| format!("the builder is gone: {e}"))?;
        let Ok(data) = frame.into_data() else { continue };
        decoder.push_bytes(data);
        while let Some(frame) = decoder.next().map_err(|e| e.to_string())? {
            if frame.end_stream {
                return end(&frame.payload, code);
            }
            match event(frame.payload)? {
                Some(Event::Data(data)) => output(&bytes_of(data.output)),
                Some(Event::End(end)) => code = Some(end.exit_code),
                _ => {}
            }
        }
    }
    Err("the builder is gone: its output broke off".to_owned())
}

fn event(payload: Bytes) -> Result<Option<Event>, String> {
    EventResponse::decode(payload).map(EventResponse::into_event).map_err(|e| e.to_string())
}

fn bytes_of(output: Option<Output>) -> Bytes {
    match output {
        Some(Output::Stdout(bytes) | Output::Stderr(bytes) | Output::Pty(bytes)) => bytes,
        None => Bytes::new(),
    }
}

fn end(payload: &[u8], code: Option<i32>) -> Result<i32, String> {
    match (EndOfStream::parse(payload).map_err(|e| e.to_string())?.error, code) {
        (Some(error), _) => Err(format!("the build could not be run: {}", error.message)),
        (None, Some(code)) => Ok(code),
        (None, None) => Err("the build ended without an exit code".to_owned()),
    }
}
