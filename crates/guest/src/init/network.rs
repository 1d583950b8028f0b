use super::asked::Network;
use crate::boot::INTERFACE;
use crate::sys::InterfaceSocket;
use std::io;

/// Gives the interface its MTU and address, and the guest its default route.
pub(super) fn configure(network: &Network) -> io::Result<()> {
    let socket = InterfaceSocket::open()?;
    socket.mtu(INTERFACE, network.mtu)?;
    socket.address(INTERFACE, network.address, network.prefix)?;
    socket.default_route(network.gateway)
}
