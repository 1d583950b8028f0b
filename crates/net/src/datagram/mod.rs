//! UDP and ICMP echo: each flow is one connected socket of the host and one task, until it is idle.

mod socket;
mod task;

use crate::config::{GATEWAY, GUEST};
use crate::limits;
use crate::stack::{Destination, Shared, Stack};
use crate::wire::{Unreachable, unreachable};
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use warren_model::egress::{Protocol, Verdict};

/// What tells a datagram flow of the guest from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    kind: Kind,
    address: Ipv4Addr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Udp { guest_port: u16, port: u16 },
    Echo { ident: u16 },
}

impl Key {
    pub(crate) fn udp(guest_port: u16, address: Ipv4Addr, port: u16) -> Self {
        Self { kind: Kind::Udp { guest_port, port }, address }
    }

    pub(crate) fn echo(ident: u16, address: Ipv4Addr) -> Self {
        Self { kind: Kind::Echo { ident }, address }
    }

    fn destination(self, shared: &Shared) -> Destination {
        let (protocol, port) = match self.kind {
            Kind::Udp { port, .. } => (Protocol::Udp, port),
            Kind::Echo { .. } => (Protocol::Icmp, 0),
        };
        let is_service = protocol == Protocol::Udp && shared.config.service(self.address, port).is_some();
        Destination { protocol, address: self.address, port, is_service }
    }
}

/// UDP and echo flows; at most [`limits::DATAGRAM_FLOWS_MAX`].
#[derive(Default)]
pub(crate) struct DatagramTable {
    slots: HashMap<Key, Slot>,
    /// Holds one datagram while it goes from a socket to the outbox; made on first use.
    scratch: Vec<u8>,
}

struct Slot {
    socket: Arc<UdpSocket>,
    /// When the last datagram went either way.
    last: Instant,
    answered: bool,
    /// Ends the flow's task.
    evict: Arc<Notify>,
}

impl Slot {
    fn idle_limit(&self) -> Duration {
        if self.answered { limits::ANSWERED_IDLE } else { limits::UNANSWERED_IDLE }
    }
}

impl DatagramTable {
    /// Flows that are open.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    fn make_room(&mut self) {
        if self.slots.len() < limits::DATAGRAM_FLOWS_MAX {
            return;
        }
        let oldest = self.slots.iter().min_by_key(|(_, slot)| slot.last).map(|(key, _)| *key);
        if let Some(slot) = oldest.and_then(|key| self.slots.remove(&key)) {
            slot.evict.notify_one();
        }
    }
}

/// Sends a UDP payload of the guest; `packet` is the whole packet.
pub(crate) fn send(shared: &Arc<Shared>, stack: &mut Stack, key: Key, payload: &[u8], packet: &[u8]) {
    if open(shared, stack, key, packet) {
        hand_over(stack, key, payload);
    }
}

/// Sends an echo request of the guest: its sequence number and payload.
pub(crate) fn probe(shared: &Arc<Shared>, stack: &mut Stack, key: Key, probe: (u16, &[u8]), packet: &[u8]) {
    if open(shared, stack, key, packet) {
        hand_over(stack, key, &socket::echo_request(probe.0, probe.1));
    }
}

fn hand_over(stack: &mut Stack, key: Key, bytes: &[u8]) {
    let Some(slot) = stack.datagrams.slots.get_mut(&key) else { return };
    slot.last = Instant::now();
    match socket::send(&slot.socket, bytes) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => stack.stats.dropped += 1,
        Err(error) => task::tell(stack, key, &error),
    }
}

/// Makes sure that `key` has a slot; false if it cannot have one, which the guest was told then.
fn open(shared: &Arc<Shared>, stack: &mut Stack, key: Key, packet: &[u8]) -> bool {
    if stack.datagrams.slots.contains_key(&key) {
        return true;
    }
    let destination = key.destination(shared);
    match stack.decide(destination) {
        Verdict::Allow => {}
        Verdict::Inspect | Verdict::Deny(_) => {
            stack.stats.denied += 1;
            refuse(stack, Unreachable::Prohibited, packet);
            return false;
        }
    }
    match connect(shared, key, destination) {
        Ok(socket) => {
            stack.datagrams.make_room();
            start(shared, stack, key, socket);
            true
        }
        Err(error) => {
            tracing::debug!(error = %error, "no datagram socket");
            refuse(stack, Unreachable::Host, packet);
            false
        }
    }
}

fn connect(shared: &Shared, key: Key, to: Destination) -> io::Result<UdpSocket> {
    match key.kind {
        Kind::Echo { .. } => socket::echo(key.address),
        Kind::Udp { port, .. } => {
            let service = shared.config.service(to.address, port);
            socket::udp(service.map_or(SocketAddr::from((key.address, port)), |service| service.target))
        }
    }
}

fn start(shared: &Arc<Shared>, stack: &mut Stack, key: Key, socket: UdpSocket) {
    let (socket, evict) = (Arc::new(socket), Arc::new(Notify::new()));
    let slot = Slot { socket: Arc::clone(&socket), last: Instant::now(), answered: false, evict: Arc::clone(&evict) };
    stack.datagrams.slots.insert(key, slot);
    stack.stats.flows_opened += 1;
    let shared_by_task = Arc::clone(shared);
    shared.spawn(async move { task::run(&shared_by_task, key, &socket, &evict).await });
}

fn refuse(stack: &mut Stack, why: Unreachable, packet: &[u8]) {
    stack.push(&unreachable(GATEWAY, GUEST, why, packet));
}
