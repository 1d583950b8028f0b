use super::asked::Network;
use crate::sys::InterfaceSocket;
use std::io;

/// The guest's one interface besides the loopback.
const INTERFACE: &str = "eth0";

/// Brings loopback and interface up, with address, MTU and default route.
pub(super) fn configure(network: &Network) -> io::Result<()> {
    let socket = InterfaceSocket::open()?;
    socket.up("lo")?;
    socket.mtu(INTERFACE, network.mtu)?;
    socket.address(INTERFACE, network.address, network.prefix)?;
    socket.up(INTERFACE)?;
    socket.default_route(network.gateway)
}
