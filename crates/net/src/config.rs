//! What the caller decides about a network.

use std::net::{Ipv4Addr, SocketAddr};
use warren_model::egress::{ClosedRanges, HostName, Ipv4Net, Target};

use crate::limits;

/// The guest's address. Every guest has the same, so that a snapshot needs no renumbering.
pub const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// The guest's default route and DNS server.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Prefix length of the network of [`GUEST`] and [`GATEWAY`].
pub const GUEST_PREFIX_LEN: u8 = 24;
/// Hardware address of [`GATEWAY`], and of every other address as the guest sees it.
pub const GATEWAY_MAC: [u8; 6] = [0x52, 0x55, 0x0a, 0x00, 0x02, 0x02];

/// What the caller decides about a network.
#[derive(Debug, Clone)]
pub struct NetConfig {
    /// Largest IP packet, bytes; what the guest's interface is set to. Clamped to [`limits::MTU_MIN`]`..=`[`limits::MTU_MAX`].
    pub mtu: u16,
    /// Closed by default besides loopback, link-local, multicast and the guest's own network: the node's own addresses, the cluster's ranges.
    pub closed: Vec<Ipv4Net>,
    /// Resolvers to ask; `None` asks those of the host's `/etc/resolv.conf`, read anew for each question.
    pub upstreams: Option<Vec<SocketAddr>>,
    /// Endpoints of the host that the guest sees under addresses of their own.
    pub services: Vec<HostService>,
}

/// An endpoint of the host, which may be on loopback, under an address and a name of its own in the guest.
///
/// The policy applies to it as to every destination, except that it is not closed by default.
#[derive(Debug, Clone)]
pub struct HostService {
    /// Names that DNS answers with `address`; [`Target::Host`] or [`Target::Below`].
    pub names: Vec<Target>,
    /// Address in the guest's view, best from 10.0.2.0/24, as nothing else is there.
    pub address: Ipv4Addr,
    /// Port in the guest's view.
    pub port: u16,
    /// Where flows really go.
    pub target: SocketAddr,
}

impl Default for NetConfig {
    /// MTU 65520, nothing closed besides the defaults, the host's resolvers, no services.
    fn default() -> Self {
        Self { mtu: limits::MTU_MAX, closed: Vec::new(), upstreams: None, services: Vec::new() }
    }
}

impl NetConfig {
    pub(crate) fn mtu(&self) -> usize {
        usize::from(self.mtu.clamp(limits::MTU_MIN, limits::MTU_MAX))
    }

    pub(crate) fn closed_ranges(&self) -> ClosedRanges {
        ClosedRanges::with(self.closed.iter().copied().chain(Ipv4Net::new(GATEWAY, GUEST_PREFIX_LEN)))
    }

    /// The service that answers at an address and port of the guest's view.
    pub(crate) fn service(&self, address: Ipv4Addr, port: u16) -> Option<&HostService> {
        self.services.iter().find(|service| service.address == address && service.port == port)
    }

    /// The addresses, in the guest's view, of the services that have this name.
    pub(crate) fn service_addresses(&self, name: &HostName) -> Vec<Ipv4Addr> {
        let mut addresses: Vec<_> =
            self.services.iter().filter(|service| service.has_name(name)).map(|service| service.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

impl HostService {
    fn has_name(&self, name: &HostName) -> bool {
        self.names.iter().any(|target| match target {
            Target::Host(host) => host == name,
            Target::Below(parent) => name.is_below(parent),
            Target::Any | Target::Net(_) => false,
        })
    }
}
