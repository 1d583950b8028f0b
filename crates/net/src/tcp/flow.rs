//! The guest's side of one TCP flow.

use super::{Standing, TcpKey};
use crate::limits;
use crate::wire::TcpSegment;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Duration;
use smoltcp::wire::IpListenEndpoint;
use std::sync::Arc;
use tokio::sync::Notify;

/// How long an acknowledgement waits for an answer that takes it along, or for a full segment. Short, since a guest that writes a request
/// in two parts waits for it; long enough to spare an emulated guest one interrupt for each small write.
const ACK_DELAY: Duration = Duration::from_millis(1);

/// A smoltcp socket, alone in its set.
pub(crate) struct TcpFlow {
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    wake: Arc<Notify>,
    standing: Standing,
}

impl TcpFlow {
    /// A socket that waits for the SYN of `key`; `flows` is how many there are already. `None` if nothing can listen there (port 0).
    pub(super) fn listen(key: TcpKey, flows: usize) -> Option<Self> {
        let buffer = || SocketBuffer::new(vec![0; limits::tcp_buffer_bytes(flows)]);
        let mut socket = Socket::new(buffer(), buffer());
        // The link loses nothing and delays nothing: segments are not held back to save packets.
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(Some(ACK_DELAY));
        let endpoint = IpListenEndpoint { addr: Some(key.address.into()), port: key.port };
        socket.listen(endpoint).ok()?;
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        Some(Self { sockets, handle, wake: Arc::default(), standing: Standing::default() })
    }

    pub(crate) fn sockets(&mut self) -> &mut SocketSet<'static> {
        &mut self.sockets
    }

    pub(super) fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Takes note of where the guest stands by its own account.
    pub(super) fn hear(&mut self, segment: &TcpSegment) {
        if segment.ack && !segment.rst {
            let sends = segment.sequence.wrapping_add(segment.length);
            self.standing = Standing { sends, expects: segment.acknowledges };
        }
    }

    /// Where the guest stands.
    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    /// Lets the flow's task take a step.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// What the flow's task waits on.
    pub(super) fn waker(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }
}
