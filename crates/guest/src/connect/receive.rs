use crate::agent::Agent;
use crate::http::{BodyError, Incoming};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use prost::Message;
use tokio::sync::SemaphorePermit;
use warren_proto::guest::command_session::limits::MESSAGE_LEN_MAX;
use warren_proto::guest::command_session::{BadEnvelope, Code, ConnectError, EnvelopeDecoder, UNARY_CONTENT_TYPE};

/// Bodies up to this length are received at once; longer ones wait for their share of the agent's memory, bytes.
const SMALL_LEN_MAX: usize = 64 << 10;

/// The messages of a streaming request, one by one.
pub(super) struct Messages<'a> {
    agent: &'a Agent,
    body: Incoming,
    decoder: EnvelopeDecoder,
    received: usize,
    permit: Option<SemaphorePermit<'a>>,
}

impl<'a> Messages<'a> {
    pub(super) fn new(agent: &'a Agent, headers: &HeaderMap, body: Incoming) -> Result<Self, ConnectError> {
        check_identity(headers.get("connect-content-encoding"))?;
        Ok(Self { agent, body, decoder: EnvelopeDecoder::new(MESSAGE_LEN_MAX), received: 0, permit: None })
    }

    /// The next message; `None` at a clean end.
    pub(super) async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, ConnectError> {
        loop {
            if let Some(envelope) = self.decoder.next().map_err(of_envelope)? {
                self.received = 0;
                self.permit = None;
                if envelope.end_stream {
                    return Err(ConnectError::new(Code::InvalidArgument, "an end frame from the client"));
                }
                return decode(&envelope.payload).map(Some);
            }
            let Some(part) = self.body.next().await.map_err(of_body)? else {
                self.decoder.finish().map_err(of_envelope)?;
                return Ok(None);
            };
            self.received += part.len();
            if self.received > SMALL_LEN_MAX && self.permit.is_none() {
                self.permit = reserve(self.agent).await;
            }
            self.decoder.push(&part);
        }
    }

    /// The only message.
    pub(super) async fn one<M: Message + Default>(&mut self) -> Result<M, ConnectError> {
        let message = self.next().await?;
        message.ok_or_else(|| ConnectError::new(Code::InvalidArgument, "the request holds no message"))
    }
}

/// The message of a unary request.
pub(super) async fn unary<M: Message + Default>(
    agent: &Agent,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<M, ConnectError> {
    let content_type = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if content_type != UNARY_CONTENT_TYPE.as_bytes() {
        let message = format!("content type {:?} is not {UNARY_CONTENT_TYPE}", String::from_utf8_lossy(content_type));
        return Err(ConnectError::new(Code::InvalidArgument, message));
    }
    check_identity(headers.get(header::CONTENT_ENCODING))?;
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse::<usize>().ok());
    let _permit = match announced {
        Some(len) if len <= SMALL_LEN_MAX => None,
        _ => reserve(agent).await,
    };
    decode(&body.read_all(MESSAGE_LEN_MAX).await.map_err(of_body)?)
}

/// Waits until a message of the greatest length may be received.
async fn reserve(agent: &Agent) -> Option<SemaphorePermit<'_>> {
    // The semaphore is never closed.
    agent.receiving.acquire_many(MESSAGE_LEN_MAX as u32).await.ok()
}

fn decode<M: Message + Default>(bytes: &Bytes) -> Result<M, ConnectError> {
    M::decode(bytes.clone()).map_err(|error| ConnectError::new(Code::InvalidArgument, format!("bad message: {error}")))
}

fn check_identity(encoding: Option<&HeaderValue>) -> Result<(), ConnectError> {
    match encoding.map(HeaderValue::as_bytes) {
        None | Some(b"identity" | b"") => Ok(()),
        Some(other) => {
            let message = format!("unknown compression {:?}: supported is identity", String::from_utf8_lossy(other));
            Err(ConnectError::new(Code::Unimplemented, message))
        }
    }
}

fn of_envelope(error: BadEnvelope) -> ConnectError {
    let code = match error {
        BadEnvelope::TooLong { .. } => Code::ResourceExhausted,
        BadEnvelope::Compressed => Code::Internal,
        BadEnvelope::Flags(_) | BadEnvelope::Cut => Code::InvalidArgument,
    };
    ConnectError::new(code, error.to_string())
}

fn of_body(error: BodyError) -> ConnectError {
    let code = match error {
        BodyError::TooLong(_) => Code::ResourceExhausted,
        BodyError::Cut(_) => Code::Canceled,
    };
    ConnectError::new(code, error.to_string())
}
