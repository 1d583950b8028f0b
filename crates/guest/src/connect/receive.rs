use super::spill::Spill;
use crate::http::{BodyError, Incoming};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use prost::Message;
use warren_proto::guest::command_session::limits::MESSAGE_LEN_MAX;
use warren_proto::guest::command_session::{
    BadEnvelope, Code, ConnectError, EnvelopeDecoder, HEADER_LEN, UNARY_CONTENT_TYPE,
};

/// The messages of a streaming request, one by one.
pub(super) struct Messages {
    body: Incoming,
    decoder: EnvelopeDecoder,
}

impl Messages {
    pub(super) fn new(headers: &HeaderMap, body: Incoming) -> Result<Self, ConnectError> {
        check_identity(headers.get("connect-content-encoding"))?;
        Ok(Self { body, decoder: EnvelopeDecoder::new(MESSAGE_LEN_MAX) })
    }

    /// The next message; `None` at a clean end.
    pub(super) async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, ConnectError> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(Some(message));
            }
            let Some(part) = self.body.next().await.map_err(of_body)? else {
                self.decoder.finish().map_err(of_envelope)?;
                return Ok(None);
            };
            self.decoder.push_bytes(part);
        }
    }

    /// The only message. Until it is whole, not much of it is in the agent's own memory.
    pub(super) async fn only<M: Message + Default>(mut self) -> Result<M, ConnectError> {
        let whole = Spill::receive(&mut self.body, HEADER_LEN + MESSAGE_LEN_MAX).await.map_err(of_body)?;
        self.decoder.push_bytes(whole);
        match self.buffered()? {
            Some(message) => Ok(message),
            None => Err(ConnectError::new(Code::InvalidArgument, "the request holds no whole message")),
        }
    }

    fn buffered<M: Message + Default>(&mut self) -> Result<Option<M>, ConnectError> {
        match self.decoder.next().map_err(of_envelope)? {
            None => Ok(None),
            Some(envelope) if envelope.end_stream => {
                Err(ConnectError::new(Code::InvalidArgument, "an end frame from the client"))
            }
            Some(envelope) => decode(envelope.payload).map(Some),
        }
    }
}

/// The message of a unary request.
pub(super) async fn unary<M: Message + Default>(headers: &HeaderMap, mut body: Incoming) -> Result<M, ConnectError> {
    let content_type = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if content_type != UNARY_CONTENT_TYPE.as_bytes() {
        let message = format!("content type {:?} is not {UNARY_CONTENT_TYPE}", String::from_utf8_lossy(content_type));
        return Err(ConnectError::new(Code::InvalidArgument, message));
    }
    check_identity(headers.get(header::CONTENT_ENCODING))?;
    decode(Spill::receive(&mut body, MESSAGE_LEN_MAX).await.map_err(of_body)?)
}

fn decode<M: Message + Default>(bytes: Bytes) -> Result<M, ConnectError> {
    M::decode(bytes).map_err(|error| ConnectError::new(Code::InvalidArgument, format!("bad message: {error}")))
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
        BodyError::Storage(_) => Code::ResourceExhausted,
    };
    ConnectError::new(code, error.to_string())
}
