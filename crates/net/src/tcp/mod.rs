//! TCP flows: the guest's connection ends in a smoltcp socket, and its bytes go on in a connection of the host.
//!
//! ```text
//!              SYN, allowed            connected: SYN fed to a socket
//!   (no slot) ─────────────► Connecting ───────────────────────────► Open ──► (no slot)
//!       ▲                        │ refused: RST; unreachable: ICMP      both sides ended, or a reset on either
//!       └────────────────────────┘
//! ```
//! A slot is made with its task and goes with it.

mod flow;
mod host;
mod open;
mod relay;

pub(crate) use flow::TcpFlow;

use crate::stack::{Shared, Stack};
use crate::wire::{TcpSegment, reset};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// What tells a TCP flow of the guest from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TcpKey {
    guest_port: u16,
    address: Ipv4Addr,
    port: u16,
}

/// TCP flows; at most [`crate::limits::TCP_FLOWS_MAX`].
#[derive(Default)]
pub(crate) struct TcpTable {
    slots: HashMap<TcpKey, Slot>,
}

enum Slot {
    /// The host connects; `syn` is the guest's latest SYN, a whole packet.
    Connecting { syn: Vec<u8> },
    /// Bytes flow.
    Open(TcpFlow),
}

impl TcpTable {
    /// Flows that are open or being connected.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    fn open_flow(&mut self, key: TcpKey) -> Option<&mut TcpFlow> {
        match self.slots.get_mut(&key) {
            Some(Slot::Open(flow)) => Some(flow),
            Some(Slot::Connecting { .. }) | None => None,
        }
    }
}

/// Handles a segment of the guest; `packet` is the whole packet.
pub(crate) fn segment(shared: &Arc<Shared>, stack: &mut Stack, segment: &TcpSegment, packet: &[u8]) {
    let key = TcpKey { guest_port: segment.from_port, address: segment.to, port: segment.to_port };
    match stack.tcp.slots.get_mut(&key) {
        Some(Slot::Open(flow)) => {
            stack.engine.feed(flow, packet);
            flow.wake();
        }
        Some(Slot::Connecting { syn }) => {
            if segment.syn && !segment.ack {
                packet.clone_into(syn);
            }
        }
        None if segment.syn && !segment.ack && !segment.rst => open::syn(shared, stack, key, segment, packet),
        None if segment.rst => {}
        None => stack.push(&reset(segment)),
    }
}
