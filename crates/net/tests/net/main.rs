//! The network as a guest sees it: a second smoltcp stack at the other end of the link, and servers on loopback that the config lets it see.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod dns;
mod guest;
mod policy;
mod servers;
mod tcp;
mod udp;

use guest::Guest;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::UnixStream;
use warren_model::egress::{EgressPolicy, HostName, Rule, Target};
use warren_net::{HostService, NetConfig, Network, NetworkHandle};

/// Where the guest sees the services of a test. Beyond the gateway, as smoltcp asks for one hardware address a second at most.
const SERVICE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 100);

/// A service at [`SERVICE`]`:port` named `name`.
fn service(name: &str, port: u16, target: SocketAddr) -> HostService {
    HostService { names: vec![Target::Host(HostName::parse(name).unwrap())], address: SERVICE, port, target }
}

fn rules(entries: &[&str]) -> Vec<Rule> {
    entries.iter().map(|entry| entry.parse().unwrap()).collect()
}

fn allow(entries: &[&str]) -> EgressPolicy {
    EgressPolicy::Allow(rules(entries))
}

fn deny(entries: &[&str]) -> EgressPolicy {
    EgressPolicy::Deny(rules(entries))
}

/// A network under `policy` and a guest on it.
fn start(config: NetConfig, policy: EgressPolicy) -> (NetworkHandle, Guest) {
    let (host, guest) = UnixStream::pair().unwrap();
    let mtu = config.mtu;
    (Network::start(host, config, policy, 1), Guest::new(guest, mtu))
}

fn services(services: Vec<HostService>) -> NetConfig {
    NetConfig { services, ..NetConfig::default() }
}
