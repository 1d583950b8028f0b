//! smoltcp's interface, shared by sockets that each have a set of their own.

use super::device::Device;
use super::outbox::Outbox;
use crate::config::{GATEWAY, GUEST_PREFIX_LEN};
use crate::tcp::TcpFlow;
use smoltcp::iface::{Config, Interface, PollResult};
use smoltcp::wire::{HardwareAddress, IpCidr};
use std::time::{Duration, Instant};

/// Takes packets to TCP sockets, and theirs to the outbox.
///
/// smoltcp looks through all sockets of a set for each packet, so that a set of thousands is slow. Here each TCP flow is a set of its own,
/// found by its key, and all share the one interface, which holds no state about connections.
pub(crate) struct Engine {
    /// Frames for the guest.
    pub(crate) outbox: Outbox,
    iface: Interface,
    started: Instant,
    mtu: usize,
}

impl Engine {
    pub(super) fn new(mtu: usize, seed: u64) -> Self {
        let mut outbox = Outbox::new();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut iface = Interface::new(config, &mut Device::new(None, &mut outbox, mtu), smoltcp::time::Instant::ZERO);
        iface.set_any_ip(true);
        // One address always fits, so that there is no error to handle.
        iface.update_ip_addrs(|addrs| _ = addrs.push(IpCidr::new(GATEWAY.into(), GUEST_PREFIX_LEN)));
        Self { outbox, iface, started: Instant::now(), mtu }
    }

    /// Queues an IPv4 packet for the guest; false if there is no room, or if it is larger than the MTU.
    pub(super) fn push(&mut self, packet: &[u8]) -> bool {
        let fits = packet.len() <= self.mtu && self.outbox.has_room();
        if fits {
            self.outbox.push_ip(packet.len(), |bytes| bytes.copy_from_slice(packet));
        }
        fits
    }

    /// Gives a packet of the guest to the socket of `flow`. What the socket has to say is said by [`Engine::emit`].
    pub(crate) fn feed(&mut self, flow: &mut TcpFlow, packet: &[u8]) {
        let now = self.now();
        let mut device = Device::new(Some(packet), &mut self.outbox, self.mtu);
        self.iface.poll_ingress_single(now, &mut device, flow.sockets());
    }

    /// Emits what the socket of `flow` has to say, as far as the outbox has room. Returns when to call again even if nothing happens.
    pub(crate) fn emit(&mut self, flow: &mut TcpFlow) -> Option<Duration> {
        let now = self.now();
        let mut device = Device::new(None, &mut self.outbox, self.mtu);
        while self.iface.poll_egress(now, &mut device, flow.sockets()) == PollResult::SocketStateChanged {}
        self.iface.poll_delay(now, flow.sockets()).map(Into::into)
    }

    fn now(&self) -> smoltcp::time::Instant {
        smoltcp::time::Instant::from_micros(self.started.elapsed().as_micros() as i64)
    }
}
