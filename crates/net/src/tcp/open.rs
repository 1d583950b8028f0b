//! From a SYN to an open flow: the policy, then the host's connection, and only then the answer to the guest.

use super::host::HostStream;
use super::relay::{self, Gate};
use super::{Slot, TcpFlow, TcpKey};
use crate::config::{GATEWAY, GUEST};
use crate::stack::{Destination, Shared, Stack};
use crate::wire::{Packet, TcpSegment, Unreachable, reset, unreachable};
use crate::{dns, limits};
use smoltcp::socket::tcp::State;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::time::timeout;
use warren_model::egress::{Protocol, Verdict};

/// Handles the SYN of a flow that has no slot.
pub(super) fn syn(shared: &Arc<Shared>, stack: &mut Stack, key: TcpKey, segment: &TcpSegment, packet: &[u8]) {
    if stack.tcp.len() >= limits::TCP_FLOWS_MAX {
        return stack.push(&reset(segment));
    }
    let Some(gate) = admit(shared, stack, key) else {
        stack.stats.denied += 1;
        return stack.push(&reset(segment));
    };
    stack.tcp.slots.insert(key, Slot::Connecting { syn: packet.to_owned() });
    let (task, generation) = (Arc::clone(shared), stack.generation);
    shared.spawn(async move { run(&task, key, gate, generation).await });
}

/// How a flow that the policy lets through starts; `None` if it does not.
fn admit(shared: &Shared, stack: &Stack, key: TcpKey) -> Option<Gate> {
    if is_dns(key) {
        return Some(Gate::Open);
    }
    let is_service = shared.config.service(key.address, key.port).is_some();
    let to = Destination { protocol: Protocol::Tcp, address: key.address, port: key.port, is_service };
    match stack.decide(to) {
        Verdict::Allow => Some(Gate::Open),
        Verdict::Inspect => Some(Gate::Named),
        Verdict::Deny(_) => None,
    }
}

fn is_dns(key: TcpKey) -> bool {
    (key.address, key.port) == (GATEWAY, dns::PORT)
}

/// Removes the slot of a flow when its task ends, however it ends.
struct Slotted<'a> {
    shared: &'a Shared,
    key: TcpKey,
}

impl Drop for Slotted<'_> {
    fn drop(&mut self) {
        self.shared.lock().tcp.slots.remove(&self.key);
    }
}

async fn run(shared: &Arc<Shared>, key: TcpKey, gate: Gate, generation: u64) {
    let _slotted = Slotted { shared, key };
    match connect(shared, key).await {
        Ok(host) => {
            if let Some(gate) = establish(shared, key, gate, generation) {
                relay::run(shared, key, host, gate).await;
            }
        }
        Err(error) => refuse(&mut shared.lock(), key, &Refusal::of(&error)),
    }
}

async fn connect(shared: &Arc<Shared>, key: TcpKey) -> io::Result<HostStream> {
    if is_dns(key) {
        return dns::session(shared).map(HostStream::Local);
    }
    let target = match shared.config.service(key.address, key.port) {
        Some(service) => service.target,
        None => SocketAddr::from((key.address, key.port)),
    };
    timeout(limits::CONNECT_WAIT, HostStream::connect(target)).await.unwrap_or_else(|elapsed| Err(elapsed.into()))
}

/// Gives the guest's SYN to a socket, which answers it. `None` if the flow is not to be opened after all.
fn establish(shared: &Shared, key: TcpKey, gate: Gate, generation: u64) -> Option<Gate> {
    let mut stack = shared.lock();
    let stack = &mut *stack;
    // The policy may have changed while the host connected: the flow is new to the guest, so the new one counts.
    let gate = if stack.generation == generation { Some(gate) } else { admit(shared, stack, key) };
    let Some(gate) = gate else {
        stack.stats.denied += 1;
        refuse(stack, key, &Refusal::Refused);
        return None;
    };
    let flows = stack.tcp.len();
    let slot = stack.tcp.slots.get_mut(&key)?;
    let Slot::Connecting { syn } = slot else { return None };
    let mut flow = TcpFlow::listen(key, flows)?;
    stack.engine.feed(&mut flow, syn);
    if flow.socket().state() != State::SynReceived {
        stack.stats.dropped += 1;
        return None;
    }
    *slot = Slot::Open(flow);
    stack.stats.flows_opened += 1;
    Some(gate)
}

/// Why a flow is not opened.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    /// Nobody listens, the policy says no, or we cannot tell: a reset.
    Refused,
    /// There is no way to it: an ICMP error, too.
    NoWay,
}

impl Refusal {
    fn of(error: &io::Error) -> Self {
        use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
        match error.kind() {
            HostUnreachable | NetworkUnreachable | TimedOut => Refusal::NoWay,
            _ => Refusal::Refused,
        }
    }
}

/// Tells the guest that its SYN leads nowhere.
fn refuse(stack: &mut Stack, key: TcpKey, why: &Refusal) {
    let Some(Slot::Connecting { syn }) = stack.tcp.slots.get(&key) else { return };
    let Packet::Tcp(segment) = Packet::parse(syn) else { return };
    // The error tells more, and the reset tells it surely: Linux drops an ICMP error that comes while `connect` still holds the socket.
    let error = (*why == Refusal::NoWay).then(|| unreachable(GATEWAY, GUEST, Unreachable::Host, syn));
    if let Some(error) = error {
        stack.push(&error);
    }
    stack.push(&reset(&segment));
}
