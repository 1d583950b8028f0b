//! The state that all tasks of one network share.

mod device;
mod engine;
mod ingress;
mod outbox;
mod shared;
mod stats;

pub(crate) use engine::Engine;
pub(crate) use ingress::frame;
pub(crate) use shared::{Shared, random};
pub use stats::NetworkStats;

use crate::config::NetConfig;
use crate::datagram::DatagramTable;
use crate::names::Names;
use crate::tcp::TcpTable;
use stats::Stats;
use std::net::Ipv4Addr;
use std::time::Instant;
use warren_model::egress::{ClosedRanges, EgressPolicy, Flow, Protocol, Verdict, decide};

/// Everything under the lock of [`Shared`].
pub(crate) struct Stack {
    /// Packets in and out.
    pub(crate) engine: Engine,
    /// TCP flows.
    pub(crate) tcp: TcpTable,
    /// UDP and echo flows.
    pub(crate) datagrams: DatagramTable,
    /// What the guest was told by DNS.
    pub(crate) names: Names,
    /// What the guest may reach.
    pub(crate) policy: EgressPolicy,
    /// The number that came with `policy`.
    pub(crate) generation: u64,
    /// Counters.
    pub(crate) stats: Stats,
    closed: ClosedRanges,
    closed_for_services: ClosedRanges,
}

/// Where a flow of the guest goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) protocol: Protocol,
    pub(crate) address: Ipv4Addr,
    pub(crate) port: u16,
    /// Whether a service of the host answers there; those are not closed by default.
    pub(crate) is_service: bool,
}

impl Stack {
    pub(crate) fn new(config: &NetConfig, policy: EgressPolicy, generation: u64, seed: u64) -> Self {
        Self {
            engine: Engine::new(config.mtu(), seed),
            tcp: TcpTable::default(),
            datagrams: DatagramTable::default(),
            names: Names::default(),
            policy,
            generation,
            stats: Stats::default(),
            closed: config.closed_ranges(),
            closed_for_services: ClosedRanges::none(),
        }
    }

    /// Queues an IPv4 packet for the guest; it is dropped if there is no room, or if it is larger than the MTU.
    pub(crate) fn push(&mut self, packet: &[u8]) {
        if !self.engine.push(packet) {
            self.stats.dropped += 1;
        }
    }

    /// What the policy says about a flow.
    pub(crate) fn decide(&self, to: Destination) -> Verdict {
        let names = self.names.of(to.address, Instant::now());
        let closed = if to.is_service { &self.closed_for_services } else { &self.closed };
        let flow = Flow { address: to.address, port: to.port, protocol: to.protocol, names: &names };
        decide(&self.policy, closed, &flow)
    }
}
