//! IPv4 packets from the guest.

use smoltcp::wire::{Icmpv4Message, Icmpv4Packet, IpProtocol, Ipv4Packet, TcpPacket, UdpPacket};
use std::net::Ipv4Addr;

/// A packet from the guest, as far as the stack tells packets apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    /// A TCP segment.
    Tcp(TcpSegment),
    /// A UDP datagram.
    Udp { from: Ipv4Addr, from_port: u16, to: Ipv4Addr, to_port: u16, payload: &'a [u8] },
    /// An ICMP echo request.
    Echo { from: Ipv4Addr, to: Ipv4Addr, ident: u16, sequence: u16, payload: &'a [u8] },
    /// Malformed, a fragment, or of another protocol; it is dropped.
    Other,
}

/// The head of a TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TcpSegment {
    pub(crate) from: Ipv4Addr,
    pub(crate) from_port: u16,
    pub(crate) to: Ipv4Addr,
    pub(crate) to_port: u16,
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) rst: bool,
    /// Its sequence number.
    pub(crate) sequence: u32,
    /// Its acknowledgement number.
    pub(crate) acknowledges: u32,
    /// Sequence numbers it takes: payload, SYN and FIN.
    pub(crate) length: u32,
}

impl<'a> Packet<'a> {
    /// Reads a packet, whose checksums are trusted: it came over memory.
    pub(crate) fn parse(bytes: &'a [u8]) -> Self {
        parse(bytes).unwrap_or(Packet::Other)
    }
}

fn parse(bytes: &[u8]) -> Option<Packet<'_>> {
    let ip = Ipv4Packet::new_checked(bytes).ok()?;
    let fragment = ip.more_frags() || ip.frag_offset() != 0;
    if ip.version() != 4 || fragment {
        return None;
    }
    let (from, to) = (ip.src_addr(), ip.dst_addr());
    match ip.next_header() {
        IpProtocol::Tcp => {
            let tcp = TcpPacket::new_checked(ip.payload()).ok()?;
            Some(Packet::Tcp(segment(from, to, &tcp)))
        }
        IpProtocol::Udp => {
            let udp = UdpPacket::new_checked(ip.payload()).ok()?;
            let payload = udp.payload();
            Some(Packet::Udp { from, from_port: udp.src_port(), to, to_port: udp.dst_port(), payload })
        }
        IpProtocol::Icmp => {
            let icmp = Icmpv4Packet::new_checked(ip.payload()).ok()?;
            (icmp.msg_type() == Icmpv4Message::EchoRequest).then(|| Packet::Echo {
                from,
                to,
                ident: icmp.echo_ident(),
                sequence: icmp.echo_seq_no(),
                payload: icmp.data(),
            })
        }
        _ => None,
    }
}

fn segment(from: Ipv4Addr, to: Ipv4Addr, tcp: &TcpPacket<&[u8]>) -> TcpSegment {
    TcpSegment {
        from,
        from_port: tcp.src_port(),
        to,
        to_port: tcp.dst_port(),
        syn: tcp.syn(),
        ack: tcp.ack(),
        rst: tcp.rst(),
        sequence: tcp.seq_number().0 as u32,
        acknowledges: tcp.ack_number().0 as u32,
        length: tcp.segment_len() as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_dropped(bytes: Vec<u8>) {
            Packet::parse(&bytes);
        }

        #[test]
        fn any_bytes_behind_a_sound_head_are_read_or_dropped(
            tail in proptest::collection::vec(any::<u8>(), 0..80), protocol in prop_oneof![Just(1u8), Just(6), Just(17)], header_words in 5u8..=15,
        ) {
            let length = 20 + tail.len() as u8;
            let mut bytes = vec![0x40 | header_words, 0, 0, length, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 2, 15, 1, 2, 3, 4];
            bytes.extend(tail);
            Packet::parse(&bytes);
        }
    }
}
