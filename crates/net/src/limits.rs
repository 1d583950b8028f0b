//! Bounds of one sandbox's network, each with its unit.

use std::time::Duration;

/// TCP flows at once, those being connected included; a further SYN is answered with a reset.
pub const TCP_FLOWS_MAX: usize = 4096;
/// UDP and echo flows at once; the one that was idle longest makes room for a further one.
pub const DATAGRAM_FLOWS_MAX: usize = 512;
/// DNS questions that wait for an upstream at once; further ones are answered SERVFAIL.
pub const DNS_PENDING_MAX: usize = 256;
/// DNS sessions over TCP at once.
pub const DNS_SESSIONS_MAX: usize = 16;
/// Addresses of which the names are remembered; the oldest are forgotten.
pub const NAMED_ADDRESSES_MAX: usize = 4096;
/// Names remembered for one address; the oldest are forgotten.
pub const NAMES_PER_ADDRESS_MAX: usize = 16;

/// A name is remembered for its address at least so long: programs keep addresses longer than their TTL.
pub const NAME_TTL_MIN: Duration = Duration::from_secs(3600);
/// A name is remembered for its address at most so long.
pub const NAME_TTL_MAX: Duration = Duration::from_secs(24 * 3600);

/// A connection attempt on the host side ends after so long.
pub const CONNECT_WAIT: Duration = Duration::from_secs(60);
/// A UDP or echo flow that was never answered ends after so long without a datagram.
pub const UNANSWERED_IDLE: Duration = Duration::from_secs(60);
/// A UDP or echo flow that was answered ends after so long without a datagram.
pub const ANSWERED_IDLE: Duration = Duration::from_secs(120);
/// One DNS upstream is waited for so long before the next is asked too.
pub const DNS_UPSTREAM_WAIT: Duration = Duration::from_secs(2);
/// A DNS question is answered SERVFAIL after so long.
pub const DNS_WAIT: Duration = Duration::from_secs(8);
/// A DNS session over TCP ends after so long without a question.
pub const DNS_SESSION_IDLE: Duration = Duration::from_secs(30);
/// The guest is asked again about a connection from before its snapshot after so long, then after twice as long, and so on.
pub const LOST_WAIT_FIRST: Duration = Duration::from_millis(200);
/// How often it is asked: for 12 s in all.
pub const LOST_ASKED_MAX: u32 = 6;

/// Bytes for the guest that wait in memory; TCP waits for room, datagrams are dropped.
pub const OUTBOX_BYTES_MAX: usize = 256 << 10;
/// First bytes of a flow that are looked at for a host name.
pub const PRESENTED_BYTES_MAX: usize = 16 << 10;

/// Smallest MTU that a config may give, bytes.
pub const MTU_MIN: u16 = 576;
/// Largest MTU that a config may give, bytes: an IPv4 packet with room for QEMU's frame header.
pub const MTU_MAX: u16 = 65520;

/// Receive and send buffer of a TCP flow, bytes each, by how many flows there are already.
///
/// Together at most 68 MiB for 32 large, 224 medium and 3,840 small pairs.
pub(crate) fn tcp_buffer_bytes(flows: usize) -> usize {
    match flows {
        0..32 => 256 << 10,
        32..256 => 64 << 10,
        _ => 16 << 10,
    }
}
