//! TCP flows: the guest's connection ends in a smoltcp socket, and its bytes go on in a connection of the host.
//!
//! ```text
//!              SYN, allowed            connected: SYN fed to a socket
//!   (no slot) ─────────────► Connecting ───────────────────────────► Open ──► (no slot)
//!       ▲                        │ refused: RST; unreachable: ICMP      both sides ended, or a reset on either
//!       └────────────────────────┘
//! ```
//! A slot is made with its task and goes with it. A segment of no slot that is no SYN is answered with a reset, which is how connections end that the
//! guest has from before a snapshot: `lost` makes it send one.

mod flow;
mod host;
mod lost;
mod open;
mod relay;

pub(crate) use flow::TcpFlow;
pub(crate) use lost::reset_lost;

use crate::stack::{Shared, Stack};
use crate::wire::{TcpSegment, reset};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use warren_proto::shim::OpenTcp;
use warren_proto::shim::limits::OPEN_FLOWS_MAX;

/// What tells a TCP flow of the guest from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TcpKey {
    guest_port: u16,
    address: Ipv4Addr,
    port: u16,
}

/// Where the guest's side of a connection stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Number of the next byte that it sends, as far as it was heard.
    sends: u32,
    /// Number of the next byte that it expects, as far as it was heard.
    expects: u32,
}

/// TCP flows; at most [`crate::limits::TCP_FLOWS_MAX`].
#[derive(Default)]
pub(crate) struct TcpTable {
    slots: HashMap<TcpKey, Slot>,
    /// Connections that the guest has from another network and has not yet let go.
    lost: HashMap<TcpKey, Standing>,
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

    /// Those that the guest takes for established.
    pub(crate) fn open(&self) -> Vec<OpenTcp> {
        let open = self.slots.iter().filter_map(|(key, slot)| match slot {
            Slot::Open(flow) => Some((key, flow.standing())),
            Slot::Connecting { .. } => None,
        });
        let lost = self.lost.iter().map(|(key, standing)| (key, *standing));
        let show = |(&TcpKey { guest_port, address, port }, Standing { sends, expects }): (&TcpKey, Standing)| {
            OpenTcp { guest_port, address, port, sends, expects }
        };
        open.chain(lost).map(show).take(OPEN_FLOWS_MAX).collect()
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
            flow.hear(segment);
            stack.engine.feed(flow, packet);
            flow.wake();
        }
        Some(Slot::Connecting { syn }) => {
            if segment.syn && !segment.ack {
                packet.clone_into(syn);
            }
        }
        None if segment.syn && !segment.ack && !segment.rst => {
            stack.tcp.lost.remove(&key);
            open::syn(shared, stack, key, segment, packet);
        }
        None if segment.rst => drop(stack.tcp.lost.remove(&key)),
        None => stack.push(&reset(segment)),
    }
}
