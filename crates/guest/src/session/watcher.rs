use super::event::{Ending, end_frames, error_frame, start_frame};
use crate::http::Outgoing;
use std::task::{Context, Poll};
use tokio::time::Instant;
use warren_proto::guest::command_session::{Code, ConnectError};

/// One stream that shows a session.
pub struct Watcher {
    /// The stream.
    pub(super) out: Outgoing,
    /// When its caller's time is up.
    pub(super) deadline: Option<Instant>,
    /// When something was sent last.
    pub(super) last_sent: Instant,
}

impl Watcher {
    /// A stream whose head has been sent.
    pub fn new(out: Outgoing, deadline: Option<Instant>) -> Self {
        Self { out, deadline, last_sent: Instant::now() }
    }

    /// Ends the stream with an error.
    pub fn fail(self, error: &ConnectError) {
        self.out.finish(error_frame(error));
    }

    /// Tells the time is up.
    pub(super) fn expire(self) {
        self.fail(&ConnectError::new(Code::DeadlineExceeded, "the call's time is up"));
    }

    /// Sends the first event.
    pub(super) fn begin(mut self, pid: u32) -> Self {
        // A peer that has gone is found by the next poll.
        let _ = self.out.send_now(start_frame(pid));
        self
    }

    /// Sends the last event and ends the stream.
    pub(super) fn end(self, ending: &Ending) {
        self.out.finish(end_frames(ending));
    }

    /// Ready once the peer has given up.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.out.poll_gone(cx)
    }
}
