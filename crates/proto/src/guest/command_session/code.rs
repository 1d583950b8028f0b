use serde::{Deserialize, Serialize};
use std::fmt;

/// Error codes of the Connect protocol that the service uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The caller went away.
    Canceled,
    /// Anything else.
    Unknown,
    /// The request itself is wrong, whatever the state of the sandbox.
    InvalidArgument,
    /// Time is up.
    DeadlineExceeded,
    /// No such session, or the sandbox is gone.
    NotFound,
    /// It exists already.
    AlreadyExists,
    /// The caller may not do that.
    PermissionDenied,
    /// A limit is reached.
    ResourceExhausted,
    /// Right request, wrong state: such as a known session with another command.
    FailedPrecondition,
    /// A newer call took this one's place.
    Aborted,
    /// A position outside of what there is.
    OutOfRange,
    /// No such method, or a feature that is not there.
    Unimplemented,
    /// A fault of the agent.
    Internal,
    /// Not now; worth another try.
    Unavailable,
    /// Lost for good.
    DataLoss,
    /// No valid credential.
    Unauthenticated,
}

impl Code {
    /// HTTP status of a unary answer with this code, as the protocol fixes it.
    pub fn http_status(self) -> u16 {
        match self {
            Code::Canceled => 499,
            Code::Unknown | Code::Internal | Code::DataLoss => 500,
            Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
            Code::DeadlineExceeded => 504,
            Code::NotFound => 404,
            Code::AlreadyExists | Code::Aborted => 409,
            Code::PermissionDenied => 403,
            Code::ResourceExhausted => 429,
            Code::Unimplemented => 501,
            Code::Unavailable => 503,
            Code::Unauthenticated => 401,
        }
    }
}

/// An error as the protocol writes it: body of a failed unary call, `error` of an end-of-stream frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct ConnectError {
    /// Code.
    pub code: Code,
    /// For people.
    #[serde(default)]
    pub message: String,
}

impl ConnectError {
    /// An error with its text.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

/// Payload of the last frame of a stream; `{}` when all went well.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EndOfStream {
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ConnectError>,
}

impl EndOfStream {
    /// Reads the payload of a frame with [`super::END_STREAM`] set. Unknown fields are ignored.
    pub fn parse(payload: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(payload)
    }

    /// The payload's bytes.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|_| b"{}".to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_end_is_an_empty_object() {
        assert_eq!(EndOfStream::default().to_json(), b"{}");
    }

    #[test]
    fn an_error_is_written_as_the_client_reads_it() {
        let end = EndOfStream { error: Some(ConnectError::new(Code::DeadlineExceeded, "time is up")) };
        assert_eq!(end.to_json(), br#"{"error":{"code":"deadline_exceeded","message":"time is up"}}"#);
        assert_eq!(EndOfStream::parse(&end.to_json()).unwrap(), end);
    }

    #[test]
    fn foreign_fields_are_ignored() {
        let text = br#"{"error":{"code":"not_found","details":[]},"metadata":{"a":["b"]}}"#;
        assert_eq!(EndOfStream::parse(text).unwrap().error.unwrap().code, Code::NotFound);
    }
}
