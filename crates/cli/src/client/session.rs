use super::gateway::cut;
use super::{Gateway, GatewayError, body_of};
use prost::Message;
use reqwest::{Method, Response, header};
use std::time::Duration;
use warren_proto::guest::command_session::{
    self as wire, CommandSessionSelector, EndOfStream, EnvelopeDecoder, Event, EventResponse, Pty, PtySize, Selector,
    SendSignalRequest, Signal, StartRequest, UpdateRequest,
};

/// Name of the service in paths.
const SERVICE: &str = "command_session.CommandSession";
/// Longest wait for the answer of a unary call.
const UNARY_WAIT_MAX: Duration = Duration::from_secs(30);

/// One command in the sandbox, as a stream of events.
#[derive(Debug)]
pub(crate) struct Session {
    response: Response,
    decoder: EnvelopeDecoder,
}

impl Gateway {
    /// Starts a command. With a limit, the sandbox kills every process of it when its time is over.
    pub(crate) async fn start(&self, request: &StartRequest, limit: Option<Duration>) -> Result<Session, GatewayError> {
        let body = wire::envelope(0, &request.encode_to_vec());
        let mut call = self
            .request(Method::POST, &[SERVICE, "Start"])
            .header(header::CONTENT_TYPE, wire::STREAM_CONTENT_TYPE)
            .header("connect-protocol-version", "1")
            .body(body);
        if let Some(limit) = limit {
            call = call.header(wire::TIMEOUT_HEADER, limit.as_millis().to_string());
        }
        self.send(call).await.map(Session::new)
    }

    /// Sends a signal to the process group of a command.
    pub(crate) async fn signal(&self, session: Selector, signal: Signal) -> Result<(), GatewayError> {
        let request = SendSignalRequest {
            session: Some(CommandSessionSelector { selector: Some(session) }),
            signal: signal.into(),
            signal_uuid: Some(uuid::Uuid::new_v4().to_string()),
        };
        self.unary("SendSignal", &request).await
    }

    /// Tells the terminal of a command its size.
    pub(crate) async fn resize(&self, session: Selector, size: PtySize) -> Result<(), GatewayError> {
        let request = UpdateRequest {
            session: Some(CommandSessionSelector { selector: Some(session) }),
            pty: Some(Pty { size: Some(size) }),
        };
        self.unary("Update", &request).await
    }

    async fn unary(&self, method: &str, request: &impl Message) -> Result<(), GatewayError> {
        let call = self
            .request(Method::POST, &[SERVICE, method])
            .header(header::CONTENT_TYPE, wire::UNARY_CONTENT_TYPE)
            .header("connect-protocol-version", "1")
            .timeout(UNARY_WAIT_MAX)
            .body(request.encode_to_vec());
        let response = self.send(call).await?;
        body_of(response).await.map(drop).map_err(|problem| GatewayError::Cut { problem })
    }

    /// A call whose body is a stream of envelopes.
    pub(super) fn input_call(&self, body: reqwest::Body) -> reqwest::RequestBuilder {
        self.request(Method::POST, &[SERVICE, "StreamInput"])
            .header(header::CONTENT_TYPE, wire::STREAM_CONTENT_TYPE)
            .header("connect-protocol-version", "1")
            .body(body)
    }
}

impl Session {
    pub(super) fn new(response: Response) -> Self {
        Self { response, decoder: EnvelopeDecoder::new(wire::limits::MESSAGE_LEN_MAX) }
    }

    /// The next event that is no keep-alive; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, GatewayError> {
        loop {
            while let Some(frame) = self.decoder.next().map_err(|error| bad(&error))? {
                if frame.end_stream {
                    return self.end(&frame.payload);
                }
                let message = EventResponse::decode(frame.payload).map_err(|error| bad(&error))?;
                match message.into_event() {
                    Some(Event::Keepalive(_)) | None => {}
                    Some(event) => return Ok(Some(event)),
                }
            }
            match self.response.chunk().await.map_err(|error| cut(&error))? {
                Some(chunk) => self.decoder.push(&chunk),
                None => return self.decoder.finish().map(|()| None).map_err(|error| bad(&error)),
            }
        }
    }

    fn end(&self, payload: &[u8]) -> Result<Option<Event>, GatewayError> {
        match EndOfStream::parse(payload).map_err(|error| bad(&error))?.error {
            Some(error) => Err(GatewayError::Session(error)),
            None => Ok(None),
        }
    }
}

fn bad(error: &dyn std::error::Error) -> GatewayError {
    GatewayError::BadAnswer { problem: error.to_string() }
}
