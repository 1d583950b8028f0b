//! The sandbox's network: what the guest's link looks like, and which addresses of this machine it may not reach.

use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream as StdStream;
use tokio::net::UnixStream;
use warren_model::egress::Ipv4Net;
use warren_net::{GATEWAY, GUEST, GUEST_PREFIX_LEN, NetConfig, Network, NetworkHandle};
use warren_proto::guest::GuestNetwork;
use warren_proto::shim::SetEgress;

/// Where the kernel lists its routes, local addresses among them.
const FIB_TRIE: &str = "/proc/self/net/fib_trie";

/// Starts the network on our end of the guest's link.
pub(crate) fn start(link: StdStream, egress: SetEgress) -> std::io::Result<NetworkHandle> {
    link.set_nonblocking(true)?;
    let routes = std::fs::read_to_string(FIB_TRIE).unwrap_or_default();
    let closed = own_addresses(&routes).into_iter().filter_map(|address| Ipv4Net::new(address, 32)).collect();
    let config = NetConfig { closed, ..NetConfig::default() };
    Ok(Network::start(UnixStream::from_std(link)?, config, egress.policy, egress.generation))
}

/// The guest's end of the link. Every guest has the same addresses, so that a snapshot needs no renumbering.
pub(crate) fn guest_network() -> GuestNetwork {
    GuestNetwork {
        address: format!("{GUEST}/{GUEST_PREFIX_LEN}"),
        gateway: GATEWAY.to_string(),
        dns: GATEWAY.to_string(),
        mtu: NetConfig::default().mtu.into(),
    }
}

/// Addresses of this machine from the text of `/proc/net/fib_trie`: a leaf `|-- ADDRESS` followed by `/32 host LOCAL`.
fn own_addresses(fib_trie: &str) -> Vec<Ipv4Addr> {
    let mut leaf: Option<Ipv4Addr> = None;
    let mut found = Vec::new();
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(leaf);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_leaves_are_own_addresses() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 10.1.2.3\n        /32 host LOCAL\n\
                    Local:\n     |-- 10.1.2.3\n        /32 host LOCAL\n     |-- 10.1.2.255\n        /32 link BROADCAST\n";
        assert_eq!(own_addresses(text), [Ipv4Addr::new(10, 1, 2, 3)]);
    }
}
