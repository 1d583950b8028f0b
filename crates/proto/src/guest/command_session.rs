//! The Connect service `command_session.CommandSession` of the public contract: messages, envelopes, error codes.
//!
//! Served by the guest agent; everything between the client and the agent passes the bytes on unread. The messages are
//! written by hand with `prost`'s derive, field by field after `command_session.proto`, so that no build step needs `protoc`.

mod code;
mod envelope;
mod message;

pub use code::{Code, ConnectError, EndOfStream};
pub use envelope::{BadEnvelope, END_STREAM, Envelope, EnvelopeDecoder, HEADER_LEN, envelope, envelope_header};
pub use message::*;

/// Content type of a streaming call, compared byte for byte by the public client.
pub const STREAM_CONTENT_TYPE: &str = "application/connect+proto";
/// Content type of a unary call.
pub const UNARY_CONTENT_TYPE: &str = "application/proto";
/// Header with the time the caller gives a call, milliseconds.
pub const TIMEOUT_HEADER: &str = "connect-timeout-ms";

/// Bounds of the service, each with its unit.
pub mod limits {
    /// Longest message in either direction, bytes.
    pub const MESSAGE_LEN_MAX: usize = 4 << 20;
    /// Most digits of [`super::TIMEOUT_HEADER`].
    pub const TIMEOUT_DIGITS_MAX: usize = 10;
    /// Longest idle time of a stream before a keep-alive event, seconds.
    pub const KEEPALIVE_SECS: u64 = 20;
    /// How long an ended session with a UUID can still be asked for its end, seconds.
    pub const ENDED_KEPT_SECS: u64 = 900;
    /// How long a repeated `input_uuid` or `signal_uuid` is known, seconds (the client repeats within 92).
    pub const REPEAT_KNOWN_SECS: u64 = 600;
}
