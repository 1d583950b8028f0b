//! An answer's body on its way from the guest to the client.

use super::Target;
use super::refusal::was_reset;
use super::tail::Tail;
use crate::sandbox::{Handle, Operation};
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::Duration;
use warren_model::Status;
use warren_proto::guest::command_session::Code;

/// A stream that was cut waits so long to learn whether its sandbox has ended.
const END_KNOWN_WAIT: Duration = Duration::from_secs(4);
/// How often it looks.
const END_KNOWN_PAUSE: Duration = Duration::from_millis(20);

struct Passing {
    from: Incoming,
    handle: Handle,
    /// Of the machine that it comes from.
    generation: u64,
    /// Counts as activity until the last byte is out.
    _operation: Operation,
    tail: Option<Tail>,
}

/// The guest's body as it comes. With `tail`, a stream that breaks off is ended by an error frame that tells whether the sandbox
/// has ended, instead of a torn connection.
pub(super) fn body(from: Incoming, target: &Target, operation: Operation, tail: Option<Tail>) -> Body {
    let (handle, generation) = (target.handle.clone(), target.generation);
    let passing = Passing { from, handle, generation, _operation: operation, tail };
    Body::from_stream(stream::unfold(Some(passing), |passing| async { next(passing?).await }))
}

async fn next(mut passing: Passing) -> Option<(Result<Bytes, std::io::Error>, Option<Passing>)> {
    loop {
        match passing.from.frame().await {
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                if let Some(tail) = &mut passing.tail {
                    tail.see(&data);
                }
                return Some((Ok(data), Some(passing)));
            }
            None if passing.tail.as_ref().is_none_or(Tail::is_complete) => return None,
            None => return cut(passing, "the guest ended the stream early".to_owned()).await,
            Some(Err(error)) => return cut(passing, error.to_string()).await,
        }
    }
}

/// The guest's side broke off.
async fn cut(passing: Passing, problem: String) -> Option<(Result<Bytes, std::io::Error>, Option<Passing>)> {
    let (code, message) = match lost(&passing.handle, passing.generation).await {
        Some(Lost::Ended { message }) => (Code::NotFound, format!("the sandbox has ended: {message}")),
        Some(Lost::Reset { generation }) => (Code::FailedPrecondition, was_reset(generation)),
        Some(Lost::Paused) => (Code::Unavailable, "the sandbox was paused; what runs in it goes on with it".to_owned()),
        None => (Code::Unavailable, format!("the way to the guest broke: {problem}")),
    };
    let frame = passing.tail.as_ref().and_then(|tail| tail.last_frame(code, &message));
    match frame {
        Some(frame) => Some((Ok(frame), None)),
        None => Some((Err(std::io::Error::other(message)), None)),
    }
}

/// Why the way to a guest broke.
pub(super) enum Lost {
    /// The sandbox's last message.
    Ended { message: String },
    /// It has another machine now, that was put back to a snapshot.
    Reset { generation: u64 },
    /// It has no machine.
    Paused,
}

/// What became of a machine of `generation` to which the way broke, if that turns out soon.
pub(super) async fn lost(handle: &Handle, generation: u64) -> Option<Lost> {
    let wait = async {
        loop {
            let seen = handle.observation();
            if seen.status.is_terminal() {
                return Lost::Ended { message: seen.end.map(|end| end.message).unwrap_or_default() };
            }
            if seen.generation != generation {
                return Lost::Reset { generation: seen.generation };
            }
            if seen.status == Status::Paused {
                return Lost::Paused;
            }
            tokio::time::sleep(END_KNOWN_PAUSE).await;
        }
    };
    tokio::time::timeout(END_KNOWN_WAIT, wait).await.ok()
}
