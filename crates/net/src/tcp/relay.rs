//! The task of one open flow: bytes both ways, half-close and resets both ways.

use super::TcpKey;
use super::host::HostStream;
use crate::stack::{Shared, Stack};
use crate::{limits, present};
use smoltcp::socket::tcp::{Socket, State};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use warren_model::egress::{EgressPolicy, may_present};

/// Shortest wait for a timer of the socket; keeps a timer that is due already from spinning.
const TIMER_WAIT_MIN: Duration = Duration::from_millis(1);

/// Whether the guest's bytes may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// They may.
    Open,
    /// Not before they have presented a name that the policy allows.
    Named,
}

/// Carries bytes until both sides have ended, or one was reset.
pub(super) async fn run(shared: &Arc<Shared>, key: TcpKey, host: HostStream, gate: Gate) {
    let Some(wake) = shared.lock().tcp.open_flow(key).map(|flow| flow.waker()) else { return };
    let mut relay = Relay { key, host, gate, guest_ended: false, host_ended: false };
    loop {
        let step = relay.step(&mut shared.lock());
        match step {
            Step::Wait { host, timer } => tokio::select! {
                () = wake.notified() => {}
                // An error shows again when the stream is read or written.
                _ = relay.host.ready(host.unwrap_or(Interest::READABLE)), if host.is_some() => {}
                () = tokio::time::sleep(timer.unwrap_or_default().max(TIMER_WAIT_MIN)), if timer.is_some() => {}
            },
            Step::Ended => return,
            Step::Reset => return relay.host.reset(),
        }
    }
}

struct Relay {
    key: TcpKey,
    host: HostStream,
    gate: Gate,
    /// The guest's end went on to the host.
    guest_ended: bool,
    /// The host's end went on to the guest.
    host_ended: bool,
}

/// What a step left to do.
enum Step {
    /// Go on when the guest sent something, when the host's stream is ready for `host`, or after `timer`.
    Wait { host: Option<Interest>, timer: Option<Duration> },
    /// Both sides ended in order.
    Ended,
    /// The guest's side is gone, and the host's is to be reset.
    Reset,
}

/// The flow cannot go on: both sides are to be reset.
struct Broken;

impl Relay {
    /// Moves what can be moved without waiting.
    fn step(&mut self, stack: &mut Stack) -> Step {
        let Some(flow) = stack.tcp.open_flow(self.key) else { return Step::Reset };
        let moved = match self.pass(flow.socket(), &stack.policy) {
            Ok(true) => self.carry_to_host(flow.socket()),
            Ok(false) => Ok(false),
            Err(broken) => {
                stack.stats.denied += 1;
                Err(broken)
            }
        };
        let writes =
            moved.and_then(|writes| self.carry_to_guest(flow.socket()).map(|()| writes)).unwrap_or_else(|Broken| {
                flow.socket().abort();
                false
            });
        let timer = stack.engine.emit(flow);
        if !stack.engine.outbox.has_room() {
            stack.engine.outbox.wake_when_room(&flow.waker());
            return Step::Wait { host: self.interest(flow.socket(), writes), timer: None };
        }
        match flow.socket().state() {
            // Listen: reset by the guest before it was established. TimeWait is not waited for: the link delays nothing.
            State::Closed | State::Listen | State::TimeWait => {
                if self.guest_ended && self.host_ended {
                    Step::Ended
                } else {
                    Step::Reset
                }
            }
            _ => Step::Wait { host: self.interest(flow.socket(), writes), timer },
        }
    }

    fn interest(&self, socket: &Socket<'_>, writes: bool) -> Option<Interest> {
        let reads = !self.host_ended && socket.can_send();
        match (reads, writes) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::WRITABLE),
            (false, false) => None,
        }
    }

    /// Whether the guest's bytes may go on; an error if they present a name that is not allowed.
    fn pass(&mut self, socket: &mut Socket<'_>, policy: &EgressPolicy) -> Result<bool, Broken> {
        if self.gate == Gate::Open {
            return Ok(true);
        }
        let whole = has_ended(socket) || socket.recv_queue() >= socket.recv_capacity().min(limits::PRESENTED_BYTES_MAX);
        let first = socket.peek(limits::PRESENTED_BYTES_MAX).unwrap_or_default();
        let name = match present::name(first) {
            present::Presented::Name(name) => Some(name),
            present::Presented::None => None,
            present::Presented::Unclear if whole => None,
            present::Presented::Unclear => return Ok(false),
        };
        if !may_present(policy, self.key.port, name.as_ref()) {
            return Err(Broken);
        }
        self.gate = Gate::Open;
        Ok(true)
    }

    /// Guest to host. True if the host takes no more for now.
    fn carry_to_host(&mut self, socket: &mut Socket<'_>) -> Result<bool, Broken> {
        while socket.can_recv() {
            let written = socket.recv(|bytes| match self.host.try_write(bytes) {
                Ok(n) => (n, Ok(())),
                Err(error) => (0, Err(error)),
            });
            match written {
                Ok(Ok(())) => {}
                Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Ok(Err(_)) | Err(_) => return Err(Broken),
            }
        }
        if has_ended(socket) && !self.guest_ended {
            self.guest_ended = true;
            self.host.end_writing();
        }
        Ok(false)
    }

    /// Host to guest.
    fn carry_to_guest(&mut self, socket: &mut Socket<'_>) -> Result<(), Broken> {
        while !self.host_ended && socket.can_send() {
            let read = socket.send(|room| match self.host.try_read(room) {
                Ok(n) => (n, Ok(n)),
                Err(error) => (0, Err(error)),
            });
            match read {
                Ok(Ok(0)) => {
                    self.host_ended = true;
                    socket.close();
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(Err(_)) | Err(_) => return Err(Broken),
            }
        }
        Ok(())
    }
}

/// Whether the guest has said that no more bytes come. There may be some that were not taken yet.
fn has_ended(socket: &Socket<'_>) -> bool {
    matches!(socket.state(), State::CloseWait | State::LastAck | State::Closing | State::TimeWait)
}
