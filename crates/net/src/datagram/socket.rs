//! Sockets of the host for datagrams.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, send as send_on, socket_with,
};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdUdpSocket};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Length of an echo header, bytes.
pub(super) const ECHO_LEN: usize = 8;
const ECHO_REQUEST: u8 = 8;

/// A UDP socket that talks to `target` alone.
pub(super) fn udp(target: SocketAddr) -> io::Result<UdpSocket> {
    let any = match target {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    connected(StdUdpSocket::bind(any)?, target)
}

/// A ping socket that talks to `target` alone. An error if `net.ipv4.ping_group_range` does not let this process have one.
pub(super) fn echo(target: Ipv4Addr) -> io::Result<UdpSocket> {
    let fd = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(ipproto::ICMP))?;
    connected(StdUdpSocket::from(fd), SocketAddr::from((target, 0)))
}

fn connected(socket: StdUdpSocket, target: SocketAddr) -> io::Result<UdpSocket> {
    socket.connect(target)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// An echo request as a ping socket takes it; the kernel fills in the identifier and the sum.
pub(super) fn echo_request(sequence: u16, payload: &[u8]) -> Vec<u8> {
    let [high, low] = sequence.to_be_bytes();
    [&[ECHO_REQUEST, 0, 0, 0, 0, 0, high, low], payload].concat()
}

/// Sends without waiting. An error may be that of an earlier datagram.
///
/// Not by tokio's `try_send`, which sends nothing before the runtime has looked at the new socket once.
pub(super) fn send(socket: &UdpSocket, bytes: &[u8]) -> io::Result<()> {
    send_on(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits until [`receive`] may give something: a datagram, or an error that ICMP told of.
pub(super) async fn ready(socket: &UdpSocket) -> io::Result<()> {
    socket.ready(Interest::READABLE | Interest::ERROR).await.map(drop)
}

/// Receives without waiting.
pub(super) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<usize> {
    // `try_recv` would leave the readiness for an error standing; `try_io` takes one kind of readiness at a time.
    let mut attempt = |interest| socket.try_io(interest, || Ok(recv(socket, &mut *buffer, RecvFlags::DONTWAIT)?.0));
    match attempt(Interest::READABLE) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => attempt(Interest::ERROR),
        received => received,
    }
}
